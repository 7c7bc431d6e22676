//! Dead letters: what the processor does with one (S0 §4.2 with J10, J11, J19, J21, J22), and what they died of in common.
//!
//! Pure: the store applies what is decided here, each letter in the commit that decides it.

mod cause;

use serde::{Deserialize, Serialize};

pub use self::cause::{Cause, shape};
use crate::failure::Category;
use crate::ids::Seq;
use crate::job::{DeadLetter, Review};
use crate::retry::{Backoff, RetryPolicy};
use crate::time::Timestamp;

/// Event that kinds subscribe to in order to hear that a tenant must authorize again.
pub const REAUTHORIZE_EVENT: &str = "tidegate.reauthorize";
/// Letters that one commit looks at.
pub const PAGE: usize = 100;
/// Time between two runs of the processor, unless a setting says otherwise.
pub const EVERY_MS: i64 = 15 * 60_000;
/// Shortest and longest time that a setting may say: every letter is looked at while it is young enough to run again by itself, also if
/// a run comes late.
pub const EVERY_RANGE_MS: std::ops::RangeInclusive<i64> = 1_000..=RETRY_WITHIN_MS / 2;
/// A line of recoveries that began to die longer ago is not run again by itself.
pub const RETRY_WITHIN_MS: i64 = 3_600_000;
/// How often a line of recoveries is run again by itself.
pub const MAX_AUTO_RETRIES: u32 = 3;
/// Time between two requests to authorize again.
pub const REMIND_MS: i64 = 24 * 3_600_000;
/// A letter that nobody settled for this long is given up.
pub const ABANDON_MS: i64 = 7 * 24 * 3_600_000;

/// What follows a job through its recoveries.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Lineage {
    /// When the first of the line died.
    pub first_died_at: Timestamp,
    /// How often one of the line was run again without a person.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub auto_retries: u32,
    /// When the tenant was last asked to authorize again.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub asked_at: Option<Timestamp>,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde asks so")]
pub(crate) fn is_zero(n: &u32) -> bool {
    *n == 0
}

/// What becomes of a letter.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Action {
    /// It runs again as a new job.
    Retry,
    /// Its tenant is asked to authorize again.
    Ask {
        /// Whether that was asked before.
        again: bool,
    },
    /// It is given up.
    Abandon,
    /// It stays for a person to look at, or waits for its tenant.
    Leave,
}

/// Decides what becomes of a letter whose job died at `died_at`. `may_retry`: see [`allows_retries`].
///
/// Age and number of automatic retries are those of the whole line of recoveries, so that a job that was retried and dies again is
/// no young letter (J22). Giving up goes by the letter itself: whoever recovered it by hand looked at it, and may look again.
pub fn decide(letter: &DeadLetter, died_at: Timestamp, may_retry: bool, now: Timestamp) -> Action {
    if letter.review != Review::PendingReview {
        return Action::Leave;
    }
    if now.since(died_at) > ABANDON_MS {
        return Action::Abandon;
    }
    let age = now.since(letter.first_died_at.unwrap_or(died_at).min(died_at));
    match letter.category {
        Category::TransientRateLimit | Category::TransientNetwork | Category::TransientServer => {
            let young = age < RETRY_WITHIN_MS && letter.auto_retries < MAX_AUTO_RETRIES;
            if young && may_retry { Action::Retry } else { Action::Leave }
        }
        Category::PermanentAuth => match letter.asked_at {
            None => Action::Ask { again: false },
            Some(at) if now.since(at) >= REMIND_MS => Action::Ask { again: true },
            Some(_) => Action::Leave,
        },
        Category::ResourceUnavailable
        | Category::PermanentConfig
        | Category::PermanentPermission
        | Category::InvalidInput
        | Category::LogicError
        | Category::SystemFailure
        | Category::AmbiguousWrite => Action::Leave,
    }
}

/// Whether a job may be run again without a person: not if its policy is `critical` or `none`, or like them allows one attempt
/// (J22). `of_name`: the policies of these names as the registry has them.
pub fn allows_retries(policy: &RetryPolicy, max_attempts: Option<u32>, of_name: [&RetryPolicy; 2]) -> bool {
    let once = policy.max_attempts <= 1 || policy.backoff == Backoff::None || max_attempts == Some(1);
    !once && !of_name.contains(&policy)
}

/// Where the processor stands, for all processes of a store.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Round {
    /// When the next run begins.
    pub next: Timestamp,
    /// The last letter that the run under way looked at; `None`: no run is under way.
    pub after: Option<(Timestamp, Seq)>,
}

