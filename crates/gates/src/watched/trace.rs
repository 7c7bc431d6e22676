//! The lives of permits: asked, waited, admitted, renewed, settled, expired. The newest of a domain are kept, with their first and
//! newest events, for an hour. No payloads: targets, gates, numbers, holders.

use std::collections::VecDeque;
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use tidegate_core::gates::{
    Because, Call, End, Holder, LeaseEnd, Micros, Never, Permit, Points, SECOND, Target,
};

/// Traces kept per domain.
pub const TRACES: usize = 100;
/// Events kept per trace: the first half of these, and the newest half.
pub const EVENTS: usize = 32;
/// How long a trace is kept after its last event.
pub(crate) const KEPT: Micros = 3_600 * SECOND;

/// The life of one permit, from the first question to the end.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Trace {
    /// By whom.
    pub holder: Holder,
    /// For whom.
    pub target: Arc<Target>,
    /// What it costs.
    pub cost: Points,
    /// 1 is the highest.
    pub priority: u8,
    /// What happened, the oldest first.
    pub events: Vec<Event>,
    /// Events in the middle that were left out.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub left_out: u32,
    /// Until when it lasts without renewal; none before and after it is held.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expires_at: Option<Micros>,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde asks so")]
fn is_zero(n: &u32) -> bool {
    *n == 0
}

/// Something that happened to a permit.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Event {
    /// When, by the gates' clock.
    pub at: Micros,
    /// What.
    #[serde(flatten)]
    pub what: What,
}

/// What happened.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "event", rename_all = "snake_case")]
pub enum What {
    /// It asked for the first time.
    Asked,
    /// It was told to wait.
    Waited {
        /// By this gate.
        gate: Arc<str>,
        /// Why.
        because: Because,
        /// When to ask again.
        retry_at: Micros,
        /// Place in line.
        position: Option<u32>,
    },
    /// It can never pass.
    Refused {
        /// By this gate.
        gate: Arc<str>,
        /// Why.
        because: Never,
    },
    /// The gates did not answer.
    Unanswered,
    /// It was given the permit.
    Admitted {
        /// Number of the admission.
        fence: i64,
        /// Until when it lasts without renewal.
        expires_at: Micros,
    },
    /// It lasts longer.
    Renewed {
        /// Until then.
        expires_at: Micros,
    },
    /// It ended.
    Settled {
        /// How the call ended.
        end: End,
        /// What became of the lease.
        state: LeaseEnd,
    },
    /// It lapsed, or was taken away.
    Expired,
    /// It gave up its place.
    Cancelled,
    /// An operator put it first in line.
    Promoted,
    /// An operator ended its permit.
    ForceReleased,
}

impl What {
    /// In a word.
    pub fn name(&self) -> &'static str {
        match self {
            Self::Asked => "asked",
            Self::Waited { .. } => "waited",
            Self::Refused { .. } => "refused",
            Self::Unanswered => "unanswered",
            Self::Admitted { .. } => "admitted",
            Self::Renewed { .. } => "renewed",
            Self::Settled { .. } => "settled",
            Self::Expired => "expired",
            Self::Cancelled => "cancelled",
            Self::Promoted => "promoted",
            Self::ForceReleased => "released by an operator",
        }
    }

    /// With its numbers, for people; empty where the name says all. `at`: when it happened.
    pub fn detail(&self, at: Micros) -> String {
        let seconds = |us: Micros| format!("{:.3} s", us as f64 / 1e6);
        match self {
            Self::Waited { gate, because, retry_at, position } => {
                let place = position.map(|p| format!(", number {p} in line")).unwrap_or_default();
                format!("{gate}: {because}{place}; again in {}", seconds((retry_at - at).max(0)))
            }
            Self::Refused { gate, because } => format!("{gate}: {because}"),
            Self::Admitted { expires_at, .. } | Self::Renewed { expires_at } => {
                format!("lasts {}", seconds((expires_at - at).max(0)))
            }
            Self::Settled { end, state } => format!("{}, {}", ended(*end), became(*state)),
            Self::Asked
            | Self::Unanswered
            | Self::Expired
            | Self::Cancelled
            | Self::Promoted
            | Self::ForceReleased => String::new(),
        }
    }
}

fn ended(end: End) -> String {
    use tidegate_core::gates::Failure;
    match end {
        End::Ok => "went well".into(),
        End::Throttled { retry_after: None } => "throttled".into(),
        End::Throttled { retry_after: Some(us) } => format!("throttled for {:.1} s", us as f64 / 1e6),
        End::Failed(Failure::Network) => "failed: network".into(),
        End::Failed(Failure::Server) => "failed: server".into(),
        End::Failed(Failure::TimedOut) => "failed: timed out".into(),
        End::Failed(Failure::Request) => "failed: request".into(),
        End::Abandoned => "abandoned".into(),
        End::Unused => "unused".into(),
    }
}

fn became(state: LeaseEnd) -> &'static str {
    match state {
        LeaseEnd::Released => "given back",
        LeaseEnd::Quarantined { .. } => "in quarantine",
        LeaseEnd::Gone => "too late",
    }
}

impl Trace {
    /// When it began.
    pub fn began(&self) -> Micros {
        self.events.first().map_or(0, |e| e.at)
    }

    /// When something last happened.
    pub fn last(&self) -> Micros {
        self.events.last().map_or(0, |e| e.at)
    }

