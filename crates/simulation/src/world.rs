//! The world: time, the next actor, calls that may be struck by a crash, and the healing at the end.

use std::collections::HashSet;
use std::fmt;

use tidegate_conformance::kit::{START, connector, group, job_id, json, kind, queue};
use tidegate_conformance::referee::{Event, JobFate, Referee, Violation};
use tidegate_core::codes::{self, Fault};
use tidegate_core::ids::JobId;
use tidegate_core::job::{OnConflict, OnDead, ParkScope, Priority, UniqueScope};
use tidegate_core::registry::{KindSettings, Limiter, QueueSettings};
use tidegate_core::seed::Seed;
use tidegate_core::time::Timestamp;
use tidegate_store::params::NewJob;
use tidegate_store::{Error, Result as StoreResult};

use crate::actors::{Process, Producer};
use crate::plane::{Memory, Plane};
use crate::scenario::{Crash, Crashes, Scenario};

pub(crate) const QUEUES: [&str; 3] = ["open", "narrow", "limited"];
pub(crate) const GROUPS: [&str; 4] = ["a", "b", "c", ""];
const KINDS: [&str; 3] = ["plain", "call", "paced"];
const PROCESSES: u64 = 3;
pub(crate) const LEASE_MS: i64 = 10_000;
/// Steps of a world before it heals, and after.
const STORM_STEPS_PER_JOB: u64 = 6;
const HEALING_STEPS: u64 = 6_000;

/// How a world ended well.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Summary {
    /// Calls that reached the store or were struck.
    pub calls: u64,
    /// Crashes and lost replies.
    pub crashes: u64,
    /// Jobs accepted.
    pub jobs: u64,
    /// Jobs completed, dead and cancelled.
    pub ended: [u64; 3],
    /// Writes that were refused because the lease was lost.
    pub stale: u64,
    /// Poison jobs that died of it.
    pub poisoned: u64,
    /// Jobs that wait for others until the end, because those are dead and nobody recovers them.
    pub patient: u64,
}

/// How a world ended badly.
#[derive(Debug, Clone)]
pub struct Failure {
    /// The world; run it again to see the same.
    pub scenario: Scenario,
    /// The call after which it was noticed.
    pub call: u64,
    /// The broken promise.
    pub violation: Violation,
    /// The last events, if they were recorded.
    pub tail: Vec<Event>,
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(
            f,
            "TIDEGATE_SEED={} broke a promise after call {}: {}",
            self.scenario.seed, self.call, self.violation
        )?;
        writeln!(f, "scenario: {:?}", self.scenario)?;
        self.tail.iter().try_for_each(|event| writeln!(f, "  {event:?}"))
    }
}

impl std::error::Error for Failure {}

/// Runs a world over the machine in memory. A failure is run again with its events recorded.
pub fn run(scenario: Scenario) -> Result<Summary, Box<Failure>> {
    let once = |scenario: Scenario| {
        let plane = Memory::open(START).map_err(|e| Box::new(unopened(scenario, &e)))?;
        World::new(plane, scenario).run().map(|(summary, _)| summary)
    };
    once(scenario).map_err(|failure| once(Scenario { record: true, ..scenario }).err().unwrap_or(failure))
}

fn unopened(scenario: Scenario, error: &Error) -> Failure {
    Failure { scenario, call: 0, violation: Violation::Nonsense(error.to_string()), tail: vec![] }
}

/// Who makes a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Caller {
    Process(usize),
    Producer,
    Operator,
}

/// The world.
pub struct World<P> {
    pub(crate) plane: P,
    pub(crate) referee: Referee,
    pub(crate) scenario: Scenario,
    pub(crate) dice: Seed,
    /// Time that passes for everybody, whatever clocks say.
    pub(crate) real: i64,
    /// What the clock shows beyond real time.
    pub(crate) offset: i64,
    pub(crate) healing: bool,
    /// What the last claim said about when to come back.
    pub(crate) wakeup: Option<Timestamp>,
    pub(crate) processes: Vec<Process>,
    pub(crate) next_process: u64,
    pub(crate) producer: Producer,
    pub(crate) poison: HashSet<JobId>,
    pub(crate) settings: Vec<QueueSettings>,
    pub(crate) next_id: u64,
    /// Jobs that are stored under their own id once they are sent: others can wait for them.
    pub(crate) named: Vec<JobId>,
    pub(crate) events: Vec<Event>,
    pub(crate) summary: Summary,
}

