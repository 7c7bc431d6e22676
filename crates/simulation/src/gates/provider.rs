//! A provider that charges the requested cost on arrival, refunds the rest on completion, reports its bucket, answers out of
//! order and loses answers; and callers that keep it as busy as its gate allows, if need be although some come late or do not hear that they are called.

use std::collections::BTreeMap;
use std::sync::Arc;

use tidegate_core::gates::config::Reported;
use tidegate_core::gates::{
    Admission, Call, Change, Compiled, End, Failure, Gate, GateSet, Holder, Kind, Micros, Observed, Outcome,
    Partition, Permit, Points, SECOND, Start, Target,
};
use tidegate_core::seed::Seed;

use super::Agenda;

/// How the callers keep inside the budget.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Rule {
    /// The reported-level gate.
    Gate,
    /// The source's: write what the answer reports over what is known.
    Overwrite,
}

/// What becomes of a requested cost.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Charged {
    /// 40 to 100 % of it; the rest is refunded.
    InPart,
    /// All of it.
    InFull,
}

/// How callers come.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Callers {
    /// When they were told to, or at once when they are called.
    Prompt,
    /// One call in twenty is not heard, and one in twenty comes three seconds late, when its place is gone.
    Careless,
}

/// Something that changes on the provider's side.
#[derive(Debug, Clone, Copy)]
pub struct Shift {
    /// When, from the start.
    pub at: Micros,
    /// Points per second from then on.
    pub rate: u32,
    /// Points per second that somebody else uses from then on.
    pub foreign: u32,
}

/// What was seen.
#[derive(Debug, Clone, Default)]
pub struct Seen {
    /// When each call arrived at the provider, from the start, and whether it was throttled.
    pub arrivals: Vec<(Micros, bool)>,
    /// Points that were charged for good, ours and others'.
    pub used: f64,
    /// Points that there were to be used.
    pub offered: f64,
    /// Points of others that the gate noticed, and when, from the start.
    pub foreign_noticed: Vec<(Micros, f64)>,
    /// Points that others used.
    pub foreign_used: f64,
}

impl Seen {
    /// Points of others that the gate noticed in these spans.
    pub fn noticed(&self, within: impl Fn(Micros) -> bool) -> f64 {
        self.foreign_noticed.iter().filter(|(at, _)| within(*at)).map(|(_, points)| points).sum()
    }

    /// Share of throttled calls that arrived in these spans.
    pub fn throttled(&self, within: impl Fn(Micros) -> bool) -> f64 {
        let calls = || self.arrivals.iter().filter(|(at, _)| within(*at));
        calls().filter(|(_, throttled)| *throttled).count() as f64 / calls().count().max(1) as f64
    }
}

/// Size of the provider's bucket.
const CAPACITY: i64 = 1_000_000;
/// Callers at a time.
const CALLERS: u64 = 40;
/// How long a caller waits for an answer.
const TIMEOUT: Micros = 2 * SECOND;
/// How often others use the bucket.
const FOREIGN_EVERY: Micros = 50_000;

#[derive(Debug, Clone, Copy)]
enum Event {
    Ask(u64),
    Arrive(u64, u64),
    Complete(u64, u64),
    Answer(u64, u64),
    TimeOut(u64, u64),
    Shift(usize),
    Foreign,
}

impl Agenda<Event> {
    /// Those who are woken ask again within the millisecond.
    fn wake(&mut self, woken: &[Holder]) {
        for holder in woken {
            if let Some(number) = holder.as_str().strip_prefix("n-").and_then(|n| n.parse::<u64>().ok()) {
                self.plan(self.now + 500, Event::Ask(number / 1_000_000));
            }
        }
    }
}

#[derive(Debug, Clone, Default)]
struct Caller {
    round: u64,
    cost: i64,
    actual: i64,
    calling: bool,
    permit: Option<Permit>,
    throttled: bool,
    reported: Option<i64>,
}

/// The provider's bucket, in nano points.
struct Bucket {
    level: i64,
    at: Micros,
    rate: i64,
    lost: i64,
}

impl Bucket {
    fn advance(&mut self, now: Micros) {
        let gained = (now - self.at) * self.rate;
        let room = CAPACITY * 1_000_000 - self.level;
        self.level += gained.min(room);
        self.lost += (gained - room).max(0);
        self.at = now;
    }
}

