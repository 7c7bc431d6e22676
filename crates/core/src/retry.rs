//! Retry decisions: after a failure, when to try again, or that the job is dead.

use serde::{Deserialize, Serialize};

mod table;

pub use self::table::{Spread, table};
use crate::failure::{Category, Failure};
use crate::ids::ConnectorName;
use crate::limits;
use crate::policies::Policies;
use crate::seed::Seed;
use crate::time::{Millis, Timestamp};

/// How the delay grows with the number of failures.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case", deny_unknown_fields)]
pub enum Backoff {
    /// `base × factor^n`, at most `cap`.
    Exponential {
        /// Delay after the first failure.
        base_ms: i64,
        /// Growth per failure.
        factor: f64,
        /// Largest delay.
        cap_ms: i64,
    },
    /// The same delay each time.
    Fixed {
        /// The delay.
        delay_ms: i64,
    },
    /// `step × (n + 1)`, at most `cap`.
    Linear {
        /// Delay after the first failure, and growth per failure.
        step_ms: i64,
        /// Largest delay.
        cap_ms: i64,
    },
    /// At once.
    Immediate,
    /// Never again: the first failure is the last.
    None,
}

/// How the delay is spread, so that many failures do not come back together.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Jitter {
    /// Anywhere from 0 to the delay.
    Full,
    /// Half the delay, plus anywhere from 0 to the other half.
    Equal,
    /// The delay, plus up to a tenth.
    PlusTenth,
    /// Exactly the delay.
    None,
}

/// A retry policy. `max_attempts` is the total, the first attempt included (J7).
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RetryPolicy {
    /// Attempts in all.
    pub max_attempts: u32,
    /// Growth of the delay.
    pub backoff: Backoff,
    /// Spread of the delay.
    pub jitter: Jitter,
    /// If not empty, only failures with one of these codes are tried again.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub retry_on: Vec<String>,
    /// Failures with one of these codes are never tried again.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub no_retry_on: Vec<String>,
}

impl Backoff {
    /// Name and length of the first delay, and the cap, if the cap is the smaller one: nothing would ever grow.
    fn is_capped_from_the_start(&self) -> Option<(&'static str, i64, i64)> {
        let (first, first_ms, cap_ms) = match *self {
            Self::Exponential { base_ms, cap_ms, .. } => ("base", base_ms, cap_ms),
            Self::Linear { step_ms, cap_ms } => ("step", step_ms, cap_ms),
            Self::Fixed { .. } | Self::Immediate | Self::None => return None,
        };
        (first_ms > cap_ms).then_some((first, first_ms, cap_ms))
    }
}

impl RetryPolicy {
    fn plain(max_attempts: u32, backoff: Backoff, jitter: Jitter) -> Self {
        Self { max_attempts, backoff, jitter, retry_on: vec![], no_retry_on: vec![] }
    }

    /// Never tries again.
    pub fn none() -> Self {
        Self::plain(1, Backoff::None, Jitter::None)
    }

    /// Three attempts, exponential from 2 s: what queues use that name nothing (J12).
    pub fn standard() -> Self {
        Self::plain(
            3,
            Backoff::Exponential { base_ms: 2_000, factor: 2.0, cap_ms: 3_600_000 },
            Jitter::PlusTenth,
        )
    }

    /// The policy with this name, of those that ship (S1 §3.2).
    pub fn named(name: &str) -> Option<Self> {
        let exponential = |base_ms, cap_ms| Backoff::Exponential { base_ms, factor: 2.0, cap_ms };
        let codes = |list: &[&str]| list.iter().map(|s| (*s).to_owned()).collect();
        Some(match name {
            "standard" => Self::standard(),
            "none" => Self::none(),
            "critical" => Self::plain(1, Backoff::Fixed { delay_ms: 0 }, Jitter::None),
            "external_api" => Self {
                retry_on: codes(&["ECONNRESET", "ETIMEDOUT", "RATE_LIMITED"]),
                no_retry_on: codes(&["INVALID_TOKEN", "NOT_FOUND"]),
                ..Self::plain(5, exponential(1_000, 60_000), Jitter::PlusTenth)
            },
            "database" => Self {
                retry_on: codes(&["LOCK_TIMEOUT", "DEADLOCK"]),
                no_retry_on: codes(&["CONSTRAINT_VIOLATION"]),
                ..Self::plain(3, Backoff::Fixed { delay_ms: 5_000 }, Jitter::None)
            },
            "webhook" => Self::plain(5, exponential(30_000, 3_600_000), Jitter::PlusTenth),
            "gamification" => Self::plain(3, exponential(2_000, 3_600_000), Jitter::PlusTenth),
            _ => return None,
        })
    }

