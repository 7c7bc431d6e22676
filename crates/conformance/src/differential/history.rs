//! Making histories and comparing two stores over one.

use std::fmt;

use tidegate_core::failure::{Category, Failure};
use tidegate_core::ids::{JobId, ProcessId, ScheduleName, Seq};
use tidegate_core::job::{
    OnConflict, OnDead, Park, ParkScope, Priority, Resolution, Review, State, UniqueScope,
};
use tidegate_core::registry::{KindSettings, Limiter, QueueSettings, Retention};
use tidegate_core::schedule::{Missed, Overlap, ScheduleSettings, ScheduleSpec};
use tidegate_core::seed::Seed;
use tidegate_core::time::Timestamp;
use tidegate_store::params::{Claim, Erase, JobQuery, NewJob, Outcome, Recover, Resolve};

use super::operation::{Operation, Reply, Tickets, apply};
use crate::kit::{
    Harness, START, at_once, connector, group, job_id, json, kind, queue, tenant, unique, worker,
};

const QUEUES: [&str; 3] = ["a", "b", "c"];
const TRACE: &str = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";
const KINDS: [&str; 4] = ["k0", "k1", "k2", "unknown"];
const SCHEDULES: [&str; 3] = ["nightly", "often", "once"];
const GROUPS: [&str; 4] = ["x", "y", "z", ""];

/// Two stores that differ.
#[derive(Debug)]
pub struct Mismatch {
    /// The history; run it again to see the same.
    pub seed: u64,
    /// Number of the operation.
    pub step: usize,
    /// The operation.
    pub operation: Box<Operation>,
    /// What the one said.
    pub one: Box<Reply>,
    /// What the other said.
    pub other: Box<Reply>,
}

impl fmt::Display for Mismatch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(
            f,
            "TIDEGATE_SEED={}: the stores differ at operation {}: {:?}",
            self.seed, self.step, self.operation
        )?;
        let (one, other) = (format!("{:?}", self.one), format!("{:?}", self.other));
        let same = one.bytes().zip(other.bytes()).take_while(|(a, b)| a == b).count();
        writeln!(f, "   one: {}", around(&one, same))?;
        write!(f, " other: {}", around(&other, same))
    }
}

/// What stands around this place of a long text.
fn around(text: &str, place: usize) -> String {
    let bytes = &text.as_bytes()[place.saturating_sub(400)..(place + 300).min(text.len())];
    String::from_utf8_lossy(bytes).into_owned()
}

/// Runs a history of `steps` operations against both stores and compares every reply, and every job at the end.
pub async fn compare(
    one: &mut dyn Harness,
    other: &mut dyn Harness,
    seed: u64,
    steps: usize,
) -> Result<(), Box<Mismatch>> {
    let mut history = History::new(seed);
    let mut tickets = (Tickets::default(), Tickets::default());
    let ends = |made: u64| {
        let jobs = (1..=made).map(job_id);
        let dependencies = jobs.clone().map(|id| Operation::Dependencies(id, 0, 100));
        jobs.map(Operation::Get).chain(dependencies).chain([
            Operation::Queues,
            Operation::Schedules,
            Operation::Totals,
        ])
    };
    let mut step = 0;
    let mut queued: Vec<Operation> = history.set_up();
    queued.reverse();
    loop {
        let operation = match queued.pop() {
            Some(operation) => operation,
            None if step == steps => {
                queued = ends(history.made).collect();
                Operation::Restart
            }
            None if step > steps => return Ok(()),
            None => history.next(tickets.0.len()),
        };
        step += 1;
        let now = history.now;
        if matches!(operation, Operation::Restart) {
            one.restart(now).await;
            other.restart(now).await;
            continue;
        }
        let first = apply(one.store().as_ref(), &mut tickets.0, operation.clone(), now).await;
        let second = apply(other.store().as_ref(), &mut tickets.1, operation.clone(), now).await;
        if first != second {
            let operation = Box::new(operation);
            return Err(Box::new(Mismatch {
                seed,
                step,
                operation,
                one: Box::new(first),
                other: Box::new(second),
            }));
        }
    }
}

/// Runs a history against one store, for stores that judge themselves.
pub async fn run(one: &mut dyn Harness, seed: u64, steps: usize) {
    let mut history = History::new(seed);
    let mut tickets = Tickets::default();
    for operation in history.set_up() {
        apply(one.store().as_ref(), &mut tickets, operation, history.now).await;
    }
    for _ in 0..steps {
        match history.next(tickets.len()) {
            Operation::Restart => one.restart(history.now).await,
            operation => drop(apply(one.store().as_ref(), &mut tickets, operation, history.now).await),
        }
    }
}

