//! What a handler holds after its call was admitted, and what it says about how the call ended.

use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};

use tidegate_core::codes;
use tidegate_core::failure::{Category, Failure as Record};
use tidegate_core::gates::{End, Failure as Class, Observed, Outcome, Permit, Points};
use tidegate_core::time::Timestamp;
use tidegate_store::params::Outcome as Verdict;

use super::desk::GateDesk;
use crate::{Error, IntoSpan, Result};

/// Permits of one run that are not settled.
pub(crate) const MOST: usize = 1_000;

/// Where a permit stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Stage {
    /// The handler has it.
    Held,
    /// The handler let go of it without a word.
    Dropped,
    /// It is settled, or on its way.
    Settled,
}

/// A permit in the books of its run.
#[derive(Debug)]
pub(crate) struct Held {
    pub(crate) permit: Permit,
    stage: AtomicU8,
    lost: std::sync::atomic::AtomicBool,
}

impl Held {
    pub(crate) fn new(permit: Permit) -> Self {
        Self { permit, stage: AtomicU8::new(Stage::Held as u8), lost: false.into() }
    }

    /// Whoever gets true settles it, and nobody else.
    pub(crate) fn take(&self) -> bool {
        self.stage.swap(Stage::Settled as u8, Ordering::AcqRel) != Stage::Settled as u8
    }

    fn let_go(&self) {
        // A settled one stays so.
        let (held, dropped) = (Stage::Held as u8, Stage::Dropped as u8);
        let _ = self.stage.compare_exchange(held, dropped, Ordering::AcqRel, Ordering::Acquire);
    }

    pub(crate) fn is_dropped(&self) -> bool {
        self.stage.load(Ordering::Acquire) == Stage::Dropped as u8
    }

    pub(crate) fn is_open(&self) -> bool {
        self.stage.load(Ordering::Acquire) != Stage::Settled as u8
    }

    pub(crate) fn lose(&self) {
        self.lost.store(true, Ordering::Release);
    }
}

/// An admitted call. It is kept alive by the worker. Say how the call ended with [`settle`](Self::settle); what is not settled
/// when the handler asks for the next call counts as answered, and what is left when the run ends is settled by what became of
/// the run.
///
/// ```
/// use tidegate::gates::Answer;
/// # #[derive(serde::Serialize, serde::Deserialize, tidegate::Job)] struct Sync;
/// # async fn call() -> Result<(u32, u32), std::io::Error> { Ok((42, 900)) }
/// async fn sync(_: Sync, cx: tidegate::Context) -> tidegate::Outcome {
///     let permit = cx.gate("shopify").cost(52).admit().await?;
///     let (actual, left) = call().await?;
///     permit.settle(Answer::ok().cost(actual).level(left)).await?;
///     tidegate::done()
/// }
/// ```
#[must_use = "a permit that is dropped at once holds nothing"]
#[derive(Debug)]
pub struct GatePermit {
    held: Arc<Held>,
    desk: Arc<GateDesk>,
}

impl GatePermit {
    pub(crate) fn new(held: Arc<Held>, desk: Arc<GateDesk>) -> Self {
        Self { held, desk }
    }

    /// Number of this admission; a later one of the same key has a larger one. Hand it to a system that can refuse smaller
    /// numbers than it has seen.
    ///
    /// ```
    /// # async fn example(cx: tidegate::Context) -> tidegate::Outcome {
    /// let permit = cx.gate("netsuite").admit().await?;
    /// let fence = permit.fence();
    /// # tidegate::done() }
    /// ```
    pub fn fence(&self) -> i64 {
        self.held.permit.fence
    }

    /// Whether it has lapsed: somebody else may have its slot or its lock.
    ///
    /// ```
    /// # async fn example(cx: tidegate::Context) -> tidegate::Outcome {
    /// let permit = cx.gate("netsuite").admit().await?;
    /// assert!(!permit.is_lost());
    /// # tidegate::done() }
    /// ```
    pub fn is_lost(&self) -> bool {
        self.held.lost.load(Ordering::Acquire)
    }

