//! Rebuilding the memory from rows: at start, and after a failed commit.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};

use tidegate_core::codes;
use tidegate_core::ids::{LeaseId, Seq};
use tidegate_core::job::State;
use tidegate_core::lanes::{Exclusive, Lanes, Window};
use tidegate_core::leases::{Lease, Leases, Running};
use tidegate_core::time::Timestamp;

use super::names::NameBook;
use super::{Machine, PendingSignals, exclusive};
use crate::rows::{LeaseRow, Names, Rows, Scanned, Stored};
use crate::{Error, Result};

impl<R: Rows> Machine<R> {
    /// Rebuilds everything from rows.
    pub fn open(mut rows: R, now: Timestamp) -> Result<Self> {
        let names = rows.names()?;
        let leases = rows.leases()?;
        let next_lease = rows.first_lease()?.0;
        let next_due = rows.next_due()?;
        let reserved = rows.reserved_seq()?.0.max(1);
        let mut machine = Self {
            rows,
            lanes: Lanes::default(),
            leases: Leases::default(),
            names: NameBook::default(),
            with_state: HashSet::new(),
            counts: HashMap::new(),
            tenant_ready: HashMap::new(),
            lane_jobs: HashMap::new(),
            tenant_jobs: HashMap::new(),
            next_seq: reserved,
            reserved_seq: reserved,
            next_lease,
            next_due,
            last_now: now,
            stale_refused: 0,
            signals: PendingSignals { work: true, ..PendingSignals::default() },
            draining: HashMap::new(),
        };
        machine.restore_names(names)?;
        machine.restore_jobs(leases)?;
        Ok(machine)
    }

    fn restore_names(&mut self, names: Names) -> Result<()> {
        let now = self.last_now;
        for (id, name, settings) in names.queues {
            self.names.put_queue(Some(id), &name, &settings);
            self.lanes.put_queue(id, &name, &settings, now);
        }
        for (id, name, settings) in names.kinds {
            self.names.put_kind(Some(id), &name, &settings);
        }
        for (no, name) in names.tenants {
            self.names.put_tenant(Some(no), &name);
        }
        for (id, key) in names.lanes {
            self.names.next_lane = self.names.next_lane.max(id.0);
            self.lanes.add_lane(id, key);
        }
        for park in names.parks {
            self.lanes.park(park, now);
        }
        for of_queue in names.starts.chunk_by(|a, b| a.0 == b.0) {
            let queue = of_queue[0].0;
            let window = Window::from_starts(of_queue.iter().map(|(_, at, n)| ((*at).min(now), *n)));
            // A clock that went back while we were away must not hold starts for longer than a window, and not again
            // after the next restart either.
            self.lanes.restore_window(queue, window);
            if of_queue.iter().any(|(_, at, _)| *at > now) {
                self.rewrite_starts(queue)?;
            }
        }
        Ok(())
    }

    fn restore_jobs(&mut self, leases: Vec<LeaseRow>) -> Result<()> {
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
        let Self { rows, lanes, counts, with_state, tenant_ready, lane_jobs, tenant_jobs, last_now, .. } =
            self;
        rows.scan(&mut |scanned| {
            let Scanned { seq, lane, tenant, run_at, stored, state } = scanned;
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
                Stored::Finished(state) => counts.entry(queue).or_default().of(state),
                Stored::Delayed => counts.entry(queue).or_default().of(State::Scheduled),
                Stored::Open => {
                    let settled = state.and_then(|s| s.settled);
                    if let Some(lease) = covered.get(&seq).filter(|l| settled.is_none_or(|s| s < **l)) {
                        held.entry(*lease).or_default().push(seq);
                        return;
                    }
                    let ready_at = state.and_then(|s| s.run_at).unwrap_or(run_at).min(*last_now);
                    match state.filter(|s| s.suspect) {
                        Some(s) => {
                            lanes.add_suspect(ready_lane, seq, exclusive(s.lone_stalls), ready_at, *last_now);
                        }
                        None => lanes.add_ready(ready_lane, seq, ready_at, *last_now),
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
        for row in leases {
            match held.remove(&row.id) {
                Some(jobs) => self.restore_lease(row, jobs)?,
                None => self.rows.delete_lease(row.id)?,
            }
        }
        Ok(())
    }

    fn restore_lease(&mut self, row: LeaseRow, jobs: Vec<Seq>) -> Result<()> {
        let now = self.last_now;
        // A clock that went back while we were away must not hold jobs for longer than a lease.
        let until = row.until.min(now.plus_ms(row.length_ms));
        if until != row.until {
            self.rows.extend_lease(row.id, until)?;
        }
        let mut running = Vec::with_capacity(jobs.len());
        for &seq in &jobs {
            let job =
                self.rows.job(seq)?.ok_or_else(|| Error::internal(format!("job {} is missing", seq.0)))?;
            let state = self.state_of(seq)?;
            self.lanes.restore_running(job.lane, now);
            running.push((
                seq,
                Running {
                    lease: row.id,
                    lane: job.lane,
                    attempt: state.failures + 1,
                    unique: job.extra.is_some_and(|e| e.unique.is_some()),
                    cancel_requested: state.cancel_note.is_some(),
                },
            ));
        }
        let lease = Lease {
            id: row.id,
            worker: row.worker,
            process: row.process,
            since: row.since,
            until,
            length_ms: row.length_ms,
            lone: row.lone.map(Exclusive),
            jobs: jobs.into_iter().collect::<BTreeSet<_>>(),
        };
        self.leases.add(lease, running);
        Ok(())
    }
}
