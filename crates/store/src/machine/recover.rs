//! Rebuilding the memory from rows: at start, and after a failed commit.

use std::collections::{BTreeMap, HashMap};

use tidegate_core::codes;
use tidegate_core::hash::{KeyMap, KeySet};
use tidegate_core::ids::{LeaseId, Seq};
use tidegate_core::job::{State, UniqueScope};
use tidegate_core::lanes::{Exclusive, Lanes, QueueId, Window};
use tidegate_core::leases::{Lease, Leases, Running};
use tidegate_core::time::Timestamp;

use super::memory::{Known, Memory};
use super::names::NameBook;
use super::timetable::Timetable;
use super::{Machine, exclusive};
use crate::rows::{LeaseRow, Names, Reads, Rows, Scanned, ScheduleRow, StateRow, Stored};
use crate::{Error, Result};

impl<R: Rows> Machine<R> {
    /// Rebuilds everything from rows.
    pub fn open(mut rows: R, now: Timestamp) -> Result<Self> {
        let names = rows.names()?;
        let leases = rows.leases()?;
        let next_lease = rows.first_lease()?.0;
        let next_due = rows.next_due()?;
        let reserved = rows.reserved_seq()?.0.max(1);
        let mut known = Known {
            now,
            lanes: Lanes::default(),
            leases: Leases::default(),
            names: NameBook::default(),
            timetable: Timetable::default(),
            with_state: KeySet::default(),
            counts: KeyMap::default(),
            tenant_ready: KeyMap::default(),
            lane_jobs: KeyMap::default(),
            tenant_jobs: KeyMap::default(),
            finished: KeyMap::default(),
            next_seq: reserved,
            next_lease,
            next_due,
            dependents: KeyMap::default(),
            untold: BTreeMap::new(),
            edges: 0,
        };
        restore_names(&mut known, &mut rows, names)?;
        restore_jobs(&mut known, &mut rows, leases)?;
        for ScheduleRow { id, name, spec, state } in rows.schedules()? {
            known.timetable.put(id, &name, &spec, &state);
        }
        let (dependents, edges) = rows.edges()?;
        known.dependents.extend(dependents);
        known.edges = edges;
        known.untold.extend(rows.untold()?);
        Ok(Self {
            rows,
            memory: Memory::new(known),
            reserved_seq: reserved,
            clock_slack_ms: super::CLOCK_SLACK_MS,
            last_now: now,
            due_left: false,
            stale_refused: 0,
            turned: KeyMap::default(),
            ended: vec![],
            draining: HashMap::new(),
        })
    }

    /// Writes the starts of a queue's limiter as they are in memory.
    pub(super) fn rewrite_starts(&mut self, queue: QueueId) -> Result<()> {
        rewrite_starts(&self.memory, &mut self.rows, queue)
    }
}

fn rewrite_starts(known: &Known, rows: &mut impl Rows, queue: QueueId) -> Result<()> {
    rows.drop_starts(queue, Timestamp(i64::MAX))?;
    for (at, n) in known.lanes.window(queue).into_iter().flat_map(Window::starts) {
        rows.add_starts(queue, at, n)?;
    }
    Ok(())
}

fn restore_names(known: &mut Known, rows: &mut impl Rows, names: Names) -> Result<()> {
    let now = known.now;
    for (id, name, settings) in names.queues {
        known.names.put_queue(id, &name, &settings);
        known.lanes.put_queue(id, &name, &settings, now);
    }
    for (id, name, settings) in names.kinds {
        known.names.put_kind(id, &name, &settings);
        known.lanes.cap_kind(id, settings.concurrency);
    }
    known.names.policies = names.policies;
    known.names.version = names.version;
    for (no, name) in names.tenants {
        known.names.put_tenant(no, &name);
    }
    for (id, key) in names.lanes {
        known.names.put_lane(id);
        known.lanes.add_lane(id, key);
    }
    for park in names.parks {
        known.lanes.park(park, now);
    }
    for of_queue in names.starts.chunk_by(|a, b| a.0 == b.0) {
        let queue = of_queue[0].0;
        let window = Window::from_starts(of_queue.iter().map(|(_, at, n)| ((*at).min(now), *n)));
        // A clock that went back while we were away must not hold starts for longer than a window, and not again
        // after the next restart either.
        known.lanes.restore_window(queue, window);
        if of_queue.iter().any(|(_, at, _)| *at > now) {
            rewrite_starts(known, rows, queue)?;
        }
    }
    Ok(())
}