    /// Says how the call ended.
    ///
    /// ```
    /// use tidegate::gates::{Answer, CallFailure};
    /// # async fn example(cx: tidegate::Context) -> tidegate::Outcome {
    /// let permit = cx.gate("shopify").cost(52).admit().await?;
    /// permit.settle(Answer::throttled().retry_after("30s")).await?;
    /// # tidegate::done() }
    /// ```
    pub async fn settle(self, answer: Answer) -> Result<()> {
        if let Some(wrong) = answer.wrong {
            return Err(wrong);
        }
        if self.held.take() {
            Said::new(&self.desk, &self.held.permit, answer.outcome).settle().await;
        }
        Ok(())
    }
}

/// An answer on its way to the gates. If its handler is stopped meanwhile, the worker brings it there; to settle twice changes
/// nothing.
pub(super) struct Said<'a> {
    desk: &'a GateDesk,
    permit: &'a Permit,
    outcome: Option<Outcome>,
}

impl<'a> Said<'a> {
    pub(super) fn new(desk: &'a GateDesk, permit: &'a Permit, outcome: Outcome) -> Self {
        Self { desk, permit, outcome: Some(outcome) }
    }

    pub(super) async fn settle(mut self) {
        if let Some(outcome) = &self.outcome {
            self.desk.settle(self.permit, outcome).await;
        }
        self.outcome = None;
    }
}

impl Drop for Said<'_> {
    fn drop(&mut self) {
        if let Some(outcome) = self.outcome.take() {
            self.desk.give_back(self.permit.clone(), outcome);
        }
    }
}

impl Drop for GatePermit {
    fn drop(&mut self) {
        self.held.let_go();
    }
}

/// How a call ended, and what its answer said about the provider's bucket.
///
/// ```
/// use tidegate::gates::{Answer, CallFailure};
/// let ok = Answer::ok().cost(42).level(948).capacity(1000).restore_per_s(50);
/// let busy = Answer::throttled().retry_after("30s");
/// let down = Answer::failed(CallFailure::Server);
/// ```
#[derive(Debug, Clone)]
pub struct Answer {
    outcome: Outcome,
    wrong: Option<Error>,
}