pub(crate) type Step<T = ()> = Result<T, Violation>;

impl<P: Plane> World<P> {
    /// A world around an empty store.
    pub fn new(plane: P, scenario: Scenario) -> Self {
        let mut dice = Seed::new(scenario.seed.wrapping_mul(0x9e37_79b9).wrapping_add(1));
        let processes = (1..=PROCESSES).map(|id| Process::new(id, &mut dice)).collect();
        Self {
            plane,
            referee: Referee::default(),
            scenario,
            dice,
            real: 0,
            offset: 0,
            healing: false,
            wakeup: None,
            processes,
            next_process: PROCESSES + 1,
            producer: Producer::default(),
            poison: HashSet::new(),
            settings: vec![],
            next_id: 1,
            named: vec![],
            events: vec![],
            summary: Summary::default(),
        }
    }

    /// What the clock shows.
    pub(crate) fn now(&self) -> Timestamp {
        START.plus_ms(self.real + self.offset)
    }

    /// Lets the world run to its end. Also returns the events, if they were recorded.
    pub fn run(mut self) -> Result<(Summary, Vec<Event>), Box<Failure>> {
        match self.live() {
            Ok(()) => Ok((self.summary, self.events)),
            Err(violation) => {
                let from = self.events.len().saturating_sub(25);
                let tail = self.events.split_off(from);
                Err(Box::new(Failure { scenario: self.scenario, call: self.summary.calls, violation, tail }))
            }
        }
    }

    fn live(&mut self) -> Step {
        self.set_up()?;
        for _ in 0..STORM_STEPS_PER_JOB * self.scenario.jobs {
            self.step()?;
        }
        self.heal()?;
        for _ in 0..HEALING_STEPS {
            let over =
                |(id, job): (JobId, &JobFate)| job.end.is_some() || self.referee.waits_for_the_dead(id);
            if self.producer.outbox.is_empty() && self.referee.jobs().all(over) {
                self.summary.jobs = self.referee.jobs().count() as u64;
                return self.check_end(&self.poison.clone());
            }
            self.step()?;
        }
        let open = self.referee.jobs().filter(|(_, job)| job.end.is_none()).map(|(id, _)| id).min();
        Err(open.map_or_else(
            || Violation::Nonsense("the producer could not send everything".into()),
            |id| Violation::Lost(id, "not finished long after everything healed"),
        ))
    }

    fn set_up(&mut self) -> Step {
        let narrow =
            QueueSettings { concurrency: Some(3), group_concurrency: Some(2), ..QueueSettings::default() };
        let pace = Some(Limiter { max: 4, per_ms: 5_000 });
        let paced = QueueSettings { limiter: pace, group_concurrency: Some(1), ..QueueSettings::default() };
        self.settings = vec![QueueSettings::default(), narrow, paced];
        for (i, name) in QUEUES.iter().enumerate() {
            while !self.put_queue(i, self.settings[i].clone())? {}
            let mut settings = KindSettings::new(queue(name));
            if KINDS[i] == "call" {
                settings.connector = Some(connector("shop"));
                self.referee.kind_calls(kind("call"), connector("shop"));
            }
            self.plane.put_kind(kind(KINDS[i]), settings).map_err(|e| broken(&e))?;
            self.observe(Event::Kind(kind(KINDS[i]), queue(name)))?;
        }
        let mut made = 0;
        while made < self.scenario.jobs {
            let n = (1 + self.dice.below(6)).min(self.scenario.jobs - made);
            let batch = (0..n).map(|_| self.new_job()).collect();
            self.producer.outbox.push_back(batch);
            made += n;
        }
        Ok(())
    }

    pub(crate) fn new_job(&mut self) -> NewJob {
        let id = self.new_id();
        let mut job =
            NewJob::new(id, kind(KINDS[self.dice.below(3) as usize]), json(&format!("[{}]", self.next_id)));
        job.group = Some(group(GROUPS[self.dice.below(4) as usize]));
        job.priority = Priority::from_level(1 + self.dice.below(4) as u8);
        if self.dice.one_in(4) {
            job.run_at = Some(START.plus_ms(self.dice.below(40_000) as i64));
        }
        if self.dice.one_in(6) {
            let scope = match self.dice.below(3) {
                0 => UniqueScope::Pending,
                1 => UniqueScope::PendingOrRunning,
                _ => UniqueScope::PeriodMs(15_000),
            };
            let mode =
                [OnConflict::Keep, OnConflict::Replace, OnConflict::Hasten][self.dice.below(3) as usize];
            let key = format!("key {}", self.dice.below(3));
            job.unique = Some(tidegate_conformance::kit::unique(&key, scope, mode));
        }
        if !self.named.is_empty() && self.dice.one_in(3) {
            job.on_dead = OnDead::ALL[self.dice.below(3) as usize];
            let newest = self.named.len().min(8) as u64;
            let n = 1 + self.dice.below(3);
            job.after =
                (0..n).map(|_| self.named[self.named.len() - 1 - self.dice.below(newest) as usize]).collect();
        }
        if job.unique.is_none() {
            self.named.push(id);
        }
        if self.poison.len() < 2 && self.dice.one_in(30) {
            self.poison.insert(id);
        }
        job
    }