struct Run<'a> {
    rng: Seed,
    rule: Rule,
    charged: Charged,
    manner: Callers,
    shifts: &'a [Shift],
    start: Micros,
    agenda: Agenda<Event>,
    set: Compiled,
    state: Partition,
    /// What the overwriting rule believes: level in nano points, and when.
    naive: (i64, Micros),
    /// What it takes for the rate: the last one reported, in milli points per second.
    naive_rate: i64,
    bucket: Bucket,
    foreign: i64,
    callers: BTreeMap<u64, Caller>,
    target: Arc<Target>,
    seen: Seen,
}

/// Runs callers against the provider for `lasts`, beginning with `rate` points per second.
///
/// # Panics
///
/// If the rate is 0, or a call is refused for good, which none should be.
pub fn run(
    seed: u64,
    rule: Rule,
    (charged, manner): (Charged, Callers),
    rate: u32,
    shifts: &[Shift],
    lasts: Micros,
) -> Seen {
    let bucket = Reported { capacity: 1_000.0, restore_per_s: f64::from(rate), known: false };
    let set = Compiled::new(GateSet::of(vec![Gate::new("points", Kind::Reported(bucket))]))
        .expect("an acceptable set");
    let start = 1_000 * SECOND;
    let rate = i64::from(rate) * 1_000;
    let mut run = Run {
        rng: Seed::new(seed),
        rule,
        charged,
        manner,
        shifts,
        start,
        agenda: Agenda::new(start),
        state: Partition::new(&set, Start::Full),
        set,
        naive: (CAPACITY * 1_000_000, start),
        naive_rate: rate,
        bucket: Bucket { level: CAPACITY * 1_000_000, at: start, rate, lost: 0 },
        foreign: 0,
        callers: (0..CALLERS).map(|id| (id, Caller::default())).collect(),
        target: Arc::new(Target::new("shop").expect("an acceptable name")),
        seen: Seen::default(),
    };
    (0..CALLERS).for_each(|id| run.agenda.plan(start, Event::Ask(id)));
    shifts.iter().enumerate().for_each(|(n, shift)| run.agenda.plan(start + shift.at, Event::Shift(n)));
    run.agenda.plan(start, Event::Foreign);
    while let Some(event) = run.agenda.next(start + lasts) {
        run.step(event);
    }
    run.bucket.advance(run.agenda.now);
    // What is left in the bucket was not refused to anybody: it counts as neither offered nor used.
    run.seen.offered = run.seen.used + run.bucket.lost as f64 / 1e9;
    run.seen
}

impl Callers {
    fn slips(self, rng: &mut Seed) -> bool {
        self == Self::Careless && rng.one_in(20)
    }

    /// Those who hear that they are called.
    fn hear(self, rng: &mut Seed, mut woken: Vec<Holder>) -> Vec<Holder> {
        woken.retain(|_| !self.slips(rng));
        woken
    }
}