macro_rules! ends {
    ($($(#[$doc:meta])* $name:ident => $end:expr;)*) => {
        $(
            $(#[$doc])*
            ///
            /// ```
            #[doc = concat!("let answer = tidegate::gates::Answer::", stringify!($name), "();")]
            /// ```
            pub fn $name() -> Self {
                Self::of($end)
            }
        )*
    };
}

macro_rules! points {
    ($($(#[$doc:meta])* $name:ident => |$outcome:ident, $points:ident| $set:expr;)*) => {
        $(
            $(#[$doc])*
            ///
            /// ```
            #[doc = concat!("let answer = tidegate::gates::Answer::ok().", stringify!($name), "(42);")]
            /// ```
            #[must_use]
            pub fn $name(mut self, points: impl Into<f64>) -> Self {
                let given = points.into();
                match Points::from_f64(given) {
                    Some($points) => {
                        let $outcome = &mut self.outcome;
                        $set;
                    }
                    None => self.wrong = self.wrong.or_else(|| Some(no_points(given))),
                }
                self
            }
        )*
    };
}

pub(crate) fn no_points(given: f64) -> Error {
    Error::new(codes::INVALID_REQUEST, format!("{given} is no number of points (at most {})", Points::MAX))
}

impl Answer {
    fn of(end: End) -> Self {
        Self { outcome: Outcome::of(end), wrong: None }
    }

    ends! {
        /// Answered, and well.
        ok => End::Ok;
        /// Refused by the provider for being too much.
        throttled => End::Throttled { retry_after: None };
        /// Given up; nobody knows whether the provider is still at it.
        abandoned => End::Abandoned;
        /// Never sent: nothing was used.
        unused => End::Unused;
    }

    /// Failed in this way.
    ///
    /// ```
    /// use tidegate::gates::{Answer, CallFailure};
    /// let answer = Answer::failed(CallFailure::Network);
    /// ```
    pub fn failed(how: Class) -> Self {
        Self::of(End::Failed(how))
    }

    /// The provider said to stay away this long; only with [`throttled`](Self::throttled).
    ///
    /// ```
    /// let answer = tidegate::gates::Answer::throttled().retry_after("30s");
    /// ```
    #[must_use]
    pub fn retry_after(mut self, span: impl IntoSpan) -> Self {
        match (span.into_span(), &mut self.outcome.end) {
            (Ok(ms), End::Throttled { retry_after }) => *retry_after = ms.0.checked_mul(1_000),
            (Err(wrong), _) => self.wrong = self.wrong.or(Some(wrong)),
            (Ok(_), _) => {}
        }
        self
    }

    points! {
        /// What the call really cost.
        cost => |outcome, points| outcome.actual = Some(points);
        /// What is left in the provider's bucket.
        level => |outcome, points| outcome.observed.get_or_insert_with(Observed::default).level = Some(points);
        /// The size of the provider's bucket.
        capacity => |outcome, points| outcome.observed.get_or_insert_with(Observed::default).capacity = Some(points);
        /// What comes back per second.
        restore_per_s => |outcome, points| outcome.observed.get_or_insert_with(Observed::default).restore_per_s = Some(points);
    }
}

/// How the calls of a run ended that its handler did not settle, from what became of the run.
pub(crate) fn end_of(verdict: &Verdict, now: Timestamp) -> End {
    match verdict {
        Verdict::Complete(_) | Verdict::Snooze { .. } => End::Ok,
        // Nobody knows how far the call was: a slot stays taken for the set's quarantine.
        Verdict::Release | Verdict::Cancel => End::Abandoned,
        Verdict::Fail(record) => failed(record, now),
    }
}

fn failed(record: &Record, now: Timestamp) -> End {
    match (record.code.as_str(), record.category) {
        ("TIMEOUT", Category::LogicError) => End::Failed(Class::TimedOut),
        ("PANIC" | "ABORTED", Category::LogicError) | (_, Category::SystemFailure) => End::Abandoned,
        (_, Category::TransientNetwork) => End::Failed(Class::Network),
        (_, Category::TransientServer | Category::ResourceUnavailable) => End::Failed(Class::Server),
        (_, Category::TransientRateLimit) => {
            let retry_after = record.retry_at.map(|at| at.since(now).max(0).saturating_mul(1_000));
            End::Throttled { retry_after }
        }
        (
            _,
            Category::PermanentAuth
            | Category::PermanentConfig
            | Category::PermanentPermission
            | Category::InvalidInput
            | Category::LogicError
            | Category::AmbiguousWrite,
        ) => End::Failed(Class::Request),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_permit_is_settled_once_whoever_comes_first() {
        let target = Arc::new(tidegate_core::gates::Target::new("d").unwrap());
        let holder = tidegate_core::gates::Holder::number(1);
        let (fence, cost) = (1, Points::ONE);
        let held =
            Held::new(Permit { target, holder, fence, cost, admitted_at: 0, use_by: 0, expires_at: 0 });
        held.let_go();
        assert!(held.is_dropped() && held.is_open());
        assert!(held.take() && !held.take());
        held.let_go();
        assert!(!held.is_dropped() && !held.is_open());
    }

    #[test]
    fn what_became_of_a_run_says_how_its_calls_ended() {
        let now = Timestamp(1_000);
        let fail = |category, code: &str| Verdict::Fail(Record::new(category, code.to_owned(), "x"));
        for (verdict, end) in [
            (Verdict::Complete(None), End::Ok),
            (Verdict::Release, End::Abandoned),
            (Verdict::Cancel, End::Abandoned),
            (fail(Category::LogicError, "TIMEOUT"), End::Failed(Class::TimedOut)),
            (fail(Category::LogicError, "PANIC"), End::Abandoned),
            (fail(Category::TransientNetwork, "ECONNRESET"), End::Failed(Class::Network)),
            (fail(Category::TransientServer, "HTTP_503"), End::Failed(Class::Server)),
            (fail(Category::TransientRateLimit, "RATE_LIMITED"), End::Throttled { retry_after: None }),
            (fail(Category::InvalidInput, "NO"), End::Failed(Class::Request)),
        ] {
            assert_eq!(end_of(&verdict, now), end, "{verdict:?}");
        }
        let mut told = Record::new(Category::TransientRateLimit, "RATE_LIMITED", "x");
        told.retry_at = Some(now.plus_ms(30));
        assert_eq!(end_of(&Verdict::Fail(told), now), End::Throttled { retry_after: Some(30_000) });
    }
}
