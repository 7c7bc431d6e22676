//! Asking: one call, all gates of its domain at once.

use std::sync::Arc;
use std::time::Duration;

use tidegate_core::codes;
use tidegate_core::failure::cut;
use tidegate_core::gates::{
    Admission, Because, Call, End, Holder, Never, Outcome, Part, Points, Refused, Target, Wait,
};
use tidegate_core::ids::{ConnectorName, LeaseId};
use tidegate_core::limits;
use tidegate_gates::{GateSettings, GatesError};
use tokio::time::Instant;

use super::desk::GateDesk;
use super::permit::{GatePermit, Held, MOST, Said, no_points};
use super::scope::to_park;
use super::setup::Keeper;
use crate::{Context, Error, Failure, StopReason, mint};

/// Shortest pause between two asks, against a backend whose clock and ours disagree.
const SHORTEST: Duration = Duration::from_micros(100);
/// How soon to come back when the gates' backend is out of reach.
const UNREACHABLE_MS: i64 = 2_000;
/// Longest wait for a breaker, whatever it said. An operator's order may last for days and be taken back where nobody calls this job: at a
/// backend that this process does not hear, or straight at the backend.
const BREAKER_AGAIN: Duration = Duration::from_mins(1);

/// A call that asks to be admitted by the gates of a connector.
///
/// ```
/// # async fn example(cx: tidegate::Context) -> tidegate::Outcome {
/// let permit = cx.gate("shopify").cost(52).account("acme-eu").endpoint("bulk").priority(1).admit().await?;
/// # tidegate::done() }
/// ```
#[must_use = "nothing is asked until `admit` is awaited"]
pub struct GateCall {
    cx: Context,
    connector: String,
    cost: Points,
    parts: [Option<String>; 4],
    priority: Priority,
    wrong: Option<Error>,
}

enum Priority {
    Level(u8),
    Named(String),
}

/// The parts of a target that a handler may name, in the order of [`GateCall::parts`].
const PARTS: [Part; 4] = [Part::Tenant, Part::Account, Part::Endpoint, Part::Subject];