impl Run<'_> {
    fn step(&mut self, event: Event) {
        let now = self.agenda.now;
        self.bucket.advance(now);
        match event {
            Event::Ask(id) => self.ask(id),
            Event::Arrive(id, round) => self.arrive(id, round),
            Event::Complete(id, round) => self.complete(id, round),
            Event::Answer(id, round) => self.answer(id, round),
            Event::TimeOut(id, round) => self.time_out(id, round),
            Event::Shift(n) => {
                self.bucket.rate = i64::from(self.shifts[n].rate) * 1_000;
                self.foreign = i64::from(self.shifts[n].foreign);
            }
            Event::Foreign => {
                let take = (self.foreign * 1_000 * FOREIGN_EVERY).min(self.bucket.level.max(0));
                self.bucket.level -= take;
                self.seen.used += take as f64 / 1e9;
                self.seen.foreign_used += take as f64 / 1e9;
                self.agenda.plan(now + FOREIGN_EVERY, Event::Foreign);
            }
        }
    }

    fn ask(&mut self, id: u64) {
        let now = self.agenda.now;
        // A timer of before, or woken twice: it is already on its way.
        let Some(caller) = self.callers.get_mut(&id).filter(|c| !c.calling) else { return };
        if caller.cost == 0 {
            caller.cost = (10 + self.rng.below(91) as i64) * 1_000;
            caller.actual = match self.charged {
                Charged::InPart => caller.cost * (40 + self.rng.below(61) as i64) / 100,
                Charged::InFull => caller.cost,
            };
        }
        let holder = Holder::number(id * 1_000_000 + caller.round);
        let retry_at = match self.rule {
            Rule::Gate => {
                let call = Call { lease: 5 * SECOND, ..Call::new(self.target.clone(), holder) }
                    .cost(Points(caller.cost));
                match self.state.admit(&self.set, now, &call) {
                    Admission::Admitted(a) => {
                        caller.permit = Some(a.permit);
                        self.agenda.wake(&self.manner.hear(&mut self.rng, a.woken));
                        None
                    }
                    Admission::Wait(wait) => {
                        self.agenda.wake(&self.manner.hear(&mut self.rng, wait.woken));
                        Some(wait.retry_at)
                    }
                    Admission::Refused(refused) => unreachable!("{refused:?}"),
                }
            }
            Rule::Overwrite => {
                let (level, at) = self.naive;
                let level = (level + (now - at) * self.naive_rate).min(CAPACITY * 1_000_000);
                let short = caller.cost * 1_000_000 - level;
                self.naive = (if short > 0 { level } else { -short }, now);
                (short > 0).then(|| now + (short + self.naive_rate - 1) / self.naive_rate)
            }
        };
        if let Some(at) = retry_at {
            let late = if self.manner.slips(&mut self.rng) { 3 * SECOND } else { 0 };
            self.agenda.plan(at + late, Event::Ask(id));
            return;
        }
        caller.calling = true;
        let round = caller.round;
        let transit = 5_000 + self.rng.below(60_000) as Micros;
        self.agenda.plan(now + transit, Event::Arrive(id, round));
        self.agenda.plan(now + TIMEOUT, Event::TimeOut(id, round));
    }

    fn arrive(&mut self, id: u64, round: u64) {
        let now = self.agenda.now;
        let Some(caller) = self.callers.get_mut(&id).filter(|c| c.round == round) else { return };
        caller.throttled = self.bucket.level < caller.cost * 1_000_000;
        self.seen.arrivals.push((now - self.start, caller.throttled));
        if !caller.throttled {
            self.bucket.level -= caller.cost * 1_000_000;
        }
        let works = if caller.throttled { 5_000 } else { 20_000 + self.rng.below(280_000) as Micros };
        self.agenda.plan(now + works, Event::Complete(id, round));
    }

    fn complete(&mut self, id: u64, round: u64) {
        let now = self.agenda.now;
        let Some(caller) = self.callers.get_mut(&id).filter(|c| c.round == round) else { return };
        if !caller.throttled {
            self.bucket.level =
                (self.bucket.level + (caller.cost - caller.actual) * 1_000_000).min(CAPACITY * 1_000_000);
            self.seen.used += caller.actual as f64 / 1e3;
        }
        caller.reported = Some(self.bucket.level / 1_000_000);
        // One answer in a hundred never comes.
        if !self.rng.one_in(100) {
            let back = 5_000 + self.rng.below(120_000) as Micros;
            self.agenda.plan(now + back, Event::Answer(id, round));
        }
    }

    fn answer(&mut self, id: u64, round: u64) {
        // Some answers do not say what is left.
        let silent = self.rng.one_in(20);
        let Some(caller) = self.callers.get(&id).filter(|c| c.round == round) else { return };
        let observed = (!silent).then(|| Observed {
            level: caller.reported.map(Points),
            capacity: Some(Points(CAPACITY)),
            restore_per_s: Some(Points(self.bucket.rate)),
        });
        let end = if caller.throttled { End::Throttled { retry_after: None } } else { End::Ok };
        let actual = (!caller.throttled).then_some(Points(caller.actual));
        self.end(id, &Outcome { end, actual, observed });
    }

    fn time_out(&mut self, id: u64, round: u64) {
        if self.callers.get(&id).is_some_and(|c| c.round == round) {
            self.end(id, &Outcome::of(End::Failed(Failure::TimedOut)));
        }
    }

    fn end(&mut self, id: u64, outcome: &Outcome) {
        let now = self.agenda.now;
        let Some(caller) = self.callers.get_mut(&id) else { return };
        match (self.rule, caller.permit.take()) {
            (Rule::Gate, Some(permit)) => {
                let settled = self.state.settle(&self.set, now, &permit, outcome);
                self.agenda.wake(&self.manner.hear(&mut self.rng, settled.woken));
                for change in settled.changes {
                    if let Change::ForeignUse { cost, .. } = change {
                        self.seen.foreign_noticed.push((now - self.start, cost.as_f64()));
                    }
                }
            }
            _ => {
                if let Some(observed) = outcome.observed {
                    if let Some(Points(level)) = observed.level {
                        self.naive = (level * 1_000_000, now);
                    }
                    self.naive_rate = observed.restore_per_s.map_or(self.naive_rate, |r| r.0);
                }
            }
        }
        *caller = Caller { round: caller.round + 1, ..Caller::default() };
        self.agenda.plan(now, Event::Ask(id));
    }
}
