//! More demand than supply: who is served when, and how much of what is allowed is used.

use std::collections::BTreeMap;
use std::sync::Arc;

use tidegate_core::gates::{
    Admission, Call, Compiled, End, GateSet, Holder, Micros, Outcome, Part, Partition, Permit, Points,
    SECOND, Start, Target,
};
use tidegate_core::seed::Seed;

use super::Agenda;

/// Calls of one kind that arrive steadily.
#[derive(Debug, Clone)]
pub struct Stream {
    /// Its tenant.
    pub tenant: String,
    /// 1 is the highest.
    pub priority: u8,
    /// Time between two arrivals.
    pub every: Micros,
    /// What each costs.
    pub cost: Points,
}

/// One call's way.
#[derive(Debug, Clone)]
pub struct Served {
    /// Number of its stream.
    pub stream: usize,
    /// When it came.
    pub arrived: Micros,
    /// When it was admitted; none if it still waits at the end.
    pub admitted: Option<Micros>,
}

/// What was seen.
#[derive(Debug, Clone)]
pub struct Seen {
    /// All calls, in the order of arrival.
    pub calls: Vec<Served>,
    /// Time that calls ran, added up, inside the measured span.
    pub busy: Micros,
}

#[derive(Debug, Clone, Copy)]
enum Event {
    Arrive(usize),
    Ask(u64, u32),
    Done(u64),
}

struct Waiting {
    call: Call,
    asks: u32,
    permit: Option<Permit>,
    started: Micros,
}

/// Runs streams against gates for `lasts`. Every call runs for `hold`; those who are woken ask within a millisecond.
///
/// # Panics
///
/// If the set is not acceptable, or a call can never pass.
pub fn run(seed: u64, set: GateSet, streams: &[Stream], hold: Micros, lasts: Micros) -> Seen {
    let set = Compiled::new(set).expect("the set is acceptable");
    let mut rng = Seed::new(seed);
    let mut state = Partition::new(&set, Start::Full);
    let start = 1_000 * SECOND;
    let mut agenda = Agenda::new(start);
    let targets: Vec<Arc<Target>> = streams.iter().map(|s| target(&s.tenant)).collect();
    let mut calls: Vec<Served> = Vec::new();
    let mut waiting: BTreeMap<u64, Waiting> = BTreeMap::new();
    let mut busy = 0;
    for (n, stream) in streams.iter().enumerate() {
        agenda.plan(start + rng.below(stream.every as u64) as Micros, Event::Arrive(n));
    }
    let end = start + lasts;
    while let Some(event) = agenda.next(end) {
        let now = agenda.now;
        let woken = match event {
            Event::Arrive(n) => {
                let id = calls.len() as u64;
                let stream = &streams[n];
                calls.push(Served { stream: n, arrived: now, admitted: None });
                let call = Call::new(targets[n].clone(), Holder::number(id))
                    .cost(stream.cost)
                    .priority(stream.priority);
                waiting.insert(id, Waiting { call, asks: 0, permit: None, started: 0 });
                agenda.plan(now, Event::Ask(id, 0));
                agenda.plan(now + stream.every, Event::Arrive(n));
                Vec::new()
            }
            Event::Ask(id, asks) => {
                let Some(one) = waiting.get_mut(&id).filter(|w| w.asks == asks && w.permit.is_none()) else {
                    continue;
                };
                one.asks += 1;
                match state.admit(&set, now, &one.call) {
                    Admission::Admitted(a) => {
                        calls[id as usize].admitted = Some(now);
                        one.permit = Some(a.permit);
                        one.started = now;
                        agenda.plan(now + hold, Event::Done(id));
                        a.woken
                    }
                    Admission::Wait(wait) => {
                        agenda.plan(wait.retry_at, Event::Ask(id, one.asks));
                        Vec::new()
                    }
                    Admission::Refused(refused) => unreachable!("{refused:?}"),
                }
            }
            Event::Done(id) => {
                let Some(Waiting { permit: Some(permit), started, .. }) = waiting.remove(&id) else {
                    continue;
                };
                busy += now - started;
                state.settle(&set, now, &permit, &Outcome::of(End::Ok)).woken
            }
        };
        for holder in woken {
            let Some(id) = holder.as_str().strip_prefix("n-").and_then(|n| n.parse::<u64>().ok()) else {
                continue;
            };
            if let Some(one) = waiting.get(&id) {
                agenda.plan(now + rng.below(1_000) as Micros, Event::Ask(id, one.asks));
            }
        }
    }
    busy += waiting.values().filter(|w| w.permit.is_some()).map(|w| end - w.started).sum::<Micros>();
    Seen { calls, busy }
}

fn target(tenant: &str) -> Arc<Target> {
    let target = Target::new("d").and_then(|t| t.with(Part::Tenant, tenant));
    Arc::new(target.expect("the names are acceptable"))
}
