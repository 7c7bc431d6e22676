//! Holders and waiters die at every step of the protocol. Afterwards all capacity must be there again within one lease
//! time (or the quarantine), under steady traffic and in silence.

use std::collections::BTreeMap;
use std::sync::Arc;

use tidegate_core::gates::config::Slots;
use tidegate_core::gates::{
    Admission, Call, Compiled, End, Gate, GateSet, Holder, Kind, Micros, Outcome, Partition, Permit, SECOND,
    Span, Start, Target,
};
use tidegate_core::seed::Seed;

use super::Agenda;
use super::original::Original;

/// Where in the protocol a process can die.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Step {
    /// The request was carried out, the reply never read.
    Asked,
    /// In line, waiting.
    Waiting,
    /// Woken, before asking again.
    Woken,
    /// Admitted, before the call.
    Admitted,
    /// In the middle of the call.
    Calling,
    /// After a renewal.
    Renewed,
    /// The call is over, before the settlement.
    Answered,
    /// The settlement was carried out, the reply never read.
    Settled,
}

impl Step {
    /// All of them.
    pub const ALL: [Self; 8] = [
        Self::Asked,
        Self::Waiting,
        Self::Woken,
        Self::Admitted,
        Self::Calling,
        Self::Renewed,
        Self::Answered,
        Self::Settled,
    ];
}

/// Which slots are used.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Scheme {
    /// Ours.
    Leases,
    /// The source's.
    Original,
}

/// A world.
#[derive(Debug, Clone, Copy)]
pub struct World {
    /// Decides everything.
    pub seed: u64,
    /// Which slots.
    pub scheme: Scheme,
    /// Whether others go on calling after the deaths.
    pub steady: bool,
    /// Quarantine of slots whose call may still run.
    pub quarantine: Micros,
}

/// What was seen.
#[derive(Debug, Clone)]
pub struct Seen {
    /// How many died at which step.
    pub died: BTreeMap<Step, u32>,
    /// Most calls at a time, counted by the callers themselves: a dead one's call ends with it.
    pub most_running: u32,
    /// Slots that could be used again, all others being busy or not, after one lease time.
    pub usable_after_lease: u32,
    /// The same after twenty.
    pub usable_after_twenty: u32,
}

/// Slots in every world.
pub const LIMIT: u32 = 4;
/// Lease time in every world.
pub const LEASE: Micros = 10 * SECOND;
/// How often the first in line asks by itself, with its delays.
const POLL: Micros = SECOND + 10_000;
const DOOMED: u64 = 12;
const STEADY: u64 = 10;

#[derive(Debug, Clone, Copy)]
enum Event {
    Ask(u64),
    Poll(u64, u32),
    Renew(u64),
    Done(u64),
    Probe,
}

#[derive(Debug, Clone, Default)]
struct Actor {
    dies: Option<Step>,
    dead: bool,
    round: u64,
    asks: u32,
    permit: Option<Permit>,
    running: bool,
    ends_at: Micros,
}

struct Run {
    world: World,
    rng: Seed,
    agenda: Agenda<Event>,
    set: Compiled,
    ours: Partition,
    original: Original,
    actors: BTreeMap<u64, Actor>,
    target: Arc<Target>,
    seen: Seen,
    killing: bool,
    last_death: Micros,
}

/// Runs a world.
///
/// # Panics
///
/// If a call is refused for good, which none should be.
pub fn run(world: World) -> Seen {
    let mut gates = GateSet::of(vec![Gate::new("slots", Kind::Slots(Slots::of(LIMIT)))]);
    gates.quarantine = Span(world.quarantine);
    let set = Compiled::new(gates).expect("the set is acceptable");
    let target = Arc::new(Target::new("d").expect("the name is acceptable"));
    let start = 1_000 * SECOND;
    let mut run = Run {
        world,
        rng: Seed::new(world.seed),
        agenda: Agenda::new(start),
        ours: Partition::new(&set, Start::Full),
        set,
        original: Original::default(),
        actors: BTreeMap::new(),
        target,
        seen: Seen { died: BTreeMap::new(), most_running: 0, usable_after_lease: 0, usable_after_twenty: 0 },
        killing: true,
        last_death: start,
    };
    run.go(start);
    run.seen
}