struct History {
    dice: Seed,
    now: Timestamp,
    made: u64,
}

impl History {
    fn new(seed: u64) -> Self {
        Self { dice: Seed::new(seed ^ 0x00d1_ffe7), now: START, made: 0 }
    }

    fn pick<T: Clone>(&mut self, from: &[T]) -> T {
        from[self.dice.below(from.len() as u64) as usize].clone()
    }

    fn set_up(&mut self) -> Vec<Operation> {
        let mut all = vec![];
        for name in QUEUES {
            let settings = self.queue_settings();
            all.push(Operation::PutQueue(queue(name), Box::new(settings)));
        }
        for name in &KINDS[..3] {
            let settings = self.kind_settings();
            all.push(Operation::PutKind(kind(name), Box::new(settings)));
        }
        all
    }

    fn queue_settings(&mut self) -> QueueSettings {
        let mut s = QueueSettings::default();
        let dice = &mut self.dice;
        s.concurrency = dice.one_in(3).then(|| dice.below(6) as u32);
        s.group_concurrency = dice.one_in(3).then(|| 1 + dice.below(3) as u32);
        s.limiter = dice
            .one_in(3)
            .then(|| Limiter { max: 1 + dice.below(6) as u32, per_ms: 1 + dice.below(20_000) as i64 });
        s.max_ready = dice.one_in(5).then(|| 5 + dice.below(40));
        s.max_ready_per_tenant = dice.one_in(5).then(|| 2 + dice.below(20));
        s.weight = 1 + dice.below(5) as u32;
        s.max_wait_ms = 1_000 + dice.below(100_000) as i64;
        s.retention = Retention { count: dice.below(20), age_ms: dice.below(100_000) as i64 };
        s
    }

    fn kind_settings(&mut self) -> KindSettings {
        let mut s = KindSettings::new(queue(self.pick(&QUEUES)));
        s.priority = self.pick(&Priority::ALL);
        s.max_attempts = self.dice.one_in(4).then(|| self.dice.below(5) as u32);
        s.retry = self.dice.one_in(4).then(|| at_once(3));
        s.connector = self.dice.one_in(2).then(|| connector("api"));
        s.concurrency = self.dice.one_in(4).then(|| 1 + self.dice.below(3) as u32);
        let dice = &mut self.dice;
        s.retention =
            dice.one_in(4).then(|| Retention { count: dice.below(20), age_ms: dice.below(100_000) as i64 });
        s
    }

    fn job_id(&mut self) -> JobId {
        job_id(1 + self.dice.below(self.made + 2))
    }

    fn new_job(&mut self) -> NewJob {
        // Mostly new, sometimes one that exists; then it says so, as the contract wants.
        let again = self.made > 0 && self.dice.one_in(12);
        let number = if again { 1 + self.dice.below(self.made) } else { self.made + 1 };
        self.made = self.made.max(number);
        let name = if self.dice.one_in(60) { KINDS[3] } else { KINDS[self.dice.below(3) as usize] };
        let mut job = NewJob::new(job_id(number), kind(name), json(&format!("{{\"n\":{}}}", number % 7)));
        job.id_may_exist = again || self.dice.one_in(10);
        job.queue =
            self.dice.one_in(8).then(|| queue(["a", "b", "c", "nowhere"][self.dice.below(4) as usize]));
        job.tenant = self.dice.one_in(2).then(|| tenant(["t1", "t2", "t3"][self.dice.below(3) as usize]));
        job.group = self.dice.one_in(2).then(|| group(GROUPS[self.dice.below(4) as usize]));
        job.priority = self.dice.one_in(2).then(|| self.pick(&Priority::ALL));
        job.run_at = self.dice.one_in(3).then(|| self.now.plus_ms(self.dice.below(60_000) as i64 - 5_000));
        job.timeout_ms = self.dice.one_in(20).then(|| self.dice.below(3) as i64 * 1_000);
        job.max_attempts = self.dice.one_in(10).then(|| self.dice.below(5) as u32);
        job.retry = self.dice.one_in(10).then(|| at_once(2));
        job.trace = self.dice.one_in(10).then(|| TRACE.into());
        if self.dice.one_in(4) {
            // Mostly of anybody's jobs, mostly of those that came just before; at times of one that is yet to come.
            job.tenant = job.tenant.filter(|_| self.dice.one_in(4));
            job.on_dead = self.pick(&OnDead::ALL);
            let newest = if self.dice.one_in(10) { number + 2 } else { number.saturating_sub(1).max(1) };
            let n = 1 + self.dice.below(3);
            job.after = (0..n).map(|_| job_id(newest - self.dice.below(newest.min(8)))).collect();
        }
        if self.dice.one_in(3) {
            let period = UniqueScope::PeriodMs(self.dice.below(30_000) as i64);
            let scope = self.pick(&[UniqueScope::Pending, UniqueScope::PendingOrRunning, period]);
            let mode = self.pick(&[OnConflict::Keep, OnConflict::Replace, OnConflict::Hasten]);
            job.unique = Some(unique(["u1", "u2", "it's 100%"][self.dice.below(3) as usize], scope, mode));
        }
        job
    }

