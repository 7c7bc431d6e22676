//! Three processes, their clocks, and what happens to them.

use std::collections::BTreeMap;

use tidegate_conformance::kit;
use tidegate_core::failure::{Category, Failure};
use tidegate_core::ids::{ProcessId, ScheduleName, WorkerId};
use tidegate_core::registry::{KindSettings, QueueSettings, Retention};
use tidegate_core::schedule::{ScheduleSettings, ScheduleSpec};
use tidegate_core::seed::Seed;
use tidegate_core::time::Timestamp;
use tidegate_store::machine::{Change, Machine};
use tidegate_store::params::{Claim, Outcome, PutSchedule, Settle, Settlement, TickQuery, Ticket};
use tidegate_store::rows::ScheduleId;
use tidegate_store::{Error, Result};

use super::referee::{Expected, Referee};
use super::rows::SharedRows;

/// Processes.
const PROCESSES: usize = 3;
const MINUTE: i64 = 60_000;
const HOUR: i64 = 60 * MINUTE;

/// A schedule of the world.
#[derive(Debug, Clone)]
pub struct Planned {
    /// Its name.
    pub name: ScheduleName,
    /// Its settings: a cron expression in a zone.
    pub settings: ScheduleSettings,
}

impl Planned {
    /// A schedule.
    pub fn new(name: &str, settings: ScheduleSettings) -> Self {
        Self { name: self::name(name), settings }
    }
}

pub(super) fn name(text: &str) -> ScheduleName {
    ScheduleName::new(text).expect("a name")
}

/// What happened in a world.
#[derive(Debug, Default)]
pub struct Seen {
    /// Ticks that there were.
    pub ticks: usize,
    /// Ticks that were fired.
    pub fired: u64,
    /// Ticks that were skipped, by reason.
    pub skipped: BTreeMap<&'static str, u64>,
    /// Processes that died.
    pub crashes: u64,
    /// Clocks that stepped.
    pub steps: u64,
    /// Jobs that were run, once or again.
    pub runs: u64,
}

struct Process {
    machine: Option<Machine<SharedRows>>,
    /// How far its clock is off.
    off_ms: i64,
    /// When it comes back, while it is dead.
    back_at: Timestamp,
}

struct World {
    rows: SharedRows,
    processes: Vec<Process>,
    dice: Seed,
    /// True time.
    now: Timestamp,
    /// Jobs that run: when they end, and how.
    running: BTreeMap<(Timestamp, Ticket), Outcome>,
    /// How far each ledger was read.
    ledgers: BTreeMap<ScheduleId, (ScheduleName, u64)>,
    /// How many lines ledgers have in which something happened.
    news: BTreeMap<ScheduleId, u64>,
    expected: Expected,
    referee: Referee,
    seen: Seen,
}

/// Runs schedules from one time to another. `Err`: what was wrong, with the seed.
///
/// # Panics
///
/// If a schedule has no expression or no zone.
pub fn run(
    seed: u64,
    planned: &[Planned],
    from: Timestamp,
    to: Timestamp,
) -> std::result::Result<Seen, String> {
    let crons = planned.iter().map(|p| {
        let (cron, zone) = (p.settings.cron.as_deref(), p.settings.zone.as_deref());
        (&p.name, cron.expect("a cron expression"), zone.expect("a zone"))
    });
    let expected = Expected::walk(crons, from, to.plus_ms(3 * HOUR));
    let mut world = World::new(seed, from, expected);
    world.put(planned).and_then(|()| world.live(to)).map_err(|error| format!("seed {seed}: {error}"))?;
    world.referee.judge(&world.expected, to).map_err(|why| format!("seed {seed}: {why}"))?;
    let World { mut seen, referee, expected, .. } = world;
    (seen.ticks, seen.fired, seen.skipped) = (expected.count(), referee.fired, referee.skipped);
    Ok(seen)
}

impl World {
    fn new(seed: u64, now: Timestamp, expected: Expected) -> Self {
        let rows = SharedRows::new(now);
        let process = |_| Process { machine: Some(opened(&rows)), off_ms: 0, back_at: now };
        Self {
            processes: (0..PROCESSES).map(process).collect(),
            rows,
            dice: Seed::new(seed),
            now,
            running: BTreeMap::new(),
            ledgers: BTreeMap::new(),
            news: BTreeMap::new(),
            expected,
            referee: Referee::default(),
            seen: Seen::default(),
        }
    }

