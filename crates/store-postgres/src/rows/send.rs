//! From gathered writes to statements: one for each table and kind of write, all sent without waiting.

use bytes::Bytes;
use serde::Serialize;
use tidegate_core::ids::{ConnectorName, Seq, TenantId};
use tidegate_core::job::State;
use tidegate_core::payload::Payload;
use tidegate_core::registry::Outcome;
use tidegate_store::Result;
use tidegate_store::rows::{DoneRow, JobRow};
use uuid::Uuid;

use super::copy;
use super::gathered::{Gathered, NameWrite};
use super::runs::Runs;
use super::signed;
use crate::error::corrupt;
use crate::link::{Link, Request};
use crate::statements::Sql;

/// Most rows and bytes of payload in one statement: its params are built in memory on both sides.
const ROWS: usize = 5_000;
const BYTES: usize = 16 << 20;

/// Rows from which on they are copied, which takes one more round trip and less work of the server for each.
pub(crate) const COPY_FROM: usize = 100;

/// New jobs, or bytes of their payloads, after which it is looked whether some can be copied while the machine goes on.
const PIECE_ROWS: usize = 128;
const PIECE_BYTES: usize = 1 << 20;

pub(super) type Requests<'a> = Vec<Request<'a, ()>>;

macro_rules! send {
    ($link:ident, $requests:ident, $sql:expr, $($param:ident),+) => {
        $requests.push(Box::pin(async move { $link.execute($sql, &[$(&$param),+]).await.map(drop) }))
    };
}
pub(super) use send;

/// How many of these jobs go into one statement.
fn fitting(jobs: &[(Seq, JobRow)]) -> usize {
    let mut bytes = 0;
    let fits = |(_, job): &&(_, JobRow)| {
        bytes += job.payload.as_str().len();
        bytes <= BYTES
    };
    jobs.iter().take(ROWS).take_while(fits).count().max(1).min(jobs.len())
}

impl Gathered {
    /// Adds a job. Whether there are enough of them to look if some can be copied meanwhile.
    pub(super) fn add_job(&mut self, seq: Seq, row: &JobRow) -> bool {
        self.new_jobs.push((seq, row.clone()));
        self.unseen = (self.unseen.0 + 1, self.unseen.1 + row.payload.as_str().len());
        let enough = self.unseen.0 >= PIECE_ROWS || self.unseen.1 >= PIECE_BYTES;
        if enough {
            self.unseen = (0, 0);
        }
        enough
    }

    /// New jobs to be copied meanwhile, as the server takes them.
    pub(super) fn take_piece(&mut self) -> Result<Bytes> {
        let rest = &self.new_jobs[self.copied..];
        let piece = &rest[..fitting(rest)];
        self.copied += piece.len();
        copy::jobs(piece)
    }

    /// The statements that write everything.
    pub(super) fn requests<'a>(&'a self, link: &'a Link) -> Result<Requests<'a>> {
        let mut requests: Requests<'a> = vec![];
        self.send_names(link, &mut requests)?;
        self.send_schedules(link, &mut requests)?;
        self.send_jobs(link, &mut requests)?;
        self.send_times(link, &mut requests)?;
        self.send_lists(link, &mut requests);
        self.send_claims(link, &mut requests);
        self.send_flows(link, &mut requests)?;
        self.send_deletes(link, &mut requests);
        Ok(requests)
    }