    fn scope(&mut self) -> ParkScope {
        let g = group(self.pick(&GROUPS));
        match self.dice.below(8) {
            0..=2 => ParkScope::Queue(queue(self.pick(&QUEUES))),
            3 | 4 => ParkScope::Group(g),
            5 => ParkScope::Connector(connector("api")),
            _ => ParkScope::GroupOnConnector(g, connector("api")),
        }
    }

    fn outcome(&mut self) -> Outcome {
        match self.dice.below(12) {
            0..=4 => Outcome::Complete(self.dice.one_in(2).then(|| json("\"done\""))),
            5..=7 => {
                let category = self.pick(&Category::ALL);
                let mut failure = Failure::new(category, "E_RANDOM", "it's 50% broken; _ and \\ too");
                failure.retry_at =
                    self.dice.one_in(4).then(|| self.now.plus_ms(self.dice.below(40_000) as i64 - 100));
                Outcome::Fail(failure)
            }
            8 | 9 => {
                let until = self.now.plus_ms(self.dice.below(20_000) as i64 - 500);
                let park = self.dice.one_in(4).then(|| self.scope());
                Outcome::Snooze { until, reason: "later".into(), park, gate: None }
            }
            10 => Outcome::Release,
            _ => Outcome::Cancel,
        }
    }

    fn some_ticket(&mut self, tickets: usize) -> usize {
        // Mostly recent ones, sometimes stale ones, sometimes made up.
        let back = if self.dice.one_in(3) { self.dice.below(tickets as u64 + 2) } else { self.dice.below(6) };
        (tickets + 1).saturating_sub(back as usize + 1)
    }

    fn query(&mut self) -> JobQuery {
        JobQuery {
            states: if self.dice.one_in(2) {
                vec![self.pick(&State::ALL), self.pick(&State::ALL)]
            } else {
                vec![]
            },
            queue: self.dice.one_in(3).then(|| queue(self.pick(&QUEUES))),
            kind: self.dice.one_in(4).then(|| kind(self.pick(&KINDS))),
            tenant: self.dice.one_in(4).then(|| tenant("t1")),
            group: self.dice.one_in(4).then(|| group(self.pick(&GROUPS))),
            created_from: self.dice.one_in(5).then(|| START.plus_ms(self.dice.below(100_000) as i64)),
            created_before: self.dice.one_in(5).then(|| START.plus_ms(self.dice.below(200_000) as i64)),
            text: self
                .dice
                .one_in(3)
                .then(|| self.pick(&["\"n\":3", "50%", "_", "E_R", "'", "nothing"]).into()),
            review: self.dice.one_in(6).then(|| self.pick(&[Review::PendingReview, Review::ManualResolved])),
            cause: None,
            category: self.dice.one_in(8).then(|| self.pick(&Category::ALL)),
            connector: None,
            limit: self.dice.below(30) as usize,
            cursor: self.dice.one_in(4).then(|| Seq(self.dice.below(200) as i64)),
        }
    }

    fn pass_time(&mut self) {
        let ms = match self.dice.below(40) {
            0 => -(self.dice.below(900) as i64),
            1 => -(self.dice.below(3_600_000) as i64),
            2 => self.dice.below(100_000) as i64,
            _ => self.dice.below(1_500) as i64,
        };
        self.now = self.now.plus_ms(ms);
    }