macro_rules! parts {
    ($($(#[$doc:meta])* $name:ident: $place:literal = $example:literal;)*) => {
        $(
            $(#[$doc])*
            ///
            /// ```
            /// # async fn example(cx: tidegate::Context) -> tidegate::Outcome {
            #[doc = concat!("let permit = cx.gate(\"shopify\").", stringify!($name), "(\"", $example, "\").admit().await?;")]
            /// # tidegate::done() }
            /// ```
            pub fn $name(mut self, $name: impl Into<String>) -> Self {
                self.parts[$place] = Some($name.into());
                self
            }
        )*
    };
}

impl GateCall {
    pub(crate) fn new(cx: Context, connector: String) -> Self {
        let priority = Priority::Level(cx.priority().level());
        let (cost, parts) = (Points::ONE, Default::default());
        Self { cx, connector, cost, parts, priority, wrong: None }
    }

    /// What the call costs at most, in points; 1 unless said.
    ///
    /// ```
    /// # async fn example(cx: tidegate::Context) -> tidegate::Outcome {
    /// let permit = cx.gate("shopify").cost(52).admit().await?;
    /// # tidegate::done() }
    /// ```
    pub fn cost(mut self, points: impl Into<f64>) -> Self {
        let given = points.into();
        match Points::from_f64(given) {
            Some(points) => self.cost = points,
            None => self.wrong = self.wrong.or_else(|| Some(no_points(given))),
        }
        self
    }

    parts! {
        /// For whom; the job's tenant, else its group, unless said.
        tenant: 0 = "acme";
        /// The account or shop; the job's group unless said.
        account: 1 = "acme-eu";
        /// The class of endpoint; none unless said.
        endpoint: 2 = "bulk";
        /// Whatever else the provider counts by, such as the recipient; none unless said.
        subject: 3 = "49-170-1234";
    }

    /// Its priority, 1 is the highest; the job's unless said.
    ///
    /// ```
    /// # async fn example(cx: tidegate::Context) -> tidegate::Outcome {
    /// let permit = cx.gate("shopify").priority(1).admit().await?;
    /// # tidegate::done() }
    /// ```
    pub fn priority(mut self, level: u8) -> Self {
        self.priority = Priority::Level(level);
        self
    }

    /// Its priority by a name of the domain's settings.
    ///
    /// ```
    /// # async fn example(cx: tidegate::Context) -> tidegate::Outcome {
    /// let permit = cx.gate("shopify").priority_named("real-time").admit().await?;
    /// # tidegate::done() }
    /// ```
    pub fn priority_named(mut self, name: impl Into<String>) -> Self {
        self.priority = Priority::Named(name.into());
        self
    }

    /// Asks all gates at once: everything is reserved, or nothing. Use `?` on it: a call that must wait puts the job off, which is
    /// no failure, spends no attempt and keeps its place in line; one that can never pass fails.
    ///
    /// ```
    /// # async fn example(cx: tidegate::Context) -> tidegate::Outcome {
    /// let permit = cx.gate("shopify").cost(52).admit().await?;
    /// # tidegate::done() }
    /// ```
    pub async fn admit(mut self) -> Result<GatePermit, Failure> {
        if let Some(wrong) = self.wrong.take() {
            return Err(wrong.into());
        }
        let Some(keeper) = self.cx.tide().keeper() else {
            let detail = format!("no gates are set, and a handler asks those of {:?}", self.connector);
            return Err(Error::new(codes::GATE_NOT_FOUND, detail).into());
        };
        let desk = self.cx.lease().gates().clone();
        self.settle_dropped(&desk).await;
        if self.cx.permits().len() >= MOST {
            let text = format!("the handler holds {MOST} permits that it has not settled");
            return Err(Failure::logic("TOO_MANY_PERMITS", text));
        }
        let settings = match keeper.settings().await {
            Ok(settings) => settings,
            Err(error) => return Err(no_answer(&self.cx, &self.connector, error)),
        };
        let call = self.call(&keeper, &settings, &desk)?;
        Asking { cx: &self.cx, keeper: &keeper, settings: &settings, desk: &desk }.until_decided(call).await
    }

    /// What the handler let go of without a word was answered: it goes on to the next call.
    async fn settle_dropped(&self, desk: &GateDesk) {
        let dropped: Vec<Arc<Held>> =
            self.cx.permits().extract_if(.., |h| h.is_dropped() || !h.is_open()).collect();
        let said: Vec<Said<'_>> = dropped
            .iter()
            .filter(|h| h.take())
            .map(|h| Said::new(desk, &h.permit, Outcome::of(End::Ok)))
            .collect();
        for answer in said {
            answer.settle().await;
        }
    }

    fn call(&self, keeper: &Keeper, settings: &GateSettings, desk: &GateDesk) -> Result<Call, Failure> {
        let job = self.cx.job();
        let domain = settings.domain_of(&self.connector);
        let mut target = Target::new(domain)
            .and_then(|t| t.with(Part::Connector, &self.connector))
            .map_err(Error::from)?;
        let own = job.tenant.as_ref().map_or(job.group.as_str(), |t| t.as_str());
        let defaults = [own, job.group.as_str(), "", ""];
        for ((part, given), default) in PARTS.into_iter().zip(&self.parts).zip(defaults) {
            target = match given {
                Some(text) => target.with(part, text).map_err(Error::from)?,
                // A group may have a name that a target cannot.
                None => target.clone().with(part, default).unwrap_or(target),
            };
        }
        let number = self.cx.next_call();
        let holder = Holder::of_job(job.id, number).map_err(Error::from)?;
        let mut call =
            Call::new(Arc::new(target), holder).cost(self.cost).priority(self.level(settings, domain)?);
        call.ask = ask_of(job.ticket.lease);
        call.lease = desk.lease;
        call.since = keeper.arrived(&holder);
        call.process = mint::process().0 & ((1 << 53) - 1);
        Ok(call)
    }

    fn level(&self, settings: &GateSettings, domain: &str) -> Result<u8, Failure> {
        let name = match &self.priority {
            Priority::Level(level) => return Ok(*level),
            Priority::Named(name) => name,
        };
        let set = settings.gates.get(domain);
        set.and_then(|s| s.line.priorities.level(name)).ok_or_else(|| {
            let detail = format!("the gates of {domain:?} have no priority {name:?}");
            Error::new(codes::INVALID_REQUEST, detail).into()
        })
    }
}

/// A call on its way.
struct Asking<'a> {
    cx: &'a Context,
    keeper: &'a Keeper,
    settings: &'a GateSettings,
    desk: &'a Arc<GateDesk>,
}

impl Asking<'_> {
    async fn until_decided(&self, mut call: Call) -> Result<GatePermit, Failure> {
        let gates = &*self.keeper.backend;
        // Registered before asking: a wake-up between the two is not lost.
        let turn = gates.turn(&call.holder);
        let end = Instant::now() + self.desk.patience;
        let mut place = None;
        loop {
            let answer = gates.admit(self.desk.now(), &call).await;
            if let Ok(admission) = &answer {
                self.desk.answered(&call, admission);
            }
            let wait = match answer {
                Ok(Admission::Admitted(admitted)) => {
                    self.keeper.forget(&call.holder);
                    let held = Arc::new(Held::new(admitted.permit));
                    self.cx.permits().push(held.clone());
                    return Ok(GatePermit::new(held, self.desk.clone()));
                }
                Ok(Admission::Wait(wait)) => wait,
                Ok(Admission::Refused(refused)) => return Err(self.never(&call, &refused)),
                Err(error) => return Err(no_answer(self.cx, call.target.domain(), error)),
            };
            call.since = Some(wait.arrived);
            let pause = self.pause(&wait);
            // One of a line may wait in place, if that is not long: it keeps a slot of the worker.
            let soon = wait.position == Some(1) && Instant::now() + pause <= end && !self.cx.is_cancelled();
            if soon && place.is_none() {
                place = self.desk.in_place.try_acquire().ok();
            }
            if !soon || place.is_none() {
                return Err(self.put_off(&call, &wait));
            }
            tokio::select! {
                _ = turn.wait(pause.max(SHORTEST)) => {}
                () = self.cx.cancelled() => {}
            }
        }
    }

    fn pause(&self, wait: &Wait) -> Duration {
        let ahead = wait.retry_at - self.desk.clock(&*self.keeper.backend);
        Duration::from_micros(u64::try_from(ahead).unwrap_or(0))
    }

    /// The job comes back when the gate said; until then nobody of the scope is handed out.
    fn put_off(&self, call: &Call, wait: &Wait) -> Failure {
        let domain = call.target.domain();
        self.desk.refused(self.cx.job().ticket, &wait.gate, &call.target);
        self.keeper.remember(call.holder, wait.arrived);
        let gate = self.settings.gate(domain, &wait.gate);
        let park = gate.and_then(|g| to_park(self.settings, g, &call.target, self.cx.job()));
        let longest = if wait.because == Because::BreakerOpen { BREAKER_AGAIN } else { Duration::MAX };
        let pause = self.pause(wait).min(longest);
        let until = self.cx.now().plus_ms(pause.as_micros().div_ceil(1_000) as i64);
        let clock = self.desk.clock(&*self.keeper.backend);
        let reason = format!("gate {} of {:?}: {}", wait.gate, call.target, wait.explain(clock));
        Failure::waiting(until, cut(reason, limits::MAX_NOTE_BYTES), park, ConnectorName::new(domain).ok())
    }

    fn never(&self, call: &Call, refused: &Refused) -> Failure {
        let text = format!("gate {} of {:?}: {}", refused.gate, call.target, refused.because);
        match refused.because {
            Never::CostAboveCapacity { .. } => Failure::invalid("COST_ABOVE_CAPACITY", text),
            Never::StaleAsk => {
                // A later run of this job has asked, so this one has lost its lease.
                self.cx.stop(StopReason::LeaseLost);
                Failure::logic("STALE_ASK", text)
            }
            Never::Deadline | Never::Invalid => Failure::logic("INVALID_CALL", text),
        }
    }
}

/// The number with which a run asks: that of its lease, of which every run has another, and a later one a higher. So what a run
/// before it still holds is not handed out twice, and its late answer ends nothing of this one.
fn ask_of(lease: LeaseId) -> u64 {
    lease.0.cast_unsigned() & ((1 << 53) - 1)
}

/// The gates did not answer.
fn no_answer(cx: &Context, domain: &str, error: GatesError) -> Failure {
    let unreachable = matches!(error, GatesError::Unreachable(_));
    let error = Error::from(error);
    if !unreachable {
        return error.into();
    }
    // An outage of the gates is no failure of the job (G11).
    let until = cx.now().plus_ms(UNREACHABLE_MS);
    let reason = cut(format!("gates of {domain}: {}", error.detail), limits::MAX_NOTE_BYTES);
    Failure::waiting(until, reason, None, ConnectorName::new(domain).ok())
}

#[cfg(test)]
mod tests {
    use tidegate_core::gates::{Failure as Class, HolderView};
    use tidegate_core::job::Priority;
    use tidegate_core::time::Timestamp;

    use super::*;
    use crate::Tidegate;
    use crate::gates::Answer;
    use crate::worker::sample::claimed_under;

    async fn tide(gate: &str) -> Tidegate {
        let text = format!("[[gates.shopify.gates]]\nname = \"it\"\n{gate}");
        Tidegate::memory().gates(GateSettings::from_toml(&text).unwrap()).await.unwrap()
    }

    /// A run of one and the same job, enqueued and started at one and the same time.
    fn run(tide: &Tidegate, lease: i64) -> Context {
        let (job, lease) = claimed_under(tide, lease, 7, Priority::Medium);
        Context::new(job, lease, Timestamp(0))
    }

    async fn holders(tide: &Tidegate) -> Vec<HolderView> {
        tide.gate_backend().unwrap().holders("shopify", 9).await.unwrap()
    }

    #[tokio::test]
    async fn a_late_answer_of_a_run_ends_nothing_of_the_next_one_however_soon_it_came() {
        let tide = tide("gate.slots = { limit = 1 }").await;
        let (before, now) = (run(&tide, 1), run(&tide, 2));
        let lost = before.gate("shopify").admit().await.unwrap();
        let held = now.gate("shopify").admit().await.unwrap();
        assert!(held.fence() > lost.fence(), "a permit of its own");
        lost.settle(Answer::ok()).await.unwrap();
        assert_eq!(holders(&tide).await.len(), 1, "the later run has its slot");
        held.settle(Answer::ok()).await.unwrap();
        assert!(holders(&tide).await.is_empty());
    }

    #[tokio::test]
    async fn an_answer_is_not_lost_when_its_handler_is_stopped_while_it_gives_it() {
        let tide = tide("gate.breaker = { failures = 1 }").await;
        let (run, other) = (run(&tide, 1), run(&tide, 2));
        let permit = run.gate("shopify").admit().await.unwrap();
        let (desk, held) = (run.lease().gates().clone(), run.permits()[0].clone());
        // As if the handler timed out while `settle` waits for the gates.
        assert!(held.take());
        drop(Said::new(&desk, &held.permit, Outcome::of(End::Failed(Class::Server))).settle());
        drop(permit);
        assert_eq!(holders(&tide).await.len(), 1, "nothing was said yet");
        assert!(desk.run_once().await, "the worker brings it there");
        assert!(holders(&tide).await.is_empty());
        assert!(other.gate("shopify").admit().await.is_err(), "as what it was: a failure of the service");
    }
}