impl Run {
    fn go(&mut self, start: Micros) {
        for id in 0..DOOMED + STEADY {
            let step = Step::ALL[self.rng.below(8) as usize];
            let actor = Actor { dies: (id < DOOMED).then_some(step), ..Actor::default() };
            self.actors.insert(id, actor);
            let at = start + self.rng.below(2_000_000) as Micros;
            self.agenda.plan(at, Event::Ask(id));
        }
        // The doomed get as long as they need; whoever has not met its step by then dies where it stands.
        self.until(start + 6 * LEASE);
        self.killing = false;
        for id in 0..DOOMED {
            self.die(id, None);
        }
        if !self.world.steady {
            // Those who live end what they are doing and ask no more: silence.
            self.until(self.agenda.now + 2 * LEASE);
        }
        // Deaths were noted as they happened; those of now count from now.
        let due = self.last_death.max(self.agenda.now) + LEASE + self.world.quarantine;
        self.until(due);
        self.seen.usable_after_lease = self.usable(due);
        self.until(due + 19 * LEASE);
        self.seen.usable_after_twenty = self.usable(due + 19 * LEASE);
    }

    fn until(&mut self, end: Micros) {
        while let Some(event) = self.agenda.next(end) {
            match event {
                Event::Ask(id) => self.ask(id),
                Event::Poll(id, asks) => {
                    // Only the newest of its timers counts.
                    if self
                        .actors
                        .get(&id)
                        .is_some_and(|a| a.asks == asks && a.permit.is_none() && !a.running)
                    {
                        self.ask(id);
                    }
                }
                Event::Renew(id) => self.renew(id),
                Event::Done(id) => self.done(id),
                Event::Probe => {}
            }
            let running = self.actors.values().filter(|a| a.running && !a.dead).count() as u32;
            self.seen.most_running = self.seen.most_running.max(running);
        }
    }

    /// Slots that are usable: in silence, those that can be taken at this instant; under traffic, those that are in use by
    /// the living at the same time before the next poll of whoever is first in line.
    fn usable(&mut self, now: Micros) -> u32 {
        let living = self.actors.values().filter(|a| a.running && !a.dead).count() as u32;
        if self.world.steady {
            let before = std::mem::replace(&mut self.seen.most_running, living);
            self.until(now + POLL);
            let most = self.seen.most_running;
            self.seen.most_running = most.max(before);
            return most;
        }
        let mut free = 0;
        for n in 0..LIMIT {
            let id = 1_000_000 + self.rng.below(1 << 40) + u64::from(n);
            free += u32::from(match self.world.scheme {
                Scheme::Leases => {
                    let call = Call { lease: LEASE, ..Call::new(self.target.clone(), Holder::number(id)) };
                    match self.ours.admit(&self.set, now, &call) {
                        Admission::Admitted(a) => {
                            self.actors.insert(id, Actor { permit: Some(a.permit), ..Actor::default() });
                            true
                        }
                        Admission::Wait(_) | Admission::Refused(_) => false,
                    }
                }
                Scheme::Original => self.original.reserve(now, LIMIT as usize, LEASE, id, 2),
            });
        }
        // The probes give back what they took.
        let probes: Vec<Permit> = self.actors.values_mut().filter_map(|a| a.permit.take()).collect();
        for permit in probes {
            self.ours.settle(&self.set, now, &permit, &Outcome::of(End::Ok));
        }
        self.agenda.plan(now, Event::Probe);
        living + free
    }

    fn soon(&mut self) -> Micros {
        self.agenda.now + 500 + self.rng.below(4_500) as Micros
    }

    /// Dies here, if this is its step.
    fn dies_at(&mut self, id: u64, step: Step) -> bool {
        if self.actors.get(&id).is_some_and(|a| a.dies == Some(step) && !a.dead) && self.killing {
            self.die(id, Some(step));
            return true;
        }
        self.actors.get(&id).is_none_or(|a| a.dead)
    }

    fn die(&mut self, id: u64, step: Option<Step>) {
        let now = self.agenda.now;
        let Some(actor) = self.actors.get_mut(&id).filter(|a| !a.dead) else { return };
        actor.dead = true;
        actor.running = false;
        actor.permit = None;
        self.last_death = now;
        if let Some(step) = step {
            *self.seen.died.entry(step).or_default() += 1;
        }
    }

