//! The builder of a schedule. What cannot be right is the answer when the builder is awaited; nothing is stored then.

use std::future::{Future, IntoFuture};
use std::pin::Pin;

use tidegate_core::codes;
use tidegate_core::ids::{GroupKey, KindName, ScheduleName, TenantId};
use tidegate_core::job::Priority;
use tidegate_core::registry::KindSettings;
use tidegate_core::schedule::{Missed, Overlap, ScheduleSettings, ScheduleSpec, Span};
use tidegate_store::params::{PutSchedule, ScheduleChange};

use crate::{Error, IntoSpan, Job, Result, Tidegate};

/// A schedule on its way into the store: say when, refine it, then `.await` it.
///
/// ```
/// # #[derive(serde::Serialize, serde::Deserialize, tidegate::Job)] struct Aggregate {}
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> tidegate::Result<()> {
/// # let tide = tidegate::Tidegate::memory();
/// tide.schedule("aggregate", Aggregate {})
///     .cron("0 1 * * *", "America/Sao_Paulo")
///     .jitter("30s")
///     .await?;
/// # Ok(()) }
/// ```
#[must_use = "nothing is scheduled until it is awaited"]
#[derive(Debug)]
pub struct Schedule {
    tide: Tidegate,
    draft: Result<Draft>,
}

#[derive(Debug)]
struct Draft {
    name: ScheduleName,
    kind: (&'static str, fn() -> Result<KindSettings>),
    settings: ScheduleSettings,
}

impl Schedule {
    pub(crate) fn new<J: Job>(tide: Tidegate, name: &str, payload: &J) -> Self {
        let payload = serde_json::to_value(payload).map_err(|e| {
            Error::new(codes::INVALID_PAYLOAD, format!("the payload of kind {} is no JSON: {e}", J::KIND))
        });
        let draft = ScheduleName::new(name).map_err(Error::from).and_then(|name| {
            let settings = ScheduleSettings { payload: Some(payload?), ..ScheduleSettings::default() };
            Ok(Draft { name, kind: (J::KIND, J::settings), settings })
        });
        Self { tide, draft }
    }

    fn set<T, E: Into<Error>>(
        mut self,
        value: std::result::Result<T, E>,
        set: impl FnOnce(&mut ScheduleSettings, T),
    ) -> Self {
        match (&mut self.draft, value) {
            (Ok(draft), Ok(value)) => set(&mut draft.settings, value),
            (Ok(_), Err(error)) => self.draft = Err(error.into()),
            (Err(_), _) => {}
        }
        self
    }

    fn with(self, set: impl FnOnce(&mut ScheduleSettings)) -> Self {
        self.set(Ok::<(), Error>(()), |settings, ()| set(settings))
    }

    /// By a cron expression, by the clock of an IANA time zone.
    ///
    /// ```
    /// # fn example(schedule: tidegate::Schedule) -> tidegate::Schedule {
    /// schedule.cron("30 0 * * *", "America/Sao_Paulo")
    /// # }
    /// ```
    pub fn cron(self, expression: impl Into<String>, zone: impl Into<String>) -> Self {
        self.with(|s| (s.cron, s.zone) = (Some(expression.into()), Some(zone.into())))
    }

    /// Every so often, counted from 1970: `5m` means the full five minutes, whatever the delays.
    ///
    /// ```
    /// # fn example(schedule: tidegate::Schedule) -> tidegate::Schedule {
    /// schedule.every("5m")
    /// # }
    /// ```
    pub fn every(self, span: impl IntoSpan) -> Self {
        let span = span.into_span().map(|ms| Span(ms.0).to_string());
        self.set(span, |s, span| s.every = Some(span))
    }

    /// Once: with an offset, or by the clock of [`zone`](Self::zone).
    ///
    /// ```
    /// # fn example(schedule: tidegate::Schedule) -> tidegate::Schedule {
    /// schedule.at("2026-12-24T18:00").zone("Europe/Berlin")
    /// # }
    /// ```
    pub fn at(self, time: impl Into<String>) -> Self {
        self.with(|s| s.at = Some(time.into()))
    }

    /// The time zone whose clock and whose days count.
    ///
    /// ```
    /// # fn example(schedule: tidegate::Schedule) -> tidegate::Schedule {
    /// schedule.every("6h").zone("Asia/Kathmandu")
    /// # }
    /// ```
    pub fn zone(self, zone: impl Into<String>) -> Self {
        self.with(|s| s.zone = Some(zone.into()))
    }

    /// What becomes of a tick while an earlier run is not finished; it is skipped if nothing is said.
    ///
    /// ```
    /// # fn example(schedule: tidegate::Schedule) -> tidegate::Schedule {
    /// schedule.overlap(tidegate::Overlap::Queue)
    /// # }
    /// ```
    pub fn overlap(self, overlap: Overlap) -> Self {
        self.with(|s| s.overlap = overlap)
    }

    /// What becomes of ticks that nobody was there to fire; the newest runs if nothing is said.
    ///
    /// ```
    /// # fn example(schedule: tidegate::Schedule) -> tidegate::Schedule {
    /// schedule.missed(tidegate::Missed::RunAll(3))
    /// # }
    /// ```
    pub fn missed(self, missed: Missed) -> Self {
        self.with(|s| s.missed = missed)
    }

    /// Puts each run off by up to this, always by the same for the same tick.
    ///
    /// ```
    /// # fn example(schedule: tidegate::Schedule) -> tidegate::Schedule {
    /// schedule.jitter("30s")
    /// # }
    /// ```
    pub fn jitter(self, span: impl IntoSpan) -> Self {
        let span = span.into_span().map(|ms| Span(ms.0).to_string());
        self.set(span, |s, span| s.jitter = Some(span))
    }

    /// Waits for the run of the same day of another schedule.
    ///
    /// ```
    /// # fn example(schedule: tidegate::Schedule) -> tidegate::Schedule {
    /// schedule.after("aggregate")
    /// # }
    /// ```
    pub fn after(self, other: impl AsRef<str>) -> Self {
        self.set(ScheduleName::new(other), |s, other| s.after.push(other))
    }

    /// Whose its jobs are.
    ///
    /// ```
    /// # fn example(schedule: tidegate::Schedule) -> tidegate::Schedule {
    /// schedule.tenant("acme")
    /// # }
    /// ```
    pub fn tenant(self, tenant: impl AsRef<str>) -> Self {
        self.set(TenantId::new(tenant), |s, tenant| s.tenant = Some(tenant))
    }

    /// Group of its jobs.
    ///
    /// ```
    /// # fn example(schedule: tidegate::Schedule) -> tidegate::Schedule {
    /// schedule.group("nightly")
    /// # }
    /// ```
    pub fn group(self, group: impl AsRef<str>) -> Self {
        self.set(GroupKey::new(group), |s, group| s.group = Some(group))
    }

    /// Priority of its jobs.
    ///
    /// ```
    /// # fn example(schedule: tidegate::Schedule) -> tidegate::Schedule {
    /// schedule.priority(tidegate::Priority::Low)
    /// # }
    /// ```
    pub fn priority(self, priority: Priority) -> Self {
        self.with(|s| s.priority = Some(priority))
    }
}

impl IntoFuture for Schedule {
    type Output = Result<ScheduleChange>;
    type IntoFuture = Pin<Box<dyn Future<Output = Self::Output> + Send>>;

    fn into_future(self) -> Self::IntoFuture {
        Box::pin(async move {
            let Self { tide, draft } = self;
            let Draft { name, kind: (kind, of_kind), settings } = draft?;
            let refuse = |why| Error::new(codes::INVALID_SCHEDULE, format!("schedule `{name}`: {why}"));
            settings.check().map_err(refuse)?;
            let kind: KindName = tide.ensure_kind(kind, of_kind).await?;
            let put = PutSchedule { name, spec: ScheduleSpec { kind, settings }, now: tide.now() };
            Ok(tide.store().put_schedule(put).await?)
        })
    }
}