    fn send_names<'a>(&'a self, link: &'a Link, requests: &mut Requests<'a>) -> Result<()> {
        let lanes: Vec<_> = self.lanes.iter().filter_map(|(id, key)| Some((id, key.as_ref()?))).collect();
        if !lanes.is_empty() {
            let ids: Vec<i32> = lanes.iter().map(|(id, _)| signed(id.0)).collect();
            let queues: Vec<i32> = lanes.iter().map(|(_, key)| signed(key.queue.0)).collect();
            let levels: Vec<i16> = lanes.iter().map(|(_, key)| i16::from(key.priority.level())).collect();
            let groups: Vec<&str> = lanes.iter().map(|(_, key)| key.group.as_str()).collect();
            let connectors: Vec<Option<&str>> =
                lanes.iter().map(|(_, key)| key.connector.as_ref().map(ConnectorName::as_str)).collect();
            let kinds: Vec<Option<i32>> =
                lanes.iter().map(|(_, key)| key.kind.map(|k| signed(k.0))).collect();
            send!(link, requests, Sql::LanesPut, ids, queues, levels, groups, connectors, kinds);
        }
        let tenants: Vec<_> = self.tenants.iter().filter_map(|(no, t)| Some((no, t.as_ref()?))).collect();
        if !tenants.is_empty() {
            let ids: Vec<i32> = tenants.iter().map(|(no, _)| signed(no.0)).collect();
            let names: Vec<&str> = tenants.iter().map(|(_, name)| name.as_str()).collect();
            send!(link, requests, Sql::TenantsPut, ids, names);
        }
        for write in &self.names {
            match write {
                NameWrite::Queue(id, name, settings) => {
                    let (id, name, settings) = (signed(id.0), name.as_str(), json("a queue", settings)?);
                    send!(link, requests, Sql::QueuesPut, id, name, settings);
                }
                NameWrite::Kind(id, name, settings) => {
                    let (id, name, settings) = (signed(id.0), name.as_str(), json("a kind", settings)?);
                    send!(link, requests, Sql::KindsPut, id, name, settings);
                }
                NameWrite::Park(park) => {
                    let (scope, by) = (json("a park", &park.scope)?, json("a park", &park.by)?);
                    let body = json("a park", park)?;
                    send!(link, requests, Sql::ParksPut, scope, by, body);
                }
                NameWrite::Unpark(scope, by) => {
                    let (scope, by) = (json("a park", scope)?, json("a park", by)?);
                    send!(link, requests, Sql::ParksDelete, scope, by);
                }
                NameWrite::AddStarts(queue, at, n) => {
                    let (queue, at, n) = (signed(queue.0), at.0, signed(*n));
                    send!(link, requests, Sql::StartsAdd, queue, at, n);
                }
                NameWrite::DropStarts(queue, upto) => {
                    let (queue, upto) = (signed(queue.0), upto.0);
                    send!(link, requests, Sql::StartsDrop, queue, upto);
                }
                NameWrite::Policies(policies) => {
                    let body = json("the policies", policies)?;
                    send!(link, requests, Sql::PoliciesPut, body);
                }
                NameWrite::Version(version, keep) => {
                    let refused = version.info.outcome == Outcome::Refused;
                    let (number, keep) = (version.info.number.cast_signed(), *keep as i64);
                    let info = json("a version", &version.info)?;
                    let document = version.document.as_ref().map(|d| json("a version", d)).transpose()?;
                    send!(link, requests, Sql::VersionsAdd, number, refused, info, document);
                    send!(link, requests, Sql::VersionsForget, refused, keep);
                }
                NameWrite::Round(round) => {
                    let (name, body) = (super::letters::LETTERS, json("a round", round)?);
                    send!(link, requests, Sql::RoundsPut, name, body);
                }
            }
        }
        Ok(())
    }

    fn send_jobs<'a>(&'a self, link: &'a Link, requests: &mut Requests<'a>) -> Result<()> {
        let mut rest = &self.new_jobs[self.copied..];
        while !rest.is_empty() {
            let n = fitting(rest);
            let (now, later) = rest.split_at(n);
            rest = later;
            if n >= COPY_FROM {
                let rows = copy::jobs(now)?;
                requests.push(Box::pin(link.copy(Sql::JobsCopy, rows)));
                continue;
            }
            let mut extras = Vec::with_capacity(n);
            for (_, job) in now {
                extras.push(job.extra.as_ref().map(|e| json("a job", e)).transpose()?);
            }
            let seqs: Vec<i64> = now.iter().map(|(seq, _)| seq.0).collect();
            let created: Vec<i64> = now.iter().map(|(_, job)| job.created_at.0).collect();
            let run_at: Vec<i64> = now.iter().map(|(_, job)| job.run_at.0).collect();
            let timeouts: Vec<i64> = now.iter().map(|(_, job)| job.timeout_ms).collect();
            let ids: Vec<Uuid> = now.iter().map(|(_, job)| job.id.uuid()).collect();
            let kinds: Vec<i32> = now.iter().map(|(_, job)| signed(job.kind.0)).collect();
            let lanes: Vec<i32> = now.iter().map(|(_, job)| signed(job.lane.0)).collect();
            let tenants: Vec<Option<i32>> =
                now.iter().map(|(_, job)| job.tenant.map(|t| signed(t.0))).collect();
            let attempts: Vec<Option<i32>> =
                now.iter().map(|(_, job)| job.max_attempts.map(signed)).collect();
            let payloads: Vec<&str> = now.iter().map(|(_, job)| job.payload.as_str()).collect();
            let sql = Sql::JobsInsert;
            send!(
                link, requests, sql, seqs, created, run_at, timeouts, ids, kinds, lanes, tenants, attempts,
                extras, payloads
            );
        }
        if !self.states.is_empty() {
            let rows = || self.states.values();
            let mut bodies = Vec::with_capacity(self.states.len());
            for row in rows() {
                bodies.push(json("a job's state", row)?);
            }
            let seqs: Vec<i64> = self.states.keys().map(|seq| seq.0).collect();
            let settled: Vec<Option<i64>> = rows().map(|row| row.settled.map(|l| l.0)).collect();
            let run_at: Vec<Option<i64>> = rows().map(|row| row.run_at.map(|t| t.0)).collect();
            let lanes: Vec<Option<i32>> = rows().map(|row| row.lane.map(|l| signed(l.0))).collect();
            let stalls: Vec<i32> = rows().map(|row| signed(row.lone_stalls)).collect();
            let suspects: Vec<bool> = rows().map(|row| row.suspect).collect();
            send!(link, requests, Sql::StatesPut, seqs, settled, run_at, lanes, stalls, suspects, bodies);
        }
        Ok(())
    }

    fn send_times<'a>(&'a self, link: &'a Link, requests: &mut Requests<'a>) -> Result<()> {
        if !self.unmarked.is_empty() {
            let Runs { first, last } = Runs::of(self.unmarked.iter().copied());
            send!(link, requests, Sql::DoneTakeBack, first, last);
        }
        if self.done.len() >= COPY_FROM {
            requests.push(Box::pin(link.copy(Sql::DoneCopy, copy::done(&self.done)?)));
        } else if !self.done.is_empty() {
            let rows = || self.done.values();
            let mut letters = Vec::with_capacity(self.done.len());
            let mut states = Vec::with_capacity(self.done.len());
            for row in rows() {
                letters.push(row.letter.as_ref().map(|l| json("a dead letter", l)).transpose()?);
                states.push(state_code(row.state)?);
            }
            let seqs: Vec<i64> = self.done.keys().map(|seq| seq.0).collect();
            let at: Vec<i64> = rows().map(|row| row.at.0).collect();
            let queues: Vec<i32> = rows().map(|row| signed(row.queue.0)).collect();
            let attempts: Vec<i32> = rows().map(|row| signed(row.attempt)).collect();
            let results: Vec<Option<&str>> =
                rows().map(|row: &DoneRow| row.result.as_ref().map(Payload::as_str)).collect();
            send!(link, requests, Sql::DoneInsert, seqs, at, queues, attempts, states, results, letters);
        }
        if !self.letters.is_empty() {
            let seqs: Vec<i64> = self.letters.keys().map(|seq| seq.0).collect();
            let mut letters = Vec::with_capacity(seqs.len());
            for letter in self.letters.values() {
                letters.push(json("a dead letter", letter)?);
            }
            send!(link, requests, Sql::DonePutLetters, seqs, letters);
        }
        for (sql, set) in [(Sql::DelayedDelete, &self.undelayed), (Sql::DelayedInsert, &self.delayed)] {
            if !set.is_empty() {
                let times: Vec<i64> = set.iter().map(|(run_at, _)| run_at.0).collect();
                let seqs: Vec<i64> = set.iter().map(|(_, seq)| seq.0).collect();
                send!(link, requests, sql, times, seqs);
            }
        }
        Ok(())
    }

    fn send_claims<'a>(&'a self, link: &'a Link, requests: &mut Requests<'a>) {
        for row in self.leases.values() {
            let (id, process) = (row.id.0, row.process.0.cast_signed());
            let (since, until, length) = (row.since.0, row.until.0, row.length_ms);
            let (lone, worker) = (row.lone, row.worker.as_str());
            let jobs: Vec<i64> = row.jobs.iter().map(|seq| seq.0).collect();
            send!(link, requests, Sql::LeasesInsert, id, process, since, until, length, lone, worker, jobs);
        }
        if !self.extended.is_empty() {
            let ids: Vec<i64> = self.extended.keys().map(|id| id.0).collect();
            let ends: Vec<i64> = self.extended.values().map(|t| t.0).collect();
            send!(link, requests, Sql::LeasesExtend, ids, ends);
        }
        if !self.ended.is_empty() {
            let ids: Vec<i64> = self.ended.iter().map(|id| id.0).collect();
            send!(link, requests, Sql::LeasesDelete, ids);
        }
        if !self.freed.is_empty() {
            let kinds: Vec<i32> = self.freed.iter().map(|(kind, _, _)| signed(kind.0)).collect();
            let keys: Vec<&str> = self.freed.iter().map(|(_, key, _)| key.as_str()).collect();
            let seqs: Vec<i64> = self.freed.iter().map(|(_, _, seq)| seq.0).collect();
            send!(link, requests, Sql::UniquesDelete, kinds, keys, seqs);
        }
        let given: Vec<_> = self.uniques.iter().filter_map(|(key, row)| Some((key, (*row)?))).collect();
        if !given.is_empty() {
            let kinds: Vec<i32> = given.iter().map(|((kind, _), _)| signed(kind.0)).collect();
            let keys: Vec<&str> = given.iter().map(|((_, key), _)| key.as_str()).collect();
            let seqs: Vec<i64> = given.iter().map(|(_, row)| row.seq.0).collect();
            let ids: Vec<Uuid> = given.iter().map(|(_, row)| row.id.uuid()).collect();
            let expires: Vec<Option<i64>> = given.iter().map(|(_, row)| row.expires.map(|t| t.0)).collect();
            send!(link, requests, Sql::UniquesPut, kinds, keys, seqs, ids, expires);
        }
    }

    fn send_flows<'a>(&'a self, link: &'a Link, requests: &mut Requests<'a>) -> Result<()> {
        for (sql, set) in [(Sql::EdgesDelete, &self.unlinked), (Sql::EdgesInsert, &self.linked)] {
            if !set.is_empty() {
                let parents: Vec<i64> = set.iter().map(|(parent, _)| parent.0).collect();
                let children: Vec<i64> = set.iter().map(|(_, child)| child.0).collect();
                send!(link, requests, sql, parents, children);
            }
        }
        let blocked: Vec<_> = self.blocked.iter().filter_map(|(seq, row)| Some((seq, (*row)?))).collect();
        if !blocked.is_empty() {
            let seqs: Vec<i64> = blocked.iter().map(|(seq, _)| seq.0).collect();
            let run_at: Vec<Option<i64>> = blocked.iter().map(|(_, row)| row.run_at.map(|t| t.0)).collect();
            let open: Vec<i32> = blocked.iter().map(|(_, row)| signed(row.open)).collect();
            let rules: Vec<i16> = blocked.iter().map(|(_, row)| row.on_dead as i16).collect();
            send!(link, requests, Sql::BlockedPut, seqs, run_at, open, rules);
        }
        let unblocked = self.blocked.iter().filter(|(_, row)| row.is_none()).map(|(seq, _)| *seq);
        let Runs { first, last } = Runs::of(unblocked);
        if !first.is_empty() {
            send!(link, requests, Sql::BlockedDelete, first, last);
        }
        if !self.kept.is_empty() {
            let seqs: Vec<i64> = self.kept.keys().map(|seq| seq.0).collect();
            let mut bodies = Vec::with_capacity(seqs.len());
            for (outcome, _) in self.kept.values() {
                bodies.push(json("a dependency", outcome)?);
            }
            // Nobody's is not the same as unknown: earlier versions did not say.
            let tenants: Vec<&str> =
                self.kept.values().map(|(_, tenant)| tenant.as_ref().map_or("", TenantId::as_str)).collect();
            send!(link, requests, Sql::KeptPut, seqs, bodies, tenants);
        }
        let untold: Vec<_> = self.untold.iter().filter_map(|(seq, row)| Some((seq, (*row)?))).collect();
        if !untold.is_empty() {
            let seqs: Vec<i64> = untold.iter().map(|(seq, _)| seq.0).collect();
            let ids: Vec<Uuid> = untold.iter().map(|(_, row)| row.id.uuid()).collect();
            let ends: Vec<i16> = untold.iter().map(|(_, row)| row.end as i16).collect();
            send!(link, requests, Sql::UntoldPut, seqs, ids, ends);
        }
        let told: Vec<i64> =
            self.untold.iter().filter(|(_, row)| row.is_none()).map(|(seq, _)| seq.0).collect();
        if !told.is_empty() {
            send!(link, requests, Sql::UntoldDelete, told);
        }
        if !self.swept.is_empty() {
            let seqs: Vec<i64> = self.swept.iter().map(|seq| seq.0).collect();
            send!(link, requests, Sql::KeptSweep, seqs);
        }
        Ok(())
    }

    fn send_deletes<'a>(&'a self, link: &'a Link, requests: &mut Requests<'a>) {
        if !self.deleted_jobs.is_empty() {
            for sql in [Sql::DoneDelete, Sql::StatesDelete, Sql::JobsDelete] {
                let Runs { first, last } = Runs::of(self.deleted_jobs.iter().copied());
                send!(link, requests, sql, first, last);
            }
        }
        let lanes: Vec<i32> =
            self.lanes.iter().filter(|(_, key)| key.is_none()).map(|(id, _)| signed(id.0)).collect();
        if !lanes.is_empty() {
            send!(link, requests, Sql::LanesDelete, lanes);
        }
        let tenants: Vec<i32> =
            self.tenants.iter().filter(|(_, name)| name.is_none()).map(|(no, _)| signed(no.0)).collect();
        if !tenants.is_empty() {
            send!(link, requests, Sql::TenantsDelete, tenants);
        }
    }
}

pub(super) fn json(what: &str, value: &impl Serialize) -> Result<String> {
    serde_json::to_string(value).map_err(|e| corrupt(what, e))
}

/// Number of a final state in the table.
pub(super) fn state_code(state: State) -> Result<i16> {
    match state {
        State::Completed => Ok(1),
        State::Dead => Ok(2),
        State::Cancelled => Ok(3),
        State::Blocked | State::Scheduled | State::Ready | State::Running => {
            Err(tidegate_store::Error::internal(format!("a job cannot be finished as {state}")))
        }
    }
}

/// The final state with this number.
pub(super) fn state_of(code: i16) -> Result<State> {
    match code {
        1 => Ok(State::Completed),
        2 => Ok(State::Dead),
        3 => Ok(State::Cancelled),
        other => Err(corrupt("a finished job", format!("its state is {other}"))),
    }
}