    /// When it was admitted, if it was.
    pub fn admitted(&self) -> Option<Micros> {
        self.events.iter().find(|e| matches!(e.what, What::Admitted { .. })).map(|e| e.at)
    }

    /// Whether nothing more is expected.
    pub fn is_over(&self) -> bool {
        self.events.last().is_some_and(|e| {
            matches!(
                e.what,
                What::Settled { .. }
                    | What::Expired
                    | What::Refused { .. }
                    | What::Cancelled
                    | What::ForceReleased
            )
        })
    }

    /// Ends it if its lease has ended by then.
    pub(crate) fn lapse(&mut self, by: Micros) {
        if let Some(expires_at) = self.expires_at.take_if(|at| *at < by) {
            self.add(expires_at, What::Expired);
        }
    }

    fn add(&mut self, at: Micros, what: What) {
        if self.events.len() >= EVENTS {
            self.events.remove(EVENTS / 2);
            self.left_out += 1;
        }
        // Answers of different clocks may overlap a little; a timeline does not go back.
        self.events.push(Event { at: at.max(self.last()), what });
    }
}

/// The traces of a domain, the oldest first.
#[derive(Debug, Default)]
pub(crate) struct Traces(VecDeque<Trace>);

impl Traces {
    /// Begins a trace. The oldest goes; one that is over rather than one that is not.
    pub(crate) fn begin(&mut self, at: Micros, call: &Call) {
        if self.0.len() >= TRACES {
            let over = self.0.iter().position(Trace::is_over).unwrap_or(0);
            self.0.remove(over);
        }
        self.0.push_back(Trace {
            holder: call.holder,
            target: call.target.clone(),
            cost: call.cost,
            priority: call.priority,
            events: vec![Event { at, what: What::Asked }],
            left_out: 0,
            expires_at: None,
        });
    }

    /// Adds to the newest trace of this holder that is not over. False if there is none.
    pub(crate) fn add(&mut self, at: Micros, holder: &Holder, what: What) -> bool {
        let Some(trace) = self.0.iter_mut().rev().find(|t| t.holder == *holder && !t.is_over()) else {
            return false;
        };
        trace.expires_at = match &what {
            What::Admitted { expires_at, .. } | What::Renewed { expires_at } => Some(*expires_at),
            _ => None,
        };
        trace.add(at, what);
        true
    }

    pub(crate) fn admitted(&mut self, at: Micros, permit: &Permit) -> bool {
        let (fence, expires_at) = (permit.fence, permit.expires_at);
        self.add(at, &permit.holder, What::Admitted { fence, expires_at })
    }

    pub(crate) fn forget_old(&mut self, now: Micros) {
        self.0.retain(|t| t.last() + KEPT > now);
    }

    /// So many, the oldest of them first.
    pub(crate) fn newest(&self, most: usize) -> impl Iterator<Item = &Trace> {
        self.0.iter().skip(self.0.len().saturating_sub(most))
    }

    #[cfg(test)]
    pub(crate) fn all(&self) -> impl Iterator<Item = &Trace> {
        self.0.iter()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn call(n: u64) -> Call {
        Call::new(Arc::new(Target::new("d").unwrap()), Holder::number(n))
    }

    #[test]
    fn the_newest_are_kept_and_those_that_are_over_go_first() {
        let mut traces = Traces::default();
        for n in 0..TRACES as u64 {
            traces.begin(n as i64, &call(n));
        }
        assert!(traces.add(200, &Holder::number(7), What::Expired));
        traces.begin(201, &call(1_000));
        assert!(traces.all().all(|t| t.holder != Holder::number(7)), "it was over");
        traces.begin(202, &call(1_001));
        assert_eq!(traces.all().count(), TRACES);
        assert!(traces.all().all(|t| t.holder != Holder::number(0)), "it was the oldest");
        traces.forget_old(KEPT + 50);
        assert!(traces.all().all(|t| t.last() > 50));
        traces.forget_old(KEPT + 1_000);
        assert_eq!(traces.all().count(), 0);
    }

    #[test]
    fn the_first_and_the_newest_events_are_kept() {
        let mut traces = Traces::default();
        traces.begin(0, &call(1));
        for n in 1..=100 {
            traces.add(n, &Holder::number(1), What::Renewed { expires_at: n + 30 });
        }
        let trace = traces.all().next().unwrap();
        assert_eq!((trace.events.len(), trace.left_out), (EVENTS, 101 - EVENTS as u32));
        assert_eq!((trace.events[1].at, trace.last(), trace.expires_at), (1, 100, Some(130)));
        assert!(trace.events.is_sorted_by_key(|e| e.at));
    }

    #[test]
    fn a_holder_that_asks_again_after_its_end_has_a_trace_of_its_own() {
        let (mut traces, who) = (Traces::default(), Holder::number(1));
        traces.begin(0, &call(1));
        traces.add(5, &who, What::Settled { end: End::Ok, state: LeaseEnd::Released });
        assert!(!traces.add(6, &who, What::Expired), "it is over");
        traces.begin(9, &call(1));
        assert!(traces.add(8, &who, What::Expired));
        let newest = traces.all().last().unwrap();
        assert_eq!((newest.began(), newest.last()), (9, 9), "a timeline does not go back");
    }
}
