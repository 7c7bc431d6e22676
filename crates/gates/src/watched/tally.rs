//! What is counted: of a domain, of a tenant; in all, and lately.

use serde::{Deserialize, Serialize};
use tidegate_core::gates::{End, Failure, Micros, SECOND};

use super::histogram::Histogram;

/// Half of what counts as lately: numbers of the last 30 to 60 minutes.
pub(crate) const HALF: Micros = 1_800 * SECOND;

macro_rules! counts {
    ($($(#[$doc:meta])* $name:ident,)*) => {
        /// Numbers of events. `reserved` = `released` + `quarantined` + `expired` + what is held now.
        #[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
        #[serde(default)]
        pub struct Counts {
            $($(#[$doc])* #[serde(skip_serializing_if = "is_zero")] pub $name: u64,)*
        }

        impl Counts {
            pub(crate) fn merge(&mut self, other: &Self) {
                $(self.$name = self.$name.saturating_add(other.$name);)*
            }

            /// Every number with its name.
            pub fn named(&self) -> impl Iterator<Item = (&'static str, u64)> {
                [$((stringify!($name), self.$name)),*].into_iter()
            }
        }
    };
}

counts! {
    /// Questions, also those of one call again.
    asked,
    /// Permits.
    reserved,
    /// Permits that were given back.
    released,
    /// Permits that went into quarantine.
    quarantined,
    /// Permits that lapsed, or were taken away.
    expired,
    /// Answers that a call must wait.
    waits,
    /// Permits of calls that had to wait.
    waited,
    /// Calls that can never pass.
    refused,
    /// Questions that got no answer.
    unanswered,
    /// Renewals.
    renewed,
    /// Places that were given up.
    cancelled,
    /// Waiters that an operator put first.
    promoted,
    /// Calls that went well, or whose request was at fault.
    went_well,
    /// Calls that the provider refused for being too much.
    throttled,
    /// Calls that failed.
    failed,
    /// Calls of which nobody knows how they ended.
    abandoned,
    /// Permits for calls that were never sent.
    unused,
    /// Calls that had to wait, and ended.
    retried,
    /// Of these, those that went well.
    retried_well,
    /// Permits that another process was given.
    adopted,
    /// Breakers that opened.
    breakers_opened,
    /// Of these, those that opened while the service was well.
    breakers_false,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde asks so")]
fn is_zero(n: &u64) -> bool {
    *n == 0
}

impl Counts {
    pub(crate) fn ended(&mut self, end: End, waited: bool) {
        let well = matches!(end, End::Ok | End::Failed(Failure::Request));
        match end {
            End::Ok | End::Failed(Failure::Request) => self.went_well += 1,
            End::Throttled { .. } => self.throttled += 1,
            End::Failed(Failure::Network | Failure::Server | Failure::TimedOut) => self.failed += 1,
            End::Abandoned => self.abandoned += 1,
            End::Unused => self.unused += 1,
        }
        if waited && end != End::Unused {
            self.retried += 1;
            self.retried_well += u64::from(well);
        }
    }
}

/// Numbers with durations.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Tally {
    /// Numbers.
    pub counts: Counts,
    /// How long questions took to be answered.
    pub decisions: Histogram,
    /// How long calls waited from their first question to their permit; those that did not wait are left out.
    pub waits: Histogram,
}

impl Tally {
    pub(crate) fn merge(&mut self, other: &Self) {
        self.counts.merge(&other.counts);
        self.decisions.merge(&other.decisions);
        self.waits.merge(&other.waits);
    }
}

/// In all, and in two halves of what is lately.
#[derive(Debug, Default)]
pub(crate) struct Ages {
    pub(crate) total: Counts,
    newer: Tally,
    older: Tally,
    turned: Micros,
}

impl Ages {
    pub(crate) fn add(&mut self, now: Micros, new: &Tally) {
        self.turn(now);
        self.total.merge(&new.counts);
        self.newer.merge(new);
    }

    fn turn(&mut self, now: Micros) {
        if self.turned == 0 {
            self.turned = now;
        }
        let age = now - self.turned;
        if age >= HALF {
            let newer = std::mem::take(&mut self.newer);
            self.older = if age < 2 * HALF { newer } else { Tally::default() };
            self.turned = now;
        }
    }

    pub(crate) fn recent(&mut self, now: Micros) -> Tally {
        self.turn(now);
        let mut all = self.older.clone();
        all.merge(&self.newer);
        all
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lately_ends_after_an_hour_and_the_total_does_not() {
        let one = Tally { counts: Counts { asked: 1, ..Counts::default() }, ..Tally::default() };
        let mut ages = Ages::default();
        ages.add(1, &one);
        ages.add(HALF + 1, &one);
        assert_eq!(ages.recent(2 * HALF).counts.asked, 2);
        assert_eq!(ages.recent(2 * HALF + 1).counts.asked, 1);
        assert_eq!((ages.recent(9 * HALF).counts.asked, ages.total.asked), (0, 2));
    }

    #[test]
    fn an_end_is_counted_by_what_it_says_about_the_service() {
        let mut counts = Counts::default();
        counts.ended(End::Ok, true);
        counts.ended(End::Failed(Failure::Request), false);
        counts.ended(End::Failed(Failure::TimedOut), true);
        counts.ended(End::Throttled { retry_after: None }, true);
        counts.ended(End::Unused, true);
        let Counts { went_well, failed, throttled, unused, retried, retried_well, .. } = counts;
        assert_eq!((went_well, failed, throttled, unused, retried, retried_well), (2, 1, 1, 1, 3, 1));
    }
}