    fn next(&mut self, tickets: usize) -> Operation {
        self.pass_time();
        let now = self.now;
        match self.dice.below(104) {
            0..=21 => {
                let n = if self.dice.one_in(40) { 0 } else { 1 + self.dice.below(5) };
                Operation::Enqueue((0..n).map(|_| self.new_job()).collect())
            }
            22..=41 => {
                let process = 1 + self.dice.below(4);
                let queues =
                    QUEUES.iter().filter(|_| self.dice.below(4) > 0).map(|q| queue(q)).collect::<Vec<_>>();
                Operation::Claim(Claim {
                    worker: worker(&format!("w{process}")),
                    process: ProcessId(process),
                    queues: queues.into_iter().map(|q| (q, self.dice.below(8) as u32)).collect(),
                    max: self.dice.below(12) as u32,
                    lease_ms: self.pick(&[1_000, 5_000, 30_000, 30_000, 999]),
                    now,
                })
            }
            42..=59 => {
                let n = 1 + self.dice.below(5);
                let outcomes = (0..n).map(|_| (self.some_ticket(tickets), self.outcome())).collect();
                Operation::Settle(outcomes, self.dice.next_u64())
            }
            60..=64 => Operation::Heartbeat((0..3).map(|_| self.some_ticket(tickets)).collect()),
            65 | 66 => Operation::Report(vec![(
                self.some_ticket(tickets),
                self.dice.below(128) as f64 / 64.0,
                vec!["line".into(); 3],
            )]),
            67..=69 => Operation::Cancel(self.job_id(), self.dice.one_in(3)),
            70 | 71 => Operation::RunNow(self.job_id()),
            72 | 73 => Operation::Reprioritise(self.job_id(), self.pick(&Priority::ALL)),
            74 | 75 => Operation::Get(self.job_id()),
            76 | 77 => Operation::Search(self.query()),
            78 | 79 => Operation::Why(self.job_id()),
            80 => {
                Operation::Dependencies(self.job_id(), self.dice.below(3) as u32, self.dice.below(4) as usize)
            }
            81 => Operation::PutQueue(queue(self.pick(&QUEUES)), Box::new(self.queue_settings())),
            82 if self.dice.one_in(2) => Operation::EnsureQueue(queue("a")),
            82 => {
                Operation::PutKind(kind(KINDS[self.dice.below(3) as usize]), Box::new(self.kind_settings()))
            }
            83 => Operation::Queues,
            84 if self.dice.one_in(3) => Operation::Kinds,
            84 if self.dice.one_in(2) => Operation::Causes(1 + self.dice.below(3) as usize),
            84 => Operation::ProcessLetters { at_once: self.dice.below(3) > 0 },
            85 | 86 => {
                let by = self.pick(&["operator", "gate", ""]).to_owned();
                let until = self.dice.one_in(2).then(|| now.plus_ms(self.dice.below(15_000) as i64 - 500));
                Operation::Park(Park { scope: self.scope(), by, reason: "why not".into(), until })
            }
            87..=89 => Operation::Unpark(self.scope(), self.pick(&["operator", "gate"]).to_owned()),
            90 => Operation::Parks,
            91 => {
                self.made += 1;
                let dead = self.job_id();
                Operation::Recover(vec![Recover { dead, new_id: job_id(self.made) }])
            }
            92 => Operation::Resolve(Resolve {
                id: self.job_id(),
                resolution: self.pick(&[Resolution::ConfigFix, Resolution::Abandoned]),
                by: "ann".into(),
                now,
            }),
            93 | 94 => Operation::Advance,
            95 => Operation::Prune(self.dice.below(30) as usize),
            96 => Operation::Erase(Erase {
                tenant: tenant(self.pick(&["t1", "t3", "nobody"])),
                after: Seq(self.dice.below(3) as i64),
                scan: 1 + self.dice.below(50) as usize,
                now,
            }),
            97 => Operation::Totals,
            98 | 99 => Operation::Restart,
            _ => self.schedule_operation(),
        }
    }

    fn schedule_operation(&mut self) -> Operation {
        let name = ScheduleName::new(self.pick(&SCHEDULES)).expect("a valid name");
        match self.dice.below(8) {
            0..=2 => Operation::PutSchedule(name, Box::new(self.schedule())),
            3 => Operation::DeleteSchedule(name),
            4 => Operation::PauseSchedule(name),
            5 => Operation::ResumeSchedule(name),
            6 => Operation::Schedules,
            _ => Operation::Ticks(name),
        }
    }

    fn schedule(&mut self) -> ScheduleSpec {
        let mut settings = match self.dice.below(3) {
            0 => ScheduleSettings::cron(self.pick(&["* * * * *", "*/20 * * * * *"]), "America/Sao_Paulo"),
            1 => ScheduleSettings::every(self.pick(&["7s", "45s"])),
            _ => ScheduleSettings::at(self.now.plus_ms(self.dice.below(60_000) as i64).to_string()),
        };
        settings.overlap = self.pick(&[Overlap::Skip, Overlap::Queue, Overlap::Allow]);
        settings.missed = self.pick(&[Missed::Skip, Missed::RunOnce, Missed::RunAll(3)]);
        settings.jitter = self.dice.one_in(4).then(|| "3s".into());
        settings.tenant = self.dice.one_in(3).then(|| tenant("t1"));
        if self.dice.one_in(4) {
            settings.after.push(ScheduleName::new(self.pick(&SCHEDULES)).expect("a valid name"));
        }
        ScheduleSpec { kind: kind(self.pick(&KINDS)), settings }
    }
}