    pub(crate) fn new_id(&mut self) -> JobId {
        self.next_id += 1;
        job_id(self.next_id)
    }

    // ---- one step ----

    fn step(&mut self) -> Step {
        self.pass_time();
        if self.healing {
            self.act(Caller::Producer)?;
            self.wakeup = None;
            for i in 0..self.processes.len() {
                self.act(Caller::Process(i))?;
            }
            // Nobody has anything to do before this: a clock that went back by an hour may put jobs off by an hour.
            if let Some(at) = self.wakeup.filter(|_| self.processes.iter().all(|p| p.runs.is_empty())) {
                self.real += at.since(self.now()).max(0);
            }
            return Ok(());
        }
        let due = |i: &usize| {
            let process = &self.processes[*i];
            process.asleep_until.is_none_or(|t| t <= self.real)
                && process.beat_at <= self.real
                && self.fragile_process(*i)
        };
        let urgent = (0..self.processes.len()).find(due);
        let who = match (urgent, self.dice.below(12)) {
            (Some(i), _) => Caller::Process(i),
            (None, 0 | 1) => Caller::Producer,
            (None, 2) => Caller::Operator,
            (None, n) => Caller::Process((n % PROCESSES) as usize),
        };
        self.act(who)?;
        if self.scenario.weather && self.dice.one_in(90) {
            return self.restart_store();
        }
        Ok(())
    }

    pub(crate) fn act(&mut self, who: Caller) -> Step {
        match who {
            Caller::Process(i) => self.process_acts(i),
            Caller::Producer => self.producer_sends(),
            Caller::Operator => self.operator_acts(),
        }
    }

    fn pass_time(&mut self) {
        self.real += if self.healing { 400 } else { self.dice.below(400) as i64 };
        if !self.scenario.weather || self.healing {
            return;
        }
        if self.dice.one_in(70) && !self.any_fragile() {
            self.offset += self.dice.below(3 * LEASE_MS as u64) as i64;
        } else if self.dice.one_in(70) {
            let back = if self.dice.one_in(3) { 3_600_000 } else { 2_000 };
            self.offset -= self.dice.below(back) as i64;
        }
    }

    /// Whether one more accident would make an innocent look like poison for the third time. The rule cannot tell
    /// such a job from a poisonous one, so the world does not do that to it.
    pub(crate) fn fragile(&self, id: JobId) -> bool {
        !self.poison.contains(&id) && self.referee.job(id).is_some_and(|job| job.lone_stalls >= 2)
    }

    pub(crate) fn fragile_process(&self, i: usize) -> bool {
        self.processes[i].runs.iter().any(|run| self.fragile(run.job))
    }

    pub(crate) fn any_fragile(&self) -> bool {
        (0..self.processes.len()).any(|i| self.fragile_process(i))
    }

    fn restart_store(&mut self) -> Step {
        if self.dice.one_in(2) && !self.any_fragile() {
            (0..self.processes.len()).for_each(|i| self.kill(i));
        }
        self.reopen()
    }

    fn reopen(&mut self) -> Step {
        let now = self.now();
        self.plane.restart(now).map_err(|e| broken(&e))?;
        self.observe(Event::Restarted(now))?;
        self.check_counts()
    }

    pub(crate) fn kill(&mut self, i: usize) {
        self.processes[i].reborn(self.next_process);
        self.next_process += 1;
    }

    // ---- calls ----

    pub(crate) fn observe(&mut self, event: Event) -> Step {
        let verdict = self.referee.observe(&event);
        if let Event::Queue(name, settings, _) = &event
            && let Some(i) = QUEUES.iter().position(|q| *q == name.as_str())
        {
            self.settings[i] = settings.as_ref().clone();
        }
        if self.scenario.record {
            self.events.push(event);
        }
        verdict
    }