    /// Names that [`RetryPolicy::named`] knows.
    pub const NAMES: [&str; 7] =
        ["standard", "none", "critical", "external_api", "database", "webhook", "gamification"];

    /// The policy of a category (S0 §2.2, J5, J7, J18); `None` where the kind or its queue decides.
    pub fn of_category(category: Category) -> Option<Self> {
        let exponential = |base_ms, cap_ms| Backoff::Exponential { base_ms, factor: 2.0, cap_ms };
        match category {
            Category::TransientNetwork => Some(Self::plain(6, exponential(1_000, 30_000), Jitter::Full)),
            Category::TransientRateLimit => Some(Self::plain(11, exponential(5_000, 60_000), Jitter::Equal)),
            Category::TransientServer | Category::ResourceUnavailable => {
                Some(Self::plain(4, exponential(2_000, 30_000), Jitter::Full))
            }
            Category::PermanentAuth
            | Category::PermanentConfig
            | Category::PermanentPermission
            | Category::InvalidInput
            | Category::SystemFailure
            | Category::AmbiguousWrite => Some(Self::none()),
            Category::LogicError => None,
        }
    }

    /// Says what is wrong with the policy, if anything.
    pub fn check(&self) -> Result<(), String> {
        self.faults().into_iter().next().map_or(Ok(()), |(_, why)| Err(why))
    }

    /// Everything that is wrong with the policy, with the field it is about.
    pub fn faults(&self) -> Vec<(&'static str, String)> {
        let mut faults = vec![];
        if !(1..=limits::MAX_ATTEMPTS).contains(&self.max_attempts) {
            faults.push((
                "max_attempts",
                format!("max_attempts must be between 1 and {}", limits::MAX_ATTEMPTS),
            ));
        }
        let spans: &[i64] = match &self.backoff {
            Backoff::Exponential { base_ms, factor, cap_ms } => {
                if !(1.0..=100.0).contains(factor) {
                    faults.push(("backoff", "factor must be between 1 and 100".into()));
                }
                &[*base_ms, *cap_ms]
            }
            Backoff::Linear { step_ms, cap_ms } => &[*step_ms, *cap_ms],
            Backoff::Fixed { delay_ms } => &[*delay_ms],
            Backoff::Immediate | Backoff::None => &[],
        };
        if spans.iter().any(|ms| !(0..=limits::MAX_DELAY_MS).contains(ms)) {
            faults.push(("backoff", "delays must be between 0 and ten years".into()));
        }
        for (field, list) in [("retry_on", &self.retry_on), ("no_retry_on", &self.no_retry_on)] {
            if list.len() > limits::MAX_KIND_LIST
                || list.iter().any(|code| code.len() > limits::MAX_NAME_BYTES)
            {
                let most = limits::MAX_KIND_LIST;
                faults.push((field, format!("{field} must have at most {most} codes of up to 128 bytes")));
            }
        }
        faults
    }