    fn ask(&mut self, id: u64) {
        if self.actors.get(&id).is_none_or(|a| a.dead || a.running) {
            return;
        }
        // In silence nobody begins anything new.
        let quiet = !self.killing && !self.world.steady;
        let now = self.agenda.now;
        let Some(actor) = self.actors.get_mut(&id) else { return };
        actor.asks += 1;
        let (asks, name) = (actor.asks, id * 1_000_000 + actor.round);
        if quiet {
            if self.world.scheme == Scheme::Leases {
                let freed = self.ours.cancel_wait(&self.set, now, &Holder::number(name));
                self.wake(&freed.woken);
            }
            return;
        }
        let (permit, retry_at) = match self.world.scheme {
            Scheme::Leases => {
                let call = Call { lease: LEASE, ..Call::new(self.target.clone(), Holder::number(name)) };
                match self.ours.admit(&self.set, now, &call) {
                    Admission::Admitted(a) => {
                        self.wake(&a.woken);
                        (Some(Some(a.permit)), 0)
                    }
                    Admission::Wait(wait) => {
                        self.wake(&wait.woken);
                        (None, wait.retry_at)
                    }
                    Admission::Refused(refused) => unreachable!("{refused:?}"),
                }
            }
            Scheme::Original => {
                let taken = self.original.reserve(now, LIMIT as usize, LEASE, name, 2);
                (taken.then_some(None), now + SECOND)
            }
        };
        if self.dies_at(id, Step::Asked) {
            return;
        }
        match permit {
            None => {
                let at = retry_at + 100 + self.rng.below(2_000) as Micros;
                self.agenda.plan(at, Event::Poll(id, asks));
                self.dies_at(id, Step::Waiting);
            }
            Some(permit) => {
                if self.dies_at(id, Step::Admitted) {
                    return;
                }
                // Longer than the lease at times, so that renewals matter.
                let longest = if self.rng.one_in(6) { 15_000_000 } else { 2_000_000 };
                let lasts = 50_000 + self.rng.below(longest) as Micros;
                let Some(actor) = self.actors.get_mut(&id) else { return };
                actor.permit = permit;
                actor.running = true;
                actor.ends_at = now + lasts;
                self.agenda.plan(now + LEASE / 3, Event::Renew(id));
                self.agenda.plan(now + lasts, Event::Done(id));
                if self.actors.get(&id).is_some_and(|a| a.dies == Some(Step::Calling)) && self.killing {
                    self.die(id, Some(Step::Calling));
                }
            }
        }
    }

    fn renew(&mut self, id: u64) {
        let now = self.agenda.now;
        let Some(actor) = self.actors.get(&id).filter(|a| !a.dead && a.running) else { return };
        if let Some(permit) = actor.permit.clone() {
            let _ = self.ours.renew(now, &permit);
        }
        self.agenda.plan(now + LEASE / 3, Event::Renew(id));
        self.dies_at(id, Step::Renewed);
    }

    fn done(&mut self, id: u64) {
        let now = self.agenda.now;
        if self.actors.get(&id).is_none_or(|a| a.dead || !a.running || a.ends_at != now) {
            return;
        }
        if self.dies_at(id, Step::Answered) {
            return;
        }
        let Some(actor) = self.actors.get_mut(&id) else { return };
        actor.running = false;
        let (permit, name) = (actor.permit.take(), id * 1_000_000 + actor.round);
        match self.world.scheme {
            Scheme::Leases => {
                if let Some(permit) = permit {
                    let settled = self.ours.settle(&self.set, now, &permit, &Outcome::of(End::Ok));
                    self.wake(&settled.woken);
                    if self.rng.one_in(5) {
                        // The reply was lost: once more.
                        self.ours.settle(&self.set, now, &permit, &Outcome::of(End::Ok));
                    }
                }
            }
            Scheme::Original => {
                if let Some(next) = self.original.release(now, name) {
                    let at = self.soon();
                    self.agenda.plan(at, Event::Ask(next / 1_000_000));
                }
            }
        }
        if self.dies_at(id, Step::Settled) {
            return;
        }
        if let Some(actor) = self.actors.get_mut(&id) {
            actor.round += 1;
        }
        let at = self.soon();
        self.agenda.plan(at, Event::Ask(id));
    }

    fn wake(&mut self, woken: &[Holder]) {
        for holder in woken {
            let Some(number) = holder.as_str().strip_prefix("n-").and_then(|n| n.parse::<u64>().ok()) else {
                continue;
            };
            let id = number / 1_000_000;
            if !self.dies_at(id, Step::Woken) {
                let at = self.soon();
                self.agenda.plan(at, Event::Ask(id));
            }
        }
    }
}