    /// Whether, and how, a crash strikes the call that comes now.
    fn strikes(&mut self, who: Caller) -> Option<Crash> {
        let call = self.summary.calls;
        self.summary.calls += 1;
        if self.healing {
            return None;
        }
        let crash = match self.scenario.crashes {
            Crashes::Never => None,
            Crashes::At(at, crash) => (at == call).then_some(crash),
            Crashes::OneIn(n) => {
                let strike = self.dice.one_in(n);
                let crash = Crash::ALL[self.dice.below(5) as usize];
                strike.then_some(crash)
            }
        }?;
        let spare = match (crash, who) {
            (Crash::AllBefore | Crash::AllAfter, _) => self.any_fragile(),
            (_, Caller::Process(i)) => self.fragile_process(i),
            _ => false,
        };
        (!spare).then_some(crash)
    }

    /// Makes a call. `None`: the caller has no reply, or is dead.
    pub(crate) fn call<T>(
        &mut self,
        who: Caller,
        operation: impl FnOnce(&mut P, Timestamp) -> StoreResult<(T, Event)>,
    ) -> Step<Option<T>> {
        self.call_spared(who, operation, |_, _| false)
    }

    /// Makes a call whose caller is spared by a crash after it, depending on the reply.
    pub(crate) fn call_spared<T>(
        &mut self,
        who: Caller,
        operation: impl FnOnce(&mut P, Timestamp) -> StoreResult<(T, Event)>,
        spared: impl FnOnce(&Self, &T) -> bool,
    ) -> Step<Option<T>> {
        let crash = self.strikes(who);
        let now = self.now();
        if matches!(crash, Some(Crash::CallerBefore | Crash::AllBefore)) {
            self.strike(who, crash)?;
            return Ok(None);
        }
        let reply = match operation(&mut self.plane, now) {
            Ok((reply, event)) => {
                self.observe(event)?;
                Some(reply)
            }
            Err(e)
                if matches!(e.code.fault, Fault::State | Fault::NotFound)
                    || e.code == codes::INVALID_TIME =>
            {
                self.observe(Event::Seen(now))?;
                None
            }
            Err(e) => return Err(broken(&e)),
        };
        self.check_counts()?;
        if crash.is_some() && !reply.as_ref().is_some_and(|reply| spared(self, reply)) {
            self.strike(who, crash)?;
            return Ok(None);
        }
        Ok(reply)
    }

    fn strike(&mut self, who: Caller, crash: Option<Crash>) -> Step {
        self.summary.crashes += 1;
        self.producer.resend();
        match (crash, who) {
            (Some(Crash::AllBefore | Crash::AllAfter), _) => {
                (0..self.processes.len()).for_each(|i| self.kill(i));
                self.reopen()
            }
            (Some(Crash::CallerBefore | Crash::CallerAfter), Caller::Process(i)) => {
                self.kill(i);
                Ok(())
            }
            _ => Ok(()),
        }
    }

    // ---- the end ----

    /// From now on nothing goes wrong any more, except that poison stays poison.
    fn heal(&mut self) -> Step {
        self.healing = true;
        let groups = ["a", "b", "c"].map(group);
        let mut scopes: Vec<ParkScope> = QUEUES.iter().map(|q| ParkScope::Queue(queue(q))).collect();
        scopes.extend(groups.iter().cloned().map(ParkScope::Group));
        scopes.push(ParkScope::Connector(connector("shop")));
        scopes.extend(groups.into_iter().map(|g| ParkScope::GroupOnConnector(g, connector("shop"))));
        scopes.into_iter().try_for_each(|scope| self.unpark(scope))
    }

    /// Lets time pass until every window is over.
    pub(crate) fn rest(&mut self, ms: i64) {
        self.real += ms;
    }

    pub(crate) fn queue_settings(&self, i: usize) -> &QueueSettings {
        &self.settings[i]
    }

    /// A call of the healed world, judged like any other.
    pub(crate) fn judged<T>(
        &mut self,
        operation: impl FnOnce(&mut P, Timestamp) -> StoreResult<(T, Event)>,
    ) -> Step<T> {
        let reply = self.call(Caller::Operator, operation)?;
        reply.ok_or_else(|| Violation::Nonsense("a healed world refused a call".into()))
    }
}

fn broken(error: &Error) -> Violation {
    Violation::Nonsense(format!("{}: {error}", error.code))
}