impl Round {
    /// Whether there is something to do. A clock that went back must not put a run off for longer than the time between two.
    pub fn is_due(self, every_ms: i64, now: Timestamp) -> bool {
        self.after.is_some() || now >= self.next || self.next.since(now) > every_ms
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::retry::DeadReason;

    const MINUTE: i64 = 60_000;
    const HOUR: i64 = 60 * MINUTE;
    const DAY: i64 = 24 * HOUR;
    const NOW: Timestamp = Timestamp(100 * DAY);

    fn ago(ms: i64) -> Timestamp {
        NOW.plus_ms(-ms)
    }

    fn letter(category: Category) -> DeadLetter {
        DeadLetter::new(category, DeadReason::AttemptsUsed, "E", "message")
    }

    /// Category, age, (automatic retries, first death, asked), whether its policy allows retries; what follows.
    type Row = (Category, i64, (u32, Option<Timestamp>, Option<Timestamp>), bool, Action);

    #[test]
    fn each_letter_gets_what_the_rules_say() {
        use Category::{
            AmbiguousWrite, InvalidInput, LogicError, PermanentAuth, PermanentConfig, PermanentPermission,
            ResourceUnavailable, SystemFailure, TransientNetwork, TransientRateLimit, TransientServer,
        };
        let first = |ms| Some(ago(ms));
        let retried = |n| (n, None, None);
        let fresh = (0, None, None);
        let table: Vec<Row> = vec![
            (TransientNetwork, 0, fresh, true, Action::Retry),
            (TransientServer, 59 * MINUTE, fresh, true, Action::Retry),
            (TransientRateLimit, MINUTE, retried(2), true, Action::Retry),
            (TransientRateLimit, MINUTE, retried(3), true, Action::Leave),
            (TransientNetwork, HOUR, fresh, true, Action::Leave),
            (TransientNetwork, HOUR - 1, fresh, true, Action::Retry),
            (TransientNetwork, MINUTE, (1, first(HOUR), None), true, Action::Leave),
            (TransientNetwork, MINUTE, (1, first(50 * MINUTE), None), true, Action::Retry),
            (TransientNetwork, MINUTE, fresh, false, Action::Leave),
            (TransientNetwork, 7 * DAY, fresh, true, Action::Leave),
            (TransientNetwork, 7 * DAY + 1, fresh, true, Action::Abandon),
            // Recovered by hand and dead again: a person gets another week.
            (TransientNetwork, MINUTE, (0, first(8 * DAY), None), true, Action::Leave),
            (PermanentAuth, 0, fresh, true, Action::Ask { again: false }),
            (PermanentAuth, 6 * DAY, fresh, false, Action::Ask { again: false }),
            (PermanentAuth, 2 * DAY, (0, None, first(DAY - 1)), true, Action::Leave),
            (PermanentAuth, 2 * DAY, (0, None, first(DAY)), true, Action::Ask { again: true }),
            (PermanentAuth, 7 * DAY + 1, (0, None, first(DAY)), true, Action::Abandon),
            (ResourceUnavailable, MINUTE, fresh, true, Action::Leave),
            (PermanentConfig, MINUTE, fresh, true, Action::Leave),
            (PermanentPermission, MINUTE, fresh, true, Action::Leave),
            (InvalidInput, 8 * DAY, fresh, true, Action::Abandon),
            (LogicError, 7 * DAY, fresh, true, Action::Leave),
            (SystemFailure, MINUTE, fresh, true, Action::Leave),
            (AmbiguousWrite, MINUTE, fresh, true, Action::Leave),
        ];
        for (i, (category, age, (auto_retries, first_died_at, asked_at), may_retry, wanted)) in
            table.into_iter().enumerate()
        {
            let letter = DeadLetter { first_died_at, auto_retries, asked_at, ..letter(category) };
            assert_eq!(decide(&letter, ago(age), may_retry, NOW), wanted, "row {i}");
            for review in [Review::ManualResolved, Review::AutoResolved, Review::Abandoned] {
                let settled = DeadLetter { review, ..letter.clone() };
                assert_eq!(decide(&settled, ago(age), may_retry, NOW), Action::Leave, "row {i}, settled");
            }
        }
    }

    #[test]
    fn a_policy_that_allows_one_attempt_is_not_run_again() {
        let named = |name| RetryPolicy::named(name).unwrap();
        let (critical, none) = (named("critical"), named("none"));
        let allows = |policy: &RetryPolicy, max| allows_retries(policy, max, [&critical, &none]);
        for name in RetryPolicy::NAMES {
            assert_eq!(allows(&named(name), None), !["critical", "none"].contains(&name), "{name}");
        }
        assert!(!allows(&named("webhook"), Some(1)), "its job says so");
        assert!(allows(&named("webhook"), Some(2)));
        let changed = named("webhook");
        assert!(!allows_retries(&changed, None, [&changed, &none]), "a registry that redefines `critical`");
    }

    #[test]
    fn a_run_begins_when_it_is_due_and_goes_on_until_it_is_over() {
        let round = Round { next: NOW, after: None };
        assert!(round.is_due(EVERY_MS, NOW) && !round.is_due(EVERY_MS, ago(1)));
        assert!(Round { after: Some((NOW, Seq(1))), ..round }.is_due(EVERY_MS, ago(1)), "under way");
        assert!(round.is_due(EVERY_MS, ago(EVERY_MS + 1)), "a clock that went back");
    }
}