    fn put(&mut self, planned: &[Planned]) -> Result<()> {
        let queue = kit::queue("q");
        let retention = Retention { count: 10, age_ms: HOUR };
        let settings = QueueSettings { retention, ..QueueSettings::default() };
        self.step(0, |m, now| m.put_queue(queue.clone(), settings, now))?;
        let kind = kit::kind("k");
        self.step(0, |m, _| m.put_kind(kind.clone(), KindSettings::new(queue)))?;
        for p in planned {
            let spec = ScheduleSpec { kind: kind.clone(), settings: p.settings.clone() };
            self.step(0, |m, now| m.put_schedule(PutSchedule { name: p.name.clone(), spec, now }))?;
        }
        Ok(())
    }

    /// An operation of one process; those that are alive follow.
    fn step<T>(
        &mut self,
        i: usize,
        operation: impl FnOnce(&mut Machine<SharedRows>, Timestamp) -> Result<T>,
    ) -> Result<T> {
        let now = self.now.plus_ms(self.processes[i].off_ms);
        let Some(machine) = self.processes[i].machine.as_mut() else {
            return Err(Error::internal("a dead process was asked"));
        };
        let reply = operation(machine, now)?;
        let changes = machine.take_changes();
        machine.take_signals();
        self.rows.set_position(machine.position());
        for change in &changes {
            match change {
                Change::Schedule(new) => drop(self.ledgers.insert(new.id, (new.name.clone(), 0))),
                Change::ScheduleState { id, state } => drop(self.news.insert(*id, state.next_no)),
                _ => {}
            }
        }
        if changes.is_empty() {
            return Ok(reply);
        }
        // Their stored form is what the flock of the conformance suite goes through.
        for (_, other) in self.processes.iter_mut().enumerate().filter(|(j, _)| *j != i) {
            if let Some(machine) = other.machine.as_mut() {
                machine.follow(&changes)?;
                machine.take_signals();
            }
        }
        Ok(reply)
    }

    /// Who is awake next: whoever's clock is ahead of the others', and now and then another one.
    fn awake(&mut self) -> Option<usize> {
        let alive: Vec<usize> = (0..PROCESSES).filter(|i| self.processes[*i].machine.is_some()).collect();
        let any = *alive.get(self.dice.below(alive.len() as u64) as usize)?;
        let ahead = alive.into_iter().max_by_key(|i| self.processes[*i].off_ms);
        if self.dice.one_in(4) { Some(any) } else { ahead }
    }

    fn live(&mut self, to: Timestamp) -> Result<()> {
        let mut next_trouble = self.now.plus_ms(HOUR);
        let mut next_prune = self.now;
        let heal_at = to.plus_ms(HOUR);
        let end = to.plus_ms(2 * HOUR);
        let mut healed = false;
        while self.now < end {
            if self.now >= heal_at && !healed {
                healed = true;
                self.heal();
            }
            self.revive();
            if self.now >= next_trouble && !healed {
                self.trouble();
                next_trouble = self.now.plus_ms(self.dice.below(12 * HOUR as u64) as i64);
            }
            let mut wakes = vec![heal_at.max(self.now.plus_ms(1)), next_trouble];
            if let Some(i) = self.awake() {
                let done = self.step(i, Machine::advance)?;
                self.look(i)?;
                self.work(i, done.fired + done.promoted + done.rescued > 0)?;
                if self.now >= next_prune {
                    self.step(i, |m, now| m.prune(1_000, now))?;
                    next_prune = self.now.plus_ms(HOUR);
                }
                let off = self.processes[i].off_ms;
                wakes.extend(done.next_wakeup.map(|at| at.plus_ms(-off)));
            }
            wakes.extend(self.processes.iter().filter(|p| p.machine.is_none()).map(|p| p.back_at));
            wakes.extend(self.running.keys().next().map(|(at, _)| *at));
            let next = wakes.into_iter().filter(|at| *at > self.now).min().unwrap_or(end);
            // Whoever has a clock that is behind is asked again before long.
            self.now = next.min(self.now.plus_ms(5 * MINUTE)).min(end);
        }
        Ok(())
    }