fn restore_jobs<R: Rows>(known: &mut Known, rows: &mut R, leases: Vec<LeaseRow>) -> Result<()> {
    // The newest lease that covers a job is the only one that may hold it.
    let mut covered: HashMap<Seq, LeaseId> = HashMap::new();
    for lease in &leases {
        for seq in &lease.jobs {
            let newest = covered.entry(*seq).or_insert(lease.id);
            *newest = (*newest).max(lease.id);
        }
    }
    let mut held: BTreeMap<LeaseId, Vec<Seq>> = BTreeMap::new();
    let mut lost_lane = None;
    // Rows are streamed: there can be millions, and only the ready ones take memory.
    let Known { lanes, counts, with_state, tenant_ready, lane_jobs, tenant_jobs, finished, now, .. } = known;
    rows.scan(&mut |scanned| {
        let Scanned { seq, lane, tenant, run_at, waits, stored, state } = scanned;
        let moved = state.and_then(|s| s.lane);
        let ready_lane = moved.unwrap_or(lane);
        let Some(queue) = lanes.lane_key(ready_lane).map(|key| key.queue) else {
            lost_lane = Some(ready_lane);
            return;
        };
        for used in [Some(lane), moved].into_iter().flatten() {
            *lane_jobs.entry(used).or_default() += 1;
        }
        if state.is_some() {
            with_state.insert(seq);
        }
        if let Some(tenant) = tenant {
            *tenant_jobs.entry(tenant).or_default() += 1;
        }
        let count = match stored {
            Stored::Finished(state, at) => {
                let own = lanes.lane_key(lane).and_then(|key| key.kind).filter(|_| state != State::Dead);
                if let Some(kind) = own {
                    finished.entry(kind).or_default().insert(seq, at);
                }
                counts.entry(queue).or_default().of(state)
            }
            Stored::Delayed => counts.entry(queue).or_default().of(State::Scheduled),
            Stored::Blocked => counts.entry(queue).or_default().of(State::Blocked),
            Stored::Open => {
                let settled = state.and_then(|s| s.settled);
                if let Some(lease) = covered.get(&seq).filter(|l| settled.is_none_or(|s| s < **l)) {
                    held.entry(*lease).or_default().push(seq);
                    return;
                }
                // When a job was released is not stored: what it waited for others is no reason to hurry.
                let since = if waits { *now } else { run_at };
                let ready_at = state.and_then(|s| s.run_at).unwrap_or(since).min(*now);
                match state.filter(|s| s.suspect) {
                    Some(s) => {
                        lanes.add_suspect(ready_lane, seq, exclusive(s.lone_stalls), ready_at, *now);
                    }
                    None => lanes.add_ready(ready_lane, seq, ready_at, *now),
                }
                tenant.map(|tenant| tenant_ready.entry((queue, tenant)).or_default())
            }
        };
        if let Some(n) = count {
            *n += 1;
        }
    })?;
    if let Some(lane) = lost_lane {
        return Err(Error::new(codes::CORRUPT, format!("a job names lane {}, which is missing", lane.0)));
    }
    if R::PREFETCHES && !held.is_empty() {
        let jobs: Vec<Seq> = held.values().flatten().copied().collect();
        let states = jobs.iter().filter(|seq| known.with_state.contains(seq)).copied().collect();
        rows.will_read(&Reads { jobs, states, ..Reads::default() })?;
    }
    for row in leases {
        match held.remove(&row.id) {
            Some(jobs) => restore_lease(known, rows, row, jobs)?,
            None => rows.delete_lease(row.id)?,
        }
    }
    Ok(())
}

fn restore_lease(known: &mut Known, rows: &mut impl Rows, row: LeaseRow, jobs: Vec<Seq>) -> Result<()> {
    let now = known.now;
    // A clock that went back while we were away must not hold jobs for longer than a lease.
    let until = row.until.min(now.plus_ms(row.length_ms));
    if until != row.until {
        rows.extend_lease(row.id, until)?;
    }
    let mut running = Vec::with_capacity(jobs.len());
    for &seq in &jobs {
        let job = rows.job(seq)?.ok_or_else(|| Error::internal(format!("job {} is missing", seq.0)))?;
        let has_state = known.with_state.contains(&seq);
        let state = if has_state { rows.state(seq)?.unwrap_or_default() } else { StateRow::default() };
        known.lanes.restore_running(job.lane, now);
        let unique = job.extra.and_then(|e| e.unique);
        running.push(Running {
            lease: row.id,
            id: job.id,
            kind: job.kind,
            tenant: job.tenant,
            lane: job.lane,
            attempt: state.failures + 1,
            unique: unique.is_some_and(|u| u.scope == UniqueScope::PendingOrRunning),
            cancel_requested: state.cancel_note.is_some(),
        });
    }
    let lease = Lease {
        id: row.id,
        worker: row.worker,
        process: row.process,
        since: row.since,
        until,
        length_ms: row.length_ms,
        lone: row.lone.map(Exclusive),
        jobs,
    };
    known.leases.add(lease, running);
    Ok(())
}