    /// What cannot be meant, with the field: asked of what somebody writes into a document now, and not of what is kept, which goes on as it was.
    pub fn doubts(&self) -> Vec<(&'static str, String)> {
        let mut doubts = vec![];
        if let Some((first, first_ms, cap_ms)) = self.backoff.is_capped_from_the_start() {
            let (from, cap) = (Millis(first_ms), Millis(cap_ms));
            doubts.push((
                "backoff",
                format!("the first delay ({first}, {from}) is above the largest (cap, {cap}): raise cap or lower {first}"),
            ));
        }
        for (field, list) in [("retry_on", &self.retry_on), ("no_retry_on", &self.no_retry_on)] {
            for category in list.iter().filter_map(|code| Category::parse(code)) {
                let category = category.as_str();
                doubts.push((
                    field,
                    format!(
                        "{category} is a category, and {field} lists codes like ETIMEDOUT; how a category is retried is said in `[categories]`"
                    ),
                ));
            }
        }
        for code in self.retry_on.iter().filter(|code| self.no_retry_on.contains(code)) {
            doubts.push(("no_retry_on", format!("{code} is in retry_on as well: leave one of them out")));
        }
        doubts
    }

    /// Delay after the `failures`-th failure (1 is the first) before jitter and cap, and the cap.
    fn raw(&self, failures: u32, factor: f64) -> (f64, i64) {
        let n = failures.saturating_sub(1);
        let (raw, cap) = match &self.backoff {
            Backoff::Exponential { base_ms, factor, cap_ms } => {
                (*base_ms as f64 * factor.powi(n.min(1_000) as i32), *cap_ms)
            }
            Backoff::Fixed { delay_ms } => (*delay_ms as f64, limits::MAX_DELAY_MS),
            Backoff::Linear { step_ms, cap_ms } => (*step_ms as f64 * f64::from(n + 1), *cap_ms),
            Backoff::Immediate | Backoff::None => (0.0, 0),
        };
        (raw * factor, cap)
    }

    /// Delay after the `failures`-th failure (1 is the first), with jitter. The platform's factor stretches the delay before
    /// it is capped (J5).
    pub fn delay_ms(&self, failures: u32, factor: f64, seed: &mut Seed) -> i64 {
        let (raw, cap) = self.raw(failures, factor);
        let capped = raw.min(cap as f64);
        let spread = match self.jitter {
            Jitter::Full => seed.unit() * capped,
            Jitter::Equal => capped / 2.0 + seed.unit() * capped / 2.0,
            // Added before the cap (J8), so a capped delay stays at its cap.
            Jitter::PlusTenth => (raw + seed.unit() * 0.1 * raw).min(cap as f64),
            Jitter::None => capped,
        };
        (spread as i64).clamp(0, limits::MAX_DELAY_MS)
    }
}

/// What to do after a failure.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RetryDecision {
    /// Try again then.
    At(Timestamp),
    /// No more attempts.
    Dead(DeadReason),
}

/// Why there is no further attempt.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum DeadReason {
    /// The attempts are used up.
    AttemptsUsed,
    /// The category is permanent.
    Permanent,
    /// The policy's lists of codes exclude it.
    NotRetryable,
    /// The process died three times while only this job was suspect.
    Poison,
    /// It was snoozed too often.
    SnoozedTooOften,
    /// A job that it waited for did not complete.
    Dependency,
}

impl DeadReason {
    /// In words, to follow "dead because".
    pub fn sentence(self) -> &'static str {
        match self {
            Self::AttemptsUsed => "its attempts are used up",
            Self::Permanent => "this failure cannot heal by itself",
            Self::NotRetryable => "its policy does not retry this error",
            Self::Poison => "its process died each time it ran",
            Self::SnoozedTooOften => "it was snoozed too often",
            Self::Dependency => "a job it waited for did not complete",
        }
    }
}

/// What is known about a job when an attempt has failed.
#[derive(Debug)]
pub struct FailedAttempt<'a> {
    /// The failure.
    pub failure: &'a Failure,
    /// Counted failures of all categories, this one included.
    pub failures: u32,
    /// Failures of this category, this one included.
    pub failures_of_category: u32,
    /// Policy that the job or its kind names; it wins over the category's (J18).
    pub own_policy: Option<&'a RetryPolicy>,
    /// Policy of the queue, for categories without one.
    pub queue_policy: &'a RetryPolicy,
    /// Cap on the sum over categories, if the job or its kind names one.
    pub max_attempts: Option<u32>,
    /// Policies of the categories, and factors of the platforms.
    pub policies: &'a Policies,
    /// The API that is called.
    pub connector: Option<&'a ConnectorName>,
}