    /// Jobs are claimed, end, or are lost with their process.
    fn work(&mut self, i: usize, mut more: bool) -> Result<()> {
        while let Some(entry) = self.running.first_entry().filter(|entry| entry.key().0 <= self.now) {
            let ((_, ticket), outcome) = entry.remove_entry();
            let seed = self.dice.next_u64();
            let settlements = vec![Settlement { ticket, outcome }];
            self.step(i, |m, now| m.settle(Settle { settlements, now, seed }))?;
            self.look(i)?;
            more = true;
        }
        if !more {
            return Ok(());
        }
        let claim = |now| Claim {
            worker: WorkerId::new("w").expect("a name"),
            process: ProcessId(i as u64),
            queues: vec![(kit::queue("q"), 100)],
            max: 100,
            lease_ms: 30 * MINUTE,
            now,
        };
        let claimed = self.step(i, |m, now| m.claim(claim(now)))?;
        self.look(i)?;
        for job in claimed.jobs {
            self.seen.runs += 1;
            // Most are short, some take up to half an hour; a few are never heard of again, and some fail for good.
            let takes = match self.dice.below(20) {
                0 => self.dice.below(30 * MINUTE as u64) as i64,
                _ => self.dice.below(10_000) as i64,
            };
            let outcome = match self.dice.below(200) {
                0 => continue,
                1..=4 => Outcome::Fail(Failure::new(Category::InvalidInput, "E", "it cannot work")),
                5..=9 => Outcome::Fail(Failure::new(Category::TransientNetwork, "E", "it did not work")),
                _ => Outcome::Complete(None),
            };
            self.running.insert((self.now.plus_ms(takes), job.ticket), outcome);
        }
        Ok(())
    }

    /// The referee reads what is new in the ledgers.
    fn look(&mut self, i: usize) -> Result<()> {
        let Some(machine) = self.processes[i].machine.as_mut() else { return Ok(()) };
        for (id, next) in std::mem::take(&mut self.news) {
            let Some((name, read)) = self.ledgers.get_mut(&id) else { continue };
            if next == *read {
                continue;
            }
            let query = TickQuery { name: name.clone(), before: None, limit: (next - *read) as usize };
            for line in machine.schedule_ticks(&query)?.iter().rev() {
                self.referee.see(name, line, &self.expected).map_err(Error::internal)?;
            }
            *read = next;
        }
        Ok(())
    }

    /// A process dies, or a clock steps.
    fn trouble(&mut self) {
        let i = self.dice.below(PROCESSES as u64) as usize;
        if self.dice.one_in(3) {
            self.seen.steps += 1;
            self.processes[i].off_ms = [-HOUR, 0, HOUR][self.dice.below(3) as usize];
            return;
        }
        if self.processes[i].machine.take().is_some() {
            self.seen.crashes += 1;
            // Mostly it is back at once; sometimes nobody is there for hours.
            let away = if self.dice.one_in(4) { 8 * HOUR } else { 5 * MINUTE };
            self.processes[i].back_at = self.now.plus_ms(1 + self.dice.below(away as u64) as i64);
        }
        if self.dice.one_in(10) {
            let back_at = self.now.plus_ms(1 + self.dice.below(6 * HOUR as u64) as i64);
            for process in &mut self.processes {
                self.seen.crashes += u64::from(process.machine.take().is_some());
                process.back_at = back_at;
            }
        }
    }

    fn revive(&mut self) {
        for process in &mut self.processes {
            if process.machine.is_none() && process.back_at <= self.now {
                process.machine = Some(opened(&self.rows));
            }
        }
    }

    fn heal(&mut self) {
        for process in &mut self.processes {
            process.off_ms = 0;
            process.back_at = self.now;
        }
    }
}

/// A process starts: it reads what there is and goes on from there.
fn opened(rows: &SharedRows) -> Machine<SharedRows> {
    let mut machine = Machine::open(rows.clone(), rows.position().now).expect("rows can be read");
    machine.record_changes(true);
    machine.take_signals();
    machine
}
