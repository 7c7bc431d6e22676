//! The composition: what a call, its permit and its place go through.

use std::sync::Arc;

use super::config::{Breaker, Fair, Lock, Quota, Reported, Slots, Smooth, Window};
use super::*;

mod learning;
mod lines;
mod permits;
mod random;
mod upkeep;

struct World {
    set: Compiled,
    state: Partition,
    now: Micros,
}

fn slots(limit: u32) -> Kind {
    Kind::Slots(Slots::of(limit))
}

fn smooth(rate: i64, burst: i64) -> Kind {
    Kind::Smooth(Smooth { rate, every: Span::secs(1), burst, unit: Unit::Calls })
}

fn bucket(capacity: f64, restore_per_s: f64) -> Kind {
    Kind::Reported(Reported { capacity, restore_per_s, known: true })
}

fn lock() -> Kind {
    Kind::Lock(Lock::default())
}

fn world(gates: Vec<Gate>) -> World {
    world_of(GateSet::of(gates))
}

fn world_of(set: GateSet) -> World {
    let set = Compiled::new(set).unwrap();
    World { state: Partition::new(&set, Start::Full), set, now: 1_000 * SECOND }
}

fn target(tenant: &str, account: &str, endpoint: &str) -> Arc<Target> {
    let target = Target::new("d").unwrap().with(Part::Tenant, tenant).unwrap();
    Arc::new(target.with(Part::Account, account).unwrap().with(Part::Endpoint, endpoint).unwrap())
}

fn call(n: u64) -> Call {
    Call::new(target("", "", ""), Holder::number(n))
}

fn call_to(n: u64, tenant: &str, account: &str, endpoint: &str) -> Call {
    Call::new(target(tenant, account, endpoint), Holder::number(n))
}

impl World {
    fn admit(&mut self, call: &Call) -> Admission {
        self.state.admit(&self.set, self.now, call)
    }

    fn permit(&mut self, call: &Call) -> Permit {
        match self.admit(call) {
            Admission::Admitted(a) => a.permit,
            other => panic!("{other:?}"),
        }
    }

    fn wait(&mut self, call: &Call) -> Wait {
        match self.admit(call) {
            Admission::Wait(w) => w,
            other => panic!("{other:?}"),
        }
    }

    fn refused(&mut self, call: &Call) -> Refused {
        match self.admit(call) {
            Admission::Refused(r) => r,
            other => panic!("{other:?}"),
        }
    }

    fn settle(&mut self, permit: &Permit, end: End) -> Settled {
        self.state.settle(&self.set, self.now, permit, &Outcome::of(end))
    }
}

/// Everything that is counted, counted again from the leases and places.
fn audit(state: &Partition, set: &Compiled) {
    for (id, scope) in state.scopes.iter() {
        let leases = || state.leases.iter().map(|(_, l)| l).filter(|l| l.scopes[scope.rule] == id);
        assert_eq!(scope.live as usize, leases().count());
        for gate in set.gates.iter().filter(|g| g.scope == scope.rule) {
            let i = set.gates.iter().position(|g| g.name == gate.name).unwrap();
            if let scope::GateState::Pool(pool) = &scope.gates[gate.at] {
                assert_eq!(pool.used() as usize, leases().filter(|l| l.held & (1 << i) != 0).count());
            }
            if let scope::GateState::Level(level) = &scope.gates[gate.at] {
                let flying = leases().filter(|l| !l.quarantined && l.held & (1 << i) != 0);
                assert_eq!(level.figures().2, flying.map(|l| l.cost).sum::<i64>());
            }
            if let scope::GateState::Breaker(breaker) = &scope.gates[gate.at] {
                let probes = leases().filter(|l| !l.quarantined && l.probes & (1 << i) != 0);
                assert_eq!(breaker.probes_out() as usize, probes.count());
            }
        }
        let standing =
            state.places.iter().filter(|(_, p)| p.stands[scope.rule].is_some_and(|(at, _)| at == id));
        assert_eq!(scope.line.len() as usize, standing.count());
    }
    for (at, place) in state.places.iter() {
        assert_eq!(state.index.places.get(&place.holder), Some(&at));
        assert!(place.stands.iter().any(Option::is_some));
    }
    let live = state.leases.iter().filter(|(_, l)| !l.quarantined).count();
    assert_eq!(live, state.index.leases.len());
}