/// A delay that a server named and that is not believed, in words (J8).
pub fn disbelieved(failure: &Failure, now: Timestamp) -> Option<String> {
    let named = failure.retry_at?.since(now);
    if named > limits::MAX_SERVER_DELAY_MS {
        let hours = named / 3_600_000;
        return Some(format!("the server named a delay of {hours} h, which is not believed"));
    }
    (named < 0).then(|| "the server named a time in the past, which is not believed".to_owned())
}

/// Decides what follows a failure (J3, J8, J18).
pub fn decide(attempt: &FailedAttempt<'_>, now: Timestamp, seed: &mut Seed) -> RetryDecision {
    let failure = attempt.failure;
    let of_category = attempt.policies.of_category(failure.category);
    if of_category.as_ref().is_some_and(|p| p.backoff == Backoff::None) {
        return RetryDecision::Dead(DeadReason::Permanent);
    }
    let (policy, counted) = match (attempt.own_policy, of_category.as_deref()) {
        (Some(own), _) => (own, attempt.failures),
        (None, Some(category)) => (category, attempt.failures_of_category),
        (None, None) => (attempt.queue_policy, attempt.failures),
    };
    let listed = |list: &[String]| list.contains(&failure.code);
    if listed(&policy.no_retry_on) || !(policy.retry_on.is_empty() || listed(&policy.retry_on)) {
        return RetryDecision::Dead(DeadReason::NotRetryable);
    }
    let capped = attempt.max_attempts.is_some_and(|max| attempt.failures >= max);
    if capped || counted >= policy.max_attempts || policy.backoff == Backoff::None {
        return RetryDecision::Dead(DeadReason::AttemptsUsed);
    }
    let delay = policy.delay_ms(counted, attempt.policies.factor(attempt.connector), seed);
    let named = failure.retry_at.map_or(0, |t| t.since(now));
    if named > 0 && named <= limits::MAX_SERVER_DELAY_MS {
        // Jitter goes above what the server named, never below.
        let spread = (seed.unit() * 0.1 * named as f64) as i64;
        return RetryDecision::At(now.plus_ms((named + spread).max(delay)));
    }
    RetryDecision::At(now.plus_ms(delay))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn attempt<'a>(failure: &'a Failure, n: u32, queue: &'a RetryPolicy) -> FailedAttempt<'a> {
        FailedAttempt {
            failure,
            failures: n,
            failures_of_category: n,
            own_policy: None,
            queue_policy: queue,
            max_attempts: None,
            policies: &SHIPPED,
            connector: None,
        }
    }

    static SHIPPED: Policies = Policies {
        named: std::collections::BTreeMap::new(),
        categories: std::collections::BTreeMap::new(),
        platforms: std::collections::BTreeMap::new(),
    };

    const NOW: Timestamp = Timestamp(1_000_000);

    #[test]
    fn each_category_has_its_own_policy_and_counter() {
        let queue = RetryPolicy::standard();
        let net = Failure::new(Category::TransientNetwork, "ECONNRESET", "reset");
        for n in 1..6 {
            assert!(
                matches!(decide(&attempt(&net, n, &queue), NOW, &mut Seed::new(1)), RetryDecision::At(_)),
                "{n}"
            );
        }
        let sixth = decide(&attempt(&net, 6, &queue), NOW, &mut Seed::new(1));
        assert_eq!(sixth, RetryDecision::Dead(DeadReason::AttemptsUsed));
        let mut mixed = attempt(&net, 9, &queue);
        mixed.failures_of_category = 2;
        assert!(matches!(decide(&mixed, NOW, &mut Seed::new(1)), RetryDecision::At(_)));
        mixed.max_attempts = Some(9);
        assert_eq!(decide(&mixed, NOW, &mut Seed::new(1)), RetryDecision::Dead(DeadReason::AttemptsUsed));
    }

    #[test]
    fn permanent_failures_die_at_once_whatever_the_policy() {
        let queue = RetryPolicy::standard();
        let auth = Failure::new(Category::PermanentAuth, "invalid_grant", "revoked");
        let mut a = attempt(&auth, 1, &queue);
        a.own_policy = Some(&queue);
        assert_eq!(decide(&a, NOW, &mut Seed::new(1)), RetryDecision::Dead(DeadReason::Permanent));
    }

    #[test]
    fn lists_of_codes_decide() {
        let policy = RetryPolicy::named("external_api").unwrap();
        let mut f = Failure::new(Category::LogicError, "NOT_FOUND", "");
        let verdict = |f: &Failure| decide(&attempt(f, 1, &policy), NOW, &mut Seed::new(1));
        assert_eq!(verdict(&f), RetryDecision::Dead(DeadReason::NotRetryable));
        f.code = "OTHER".into();
        assert_eq!(verdict(&f), RetryDecision::Dead(DeadReason::NotRetryable));
        f.code = "ETIMEDOUT".into();
        assert!(matches!(verdict(&f), RetryDecision::At(_)));
    }

    #[test]
    fn a_policy_that_cannot_be_meant_is_refused_with_the_field() {
        let doubts = |change: &dyn Fn(&mut RetryPolicy)| {
            let mut policy = RetryPolicy::standard();
            change(&mut policy);
            assert_eq!(policy.faults(), [], "one that is kept goes on");
            let said = policy.doubts();
            assert_eq!(said.len(), 1, "{said:?}");
            format!("{}: {}", said[0].0, said[0].1)
        };
        let capped = doubts(&|p| {
            p.backoff = Backoff::Exponential { base_ms: 60_000, factor: 2.0, cap_ms: 1_000 };
        });
        assert_eq!(
            capped,
            "backoff: the first delay (base, 1 m) is above the largest (cap, 1.0 s): raise cap or lower base"
        );
        let step = doubts(&|p| p.backoff = Backoff::Linear { step_ms: 2_000, cap_ms: 1_000 });
        assert!(step.starts_with("backoff: the first delay (step, 2.0 s)"), "{step}");
        let category = doubts(&|p| p.retry_on = vec!["transient_network".into(), "ETIMEDOUT".into()]);
        assert!(category.starts_with("retry_on: TRANSIENT_NETWORK is a category"), "{category}");
        let both = doubts(&|p| {
            (p.retry_on, p.no_retry_on) = (vec!["A".into(), "B".into()], vec!["B".into()]);
        });
        assert_eq!(both, "no_retry_on: B is in retry_on as well: leave one of them out");
        for name in RetryPolicy::NAMES {
            assert_eq!(RetryPolicy::named(name).unwrap().doubts(), [], "{name}");
        }
        for policy in Category::ALL.into_iter().filter_map(RetryPolicy::of_category) {
            assert_eq!(policy.doubts(), []);
        }
    }

    #[test]
    fn a_server_named_delay_is_a_floor_and_an_absurd_one_is_ignored() {
        let queue = RetryPolicy::standard();
        let mut f = Failure::new(Category::TransientRateLimit, "RATE_LIMITED", "");
        for seed in 0..200 {
            f.retry_at = Some(NOW.plus_ms(90_000));
            let RetryDecision::At(t) = decide(&attempt(&f, 1, &queue), NOW, &mut Seed::new(seed)) else {
                panic!()
            };
            assert!((90_000..=99_000).contains(&t.since(NOW)), "{}", t.since(NOW));
            for absurd in [NOW.plus_ms(25 * 3_600_000), NOW.plus_ms(-5)] {
                f.retry_at = Some(absurd);
                let RetryDecision::At(t) = decide(&attempt(&f, 1, &queue), NOW, &mut Seed::new(seed)) else {
                    panic!()
                };
                assert!((2_500..=5_000).contains(&t.since(NOW)), "{}", t.since(NOW));
            }
        }
    }

    #[test]
    fn jitters_stay_in_their_ranges() {
        let mut p = RetryPolicy::standard();
        p.backoff = Backoff::Exponential { base_ms: 1_000, factor: 2.0, cap_ms: 30_000 };
        let mut seed = Seed::new(7);
        for (jitter, range) in [
            (Jitter::Full, 0..=4_000),
            (Jitter::Equal, 2_000..=4_000),
            (Jitter::PlusTenth, 4_000..=4_400),
            (Jitter::None, 4_000..=4_000),
        ] {
            p.jitter = jitter;
            for _ in 0..500 {
                let d = p.delay_ms(3, 1.0, &mut seed);
                assert!(range.contains(&d), "{jitter:?} {d}");
                assert!(p.delay_ms(60, 1.0, &mut seed) <= 30_000);
            }
        }
        p.jitter = Jitter::None;
        p.backoff = Backoff::Linear { step_ms: 500, cap_ms: 1_200 };
        assert_eq!([1, 2, 3].map(|n| p.delay_ms(n, 1.0, &mut seed)), [500, 1_000, 1_200]);
    }

    #[test]
    fn every_shipped_policy_passes_its_own_check() {
        for name in RetryPolicy::NAMES {
            RetryPolicy::named(name).unwrap().check().unwrap();
        }
        for c in Category::ALL {
            if let Some(p) = RetryPolicy::of_category(c) {
                p.check().unwrap();
            }
        }
    }

    #[test]
    fn a_kinds_own_policy_wins_and_counts_all_categories_together() {
        let queue = RetryPolicy::standard();
        let own = RetryPolicy::named("webhook").unwrap();
        let network = Failure::new(Category::TransientNetwork, "ECONNRESET", "");
        let mut a = attempt(&network, 5, &queue);
        a.failures_of_category = 1;
        assert!(
            matches!(decide(&a, NOW, &mut Seed::new(1)), RetryDecision::At(_)),
            "the category allows six"
        );
        a.own_policy = Some(&own);
        assert_eq!(decide(&a, NOW, &mut Seed::new(1)), RetryDecision::Dead(DeadReason::AttemptsUsed));
        a.failures = 4;
        let RetryDecision::At(at) = decide(&a, NOW, &mut Seed::new(1)) else { panic!() };
        assert!(at.since(NOW) >= 30_000 * 8, "its own delays: {}", at.since(NOW));
    }

    #[test]
    fn a_registry_decides_for_categories_and_platforms() {
        let queue = RetryPolicy::standard();
        let mut policies = Policies::default();
        policies.categories.insert(
            Category::PermanentConfig,
            RetryPolicy::plain(2, Backoff::Fixed { delay_ms: 1_000 }, Jitter::None),
        );
        let wrong = Failure::new(Category::PermanentConfig, "NO_CLIENT", "");
        let meli = ConnectorName::new("mercadolibre").unwrap();
        let mut a = attempt(&wrong, 1, &queue);
        assert_eq!(decide(&a, NOW, &mut Seed::new(1)), RetryDecision::Dead(DeadReason::Permanent));
        a.policies = &policies;
        a.connector = Some(&meli);
        assert_eq!(decide(&a, NOW, &mut Seed::new(1)), RetryDecision::At(NOW.plus_ms(1_500)));
    }

    #[test]
    fn a_delay_that_is_not_believed_is_said() {
        let mut f = Failure::new(Category::TransientRateLimit, "RATE_LIMITED", "");
        assert_eq!(disbelieved(&f, NOW), None);
        f.retry_at = Some(NOW.plus_ms(60_000));
        assert_eq!(disbelieved(&f, NOW), None);
        f.retry_at = Some(NOW.plus_ms(25 * 3_600_000));
        assert!(disbelieved(&f, NOW).unwrap().contains("25 h"));
        f.retry_at = Some(NOW.plus_ms(-1));
        assert!(disbelieved(&f, NOW).unwrap().contains("past"));
    }
}
