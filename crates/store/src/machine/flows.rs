//! Jobs that wait for other jobs.
//!
//! An edge leads from a job to one that waits for it; a blocked job counts those that are open. Memory has only the jobs that
//! are not finished and that others wait for, so a job that nobody waits for is finished as if there were no edges at all.
//!
//! Who is finished is gathered while an operation goes on, and those who wait are told at its end, in the same commit: all
//! completions of a batch together, level by level where death goes on from one to the next. What is too much for one commit is
//! kept (`untold`) and told by the next ones; to those who wait, and to whoever comes to wait meanwhile, it is not finished until then.

use tidegate_core::codes;
use tidegate_core::failure::Category;
use tidegate_core::ids::{JobId, Seq};
use tidegate_core::job::{DeadLetter, Dependency, OnDead, State};
use tidegate_core::limits;
use tidegate_core::retry::DeadReason;
use tidegate_core::time::Timestamp;

use super::{Change, Face, Machine, Place};
use crate::params::Dependencies;
pub(super) use crate::rows::End;
use crate::rows::{BlockedRow, DoneRow, JobRow, Reads, Rows, StateRow, UntoldRow, WaitingRow};
use crate::{Error, Result};

/// What a further level of a flow counts for, as if it had so many edges: it takes some ways to the rows, however few it has. Seven
/// levels are a commit.
const LEVEL: usize = limits::TELL_BATCH / 7 + 1;

/// Dead jobs whose edges are counted first, of many that are recovered.
const FEW_LINES: usize = 16;

/// Some of the open dependencies that `why` names.
const NAMED: usize = 3;

impl End {
    pub(super) fn of(state: State) -> Option<Self> {
        match state {
            State::Completed => Some(Self::Completed),
            State::Dead => Some(Self::Dead),
            State::Cancelled => Some(Self::Cancelled),
            State::Blocked | State::Scheduled | State::Ready | State::Running => None,
        }
    }

    /// Code of what a job dies of that waited for this one.
    fn code(self) -> &'static str {
        match self {
            Self::Completed | Self::Dead => "DEPENDENCY_DEAD",
            Self::Cancelled => "DEPENDENCY_CANCELLED",
            Self::Gone | Self::Purged => "DEPENDENCY_GONE",
        }
    }

    /// What it means to a job that waits.
    pub(super) fn verdict(self, on_dead: OnDead) -> Verdict {
        match (self, on_dead) {
            // Whoever did not choose to wait for its recovery has been told before.
            (Self::Purged, on_dead) if on_dead != OnDead::Wait => Verdict::Open,
            (Self::Completed, _) | (_, OnDead::Ignore) => Verdict::Satisfied,
            (Self::Dead, OnDead::Wait) => Verdict::Open,
            (Self::Dead | Self::Cancelled | Self::Gone | Self::Purged, _) => Verdict::Fatal,
        }
    }
}

/// What the end of a job means to one that waits for it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Verdict {
    Satisfied,
    Open,
    Fatal,
}

/// A job that others wait for is finished.
#[derive(Debug, Clone, Copy)]
pub(super) struct Ended {
    pub(super) seq: Seq,
    pub(super) id: JobId,
    pub(super) end: End,
}

impl<R: Rows> Machine<R> {
    /// A job is finished. If others wait for it, they are told at the end of the operation.
    pub(super) fn ended(&mut self, seq: Seq, id: JobId, end: End) {
        if self.memory.dependents.contains_key(&seq) {
            self.ended.push(Ended { seq, id, end });
        }
    }

    /// Tells those who wait for what was finished in this operation: releases them, or lets them die. A flow can be of any size and depth, a
    /// commit cannot: who is left is told by the next ones. Until then they wait as before, whatever has become of the other.
    pub(super) fn tell_dependents(&mut self, now: Timestamp) -> Result<()> {
        let mut room = limits::TELL_BATCH;
        while !self.ended.is_empty() && room > 0 {
            let mut ended = std::mem::take(&mut self.ended);
            let later = ended.split_off(self.portion(&ended, &mut room)?);
            self.tell(&ended, now)?;
            if !later.is_empty() {
                let deeper = std::mem::replace(&mut self.ended, later);
                self.ended.extend(deeper);
                break;
            }
        }
        for Ended { seq, id, end } in std::mem::take(&mut self.ended) {
            let row = UntoldRow { id, end };
            if self.memory.untold.get(&seq) != Some(&row) {
                self.rows.put_untold(seq, &row)?;
                self.change(Change::Untold { seq, row })?;
            }
        }
        Ok(())
    }

    /// Tells, after what was finished in this operation, of what earlier ones have left.
    pub(super) fn tell_more(&mut self, now: Timestamp) -> Result<()> {
        if !self.memory.untold.is_empty() {
            let left = self.memory.untold.iter().take(limits::TELL_BATCH);
            self.ended.extend(left.map(|(seq, row)| Ended { seq: *seq, id: row.id, end: row.end }));
        }
        self.tell_dependents(now)
    }

    /// How many of these can be told of now. Those who wait for one are told together.
    fn portion(&mut self, ended: &[Ended], room: &mut usize) -> Result<usize> {
        let before = *room;
        if R::PREFETCHES {
            let unknown = |e: &&Ended| !self.memory.dependents.contains_key(&e.seq);
            let counts = ended.iter().filter(unknown).map(|e| e.seq).take(*room).collect();
            self.hint(&Reads { counts, ..Reads::default() })?;
        }
        let mut n = 0;
        while let Some(one) = ended.get(n).filter(|_| *room > 0) {
            let edges = match self.memory.dependents.get(&one.seq) {
                Some(edges) => *edges,
                None => self.rows.count_children(one.seq)?,
            };
            *room = room.saturating_sub((edges as usize).max(1));
            n += 1;
        }
        *room = (*room).min(before.saturating_sub(LEVEL));
        Ok(n)
    }

    /// Tells all who wait for these.
    fn tell(&mut self, ended: &[Ended], now: Timestamp) -> Result<()> {
        let told = self.gather_told(ended)?;
        let mut children: Vec<Seq> = told.iter().map(|(child, _)| *child).collect();
        children.dedup();
        self.hint_told(&children)?;
        let (mut dying, mut free) = (vec![], vec![]);
        let mut left = told.as_slice();
        // Whoever is not blocked any more has been cancelled or is dead.
        for mut child in self.rows.waiting(&children)? {
            left = &left[left.partition_point(|(seq, _)| *seq < child.seq)..];
            let ends = left.iter().take_while(|(seq, _)| *seq == child.seq).map(|(_, at)| &ended[*at]);
            let verdict = |e: &&Ended| e.end.verdict(child.blocked.on_dead);
            if let Some(cause) = ends.clone().find(|e| verdict(e) == Verdict::Fatal) {
                dying.push((child.seq, *cause));
                continue;
            }
            let closed = ends.filter(|e| verdict(e) == Verdict::Satisfied).count() as u32;
            if closed == 0 {
                continue;
            }
            let open = child.blocked.open.checked_sub(closed).ok_or_else(|| miscounted(child.seq))?;
            child.blocked.open = open;
            if open == 0 {
                free.push(child);
            } else {
                self.rows.put_blocked(child.seq, &child.blocked)?;
            }
        }
        self.release(&free, now)?;
        self.hint_rows(dying.iter().map(|(seq, _)| *seq), super::hints::Need::JobAndState)?;
        for (child, cause) in dying {
            self.bury_blocked(child, cause.id, cause.end, now)?;
        }
        Ok(())
    }

    /// Who waits for these, in order, each with the place of what it waits for.
    fn gather_told(&mut self, ended: &[Ended]) -> Result<Vec<(Seq, usize)>> {
        let parents: Vec<Seq> = ended.iter().map(|e| e.seq).collect();
        if R::PREFETCHES {
            self.hint(&Reads { children: parents.clone(), ..Reads::default() })?;
        }
        let (mut told, mut at) = (vec![], 0);
        for (parent, child) in self.rows.edges_from(&parents)? {
            // Edges come in the order of the parents.
            while parents.get(at).is_some_and(|seq| *seq != parent) {
                at += 1;
            }
            told.push((child, at));
        }
        told.sort_unstable();
        for one in ended {
            let untold = self.memory.untold.contains_key(&one.seq);
            if untold {
                self.rows.told(one.seq)?;
            }
            if untold || self.memory.dependents.contains_key(&one.seq) {
                self.change(Change::Told(one.seq))?;
            }
        }
        Ok(told)
    }

    fn hint_told(&mut self, children: &[Seq]) -> Result<()> {
        if !R::PREFETCHES {
            return Ok(());
        }
        let mut reads = Reads::default();
        for child in children {
            self.add_reads(&mut reads, *child, super::hints::Need::HeadAndState);
        }
        reads.blocked.extend_from_slice(children);
        self.hint(&reads)
    }

    /// Blocked jobs wait for nobody any more: they are ready, or scheduled where their time has not come.
    fn release(&mut self, free: &[WaitingRow], now: Timestamp) -> Result<()> {
        if free.is_empty() {
            return Ok(());
        }
        let seqs: Vec<Seq> = free.iter().map(|child| child.seq).collect();
        self.rows.unblock(&seqs)?;
        for &WaitingRow { seq, blocked, lane, tenant } in free {
            let lane = self.state_of(seq)?.lane.unwrap_or(lane);
            let later = blocked.run_at.filter(|at| *at > now);
            if let Some(at) = later {
                self.rows.delay(at, seq)?;
            }
            self.change(Change::Unblocked { place: Place { seq, lane, tenant }, later })?;
        }
        Ok(())
    }

    /// A blocked job dies because of one that it waits for.
    pub(super) fn bury_blocked(&mut self, seq: Seq, parent: JobId, end: End, now: Timestamp) -> Result<()> {
        let (row, state) = self.row_and_state(seq)?;
        self.rows.unblock(&[seq])?;
        let lane = state.lane.unwrap_or(row.lane);
        self.change(Change::Unwaited(Place { seq, lane, tenant: row.tenant }))?;
        self.free_unique(seq)?;
        let became = match end {
            End::Completed | End::Dead => "is dead",
            End::Cancelled => "was cancelled",
            End::Gone | End::Purged => "is not stored any more",
        };
        let message = format!("{parent}, which it waited for, {became}");
        let letter =
            DeadLetter::new(Category::ResourceUnavailable, DeadReason::Dependency, end.code(), message);
        let letter = self.compose(row.kind, row.extra.as_deref(), letter)?;
        let queue = self.queue_of(lane)?;
        let done = DoneRow {
            queue,
            state: State::Dead,
            at: now,
            attempt: 0,
            result: None,
            letter: Some(Box::new(letter)),
        };
        self.rows.insert_done(seq, &done)?;
        let face = Face { id: row.id, queue, kind: row.kind, tenant: row.tenant };
        self.change(Change::Buried { face, code: end.code().to_owned() })?;
        self.ended(seq, row.id, End::Dead);
        Ok(())
    }

    /// Whether a job that is neither ready, running nor finished is blocked.
    pub(super) fn waits(&mut self, seq: Seq) -> Result<Option<BlockedRow>> {
        if self.memory.edges == 0 { Ok(None) } else { self.rows.blocked(seq) }
    }

    /// Blocked jobs that wait for this one, and those that wait for them; for a tenant's job, that tenant's alone.
    pub(super) fn descendants(&mut self, root: Seq) -> Result<Vec<Seq>> {
        let (_, owner) = self.lane_and_tenant(root)?;
        let mut found = vec![];
        let mut level = vec![root];
        let mut seen: std::collections::HashSet<Seq> = level.iter().copied().collect();
        while !level.is_empty() && self.memory.edges > 0 {
            if R::PREFETCHES {
                self.hint(&Reads { children: level.clone(), ..Reads::default() })?;
            }
            let mut next = vec![];
            for parent in level {
                next.extend(self.rows.children(parent)?.into_iter().filter(|c| seen.insert(*c)));
            }
            if R::PREFETCHES {
                self.hint(&Reads { blocked: next.clone(), heads: next.clone(), ..Reads::default() })?;
            }
            let mut blocked = vec![];
            for child in next {
                let waits = self.rows.blocked(child)?.is_some();
                if waits && (owner.is_none() || self.lane_and_tenant(child)?.1 == owner) {
                    blocked.push(child);
                }
            }
            found.extend_from_slice(&blocked);
            if found.len() > limits::MAX_CASCADE {
                let detail = format!("more than {} jobs wait for it", limits::MAX_CASCADE);
                return Err(Error::new(codes::INVALID_BATCH, detail));
            }
            level = blocked;
        }
        Ok(found)
    }

    /// Cuts the edges of a job that is about to be deleted, and keeps of it what others still need.
    pub(super) fn unlink(&mut self, seq: Seq, finished: Option<State>, erased: bool) -> Result<()> {
        if self.memory.edges == 0 {
            return Ok(());
        }
        let children = self.rows.children(seq)?;
        match finished {
            Some(State::Dead) => self.lose(seq, &children, End::Purged)?,
            None => self.lose(seq, &children, End::Gone)?,
            Some(_) => {}
        }
        if !erased && finished.is_some() && self.is_needed(&children)? {
            let row = self.rows.job(seq)?.ok_or_else(|| Error::internal("a job is missing"))?;
            let outcome = self.outcome(seq, &row)?;
            let owner = row.tenant.and_then(|no| self.memory.names.tenant(no));
            self.rows.keep(seq, &outcome, owner)?;
        }
        let parents = self.rows.parents(seq)?;
        if !parents.is_empty() {
            self.rows.drop_edges(&parents, seq)?;
            self.change(Change::Unlinked { parents })?;
        }
        Ok(())
    }

    /// These jobs are about to be deleted.
    pub(super) fn hint_unlink(&mut self, jobs: impl Iterator<Item = Seq>) -> Result<()> {
        if !R::PREFETCHES || self.memory.edges == 0 {
            return Ok(());
        }
        let jobs: Vec<Seq> = jobs.collect();
        self.hint(&Reads { children: jobs.clone(), parents: jobs.clone(), ..Reads::default() })?;
        let (mut needed, mut children) = (vec![], vec![]);
        for seq in jobs {
            let of_job = self.rows.children(seq)?;
            if !of_job.is_empty() {
                needed.push(seq);
                children.extend(of_job);
            }
        }
        let mut done = needed.clone();
        done.extend_from_slice(&children);
        self.hint(&Reads { jobs: needed, done, heads: children, ..Reads::default() })
    }

    /// A job that did not complete is going to be deleted: who waits for it waits for nothing.
    fn lose(&mut self, seq: Seq, children: &[Seq], end: End) -> Result<()> {
        if children.is_empty() || self.ended.iter().any(|e| e.seq == seq) {
            return Ok(());
        }
        let row = self.rows.job(seq)?.ok_or_else(|| Error::internal("a job is missing"))?;
        // They have not even been told that it is dead.
        let end = if self.memory.untold.contains_key(&seq) { End::Gone } else { end };
        self.ended.push(Ended { seq, id: row.id, end });
        Ok(())
    }

    /// Whether one of these is not finished.
    fn is_needed(&mut self, children: &[Seq]) -> Result<bool> {
        for child in children {
            if self.rows.done(*child)?.is_none() && self.rows.head(*child)?.is_some() {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// What those who wait for a job see of it.
    fn outcome(&mut self, seq: Seq, row: &JobRow) -> Result<Dependency> {
        if let Some(done) = self.rows.done(seq)? {
            let code = done.letter.map(|letter| letter.code);
            return Ok(Dependency { id: row.id, state: done.state, result: done.result, code });
        }
        let stored = self.state_of(seq)?;
        let state = self.unfinished(seq, row, &stored)?;
        Ok(Dependency { id: row.id, state, result: None, code: None })
    }

    /// Where a job stands that is not finished.
    pub(super) fn unfinished(&mut self, seq: Seq, row: &JobRow, stored: &StateRow) -> Result<State> {
        if self.memory.leases.running(seq).is_some() {
            return Ok(State::Running);
        }
        if self.memory.lanes.is_ready(stored.lane.unwrap_or(row.lane), seq) {
            return Ok(State::Ready);
        }
        Ok(if self.waits(seq)?.is_some() { State::Blocked } else { State::Scheduled })
    }

    /// Jobs that a job waits, or waited, for, with their results.
    pub fn dependencies(&mut self, id: JobId, skip: u32, limit: usize) -> Result<Dependencies> {
        let seq = self.find(id)?;
        if self.memory.edges == 0 {
            return Ok(Dependencies::default());
        }
        let parents = self.rows.parents(seq)?;
        let limit = limit.clamp(1, limits::MAX_DEPENDENCY_PAGE);
        let page: Vec<Seq> = parents.iter().skip(skip as usize).take(limit).copied().collect();
        self.hint_rows(page.iter().copied(), super::hints::Need::Everything)?;
        let (mut jobs, mut bytes, mut looked) = (vec![], 0, skip);
        for parent in page {
            if bytes > limits::DEPENDENCY_PAGE_BYTES {
                break;
            }
            looked += 1;
            let outcome = match self.rows.job(parent)? {
                Some(row) => Some(self.outcome(parent, &row)?),
                None => self.rows.kept(parent)?,
            };
            bytes += outcome.as_ref().and_then(|o| o.result.as_ref()).map_or(0, |r| r.as_str().len());
            jobs.extend(outcome);
        }
        Ok(Dependencies { jobs, next: Some(looked).filter(|n| (*n as usize) < parents.len()) })
    }

    /// Some of the jobs that a blocked job still waits for, and one of them that is dead.
    pub(super) fn open_dependencies(
        &mut self,
        seq: Seq,
        row: BlockedRow,
    ) -> Result<(Vec<JobId>, Option<JobId>)> {
        let parents = self.rows.parents(seq)?;
        let mut open: Vec<Seq> = vec![];
        let mut dead = None;
        let known = &self.memory.dependents;
        let (unfinished, finished): (Vec<Seq>, Vec<Seq>) =
            parents.into_iter().partition(|parent| known.contains_key(parent));
        if row.on_dead == OnDead::Wait && (unfinished.len() as u32) < row.open {
            self.hint_done(&finished)?;
            for parent in finished {
                if self.rows.done(parent)?.is_some_and(|done| done.state == State::Dead) {
                    dead = dead.or(Some(parent));
                    open.push(parent);
                }
            }
        }
        open.extend(unfinished);
        open.truncate(NAMED);
        self.hint_rows(open.iter().copied(), super::hints::Need::JobAndState)?;
        let mut ids = vec![];
        for parent in &open {
            ids.extend(self.rows.job(*parent)?.map(|row| row.id));
        }
        let dead = dead.and_then(|seq| open.iter().position(|s| *s == seq)).and_then(|i| ids.get(i).copied());
        Ok((ids, dead))
    }

    fn hint_done(&mut self, jobs: &[Seq]) -> Result<()> {
        if !R::PREFETCHES {
            return Ok(());
        }
        self.hint(&Reads { done: jobs.to_vec(), ..Reads::default() })
    }

    /// How many of these dead jobs, the first ones, have together no more edges than a commit is for; at least one.
    pub(super) fn lines_of_a_commit(&mut self, dead: &[Seq]) -> Result<usize> {
        if self.memory.edges <= limits::TELL_BATCH as u64 {
            return Ok(dead.len());
        }
        let (mut room, mut counted) = (limits::TELL_BATCH, 0);
        for (n, &seq) in dead.iter().enumerate() {
            if R::PREFETCHES && n == counted {
                // Twice as many each time: few ways, and few counted in vain.
                let counts: Vec<Seq> = dead[n..].iter().take(n.max(FEW_LINES)).copied().collect();
                counted += counts.len();
                self.hint(&Reads { counts, ..Reads::default() })?;
            }
            let flow = self.rows.job(seq)?.and_then(|row| row.extra?.flow);
            let edges = (self.rows.count_children(seq)? + flow.map_or(0, |flow| flow.total)) as usize;
            if n > 0 && edges > room {
                return Ok(n);
            }
            room = room.saturating_sub(edges);
        }
        Ok(dead.len())
    }

    /// These dead jobs are about to be recovered: reads ahead what the first ones of them waited for and who waits for them. Returns of how
    /// many.
    pub(super) fn hint_lines(&mut self, dead: &[Seq]) -> Result<usize> {
        if !R::PREFETCHES || self.memory.edges == 0 || dead.is_empty() {
            return Ok(dead.len());
        }
        let dead = &dead[..self.lines_of_a_commit(dead)?];
        self.hint(&Reads { children: dead.to_vec(), parents: dead.to_vec(), ..Reads::default() })?;
        let mut reads = Reads::default();
        for &seq in dead {
            reads.blocked.extend(self.rows.children(seq)?);
            let parents = self.rows.parents(seq)?;
            reads.jobs.extend_from_slice(&parents);
            reads.done.extend(parents);
        }
        self.hint(&reads)?;
        Ok(dead.len())
    }

    /// A dead job goes on as another: those who wait for it wait for that one.
    pub(super) fn hand_on(&mut self, dead: Seq, new: Seq) -> Result<()> {
        if self.memory.edges == 0 {
            return Ok(());
        }
        let mut moved = 0;
        for child in self.rows.children(dead)? {
            let waits = self.rows.blocked(child)?.is_some_and(|row| row.on_dead == OnDead::Wait);
            if waits {
                self.rows.move_edge(dead, new, child)?;
                moved += 1;
            }
        }
        if moved == 0 {
            return Ok(());
        }
        self.change(Change::Unlinked { parents: vec![dead; moved] })?;
        self.change(Change::Linked { parents: vec![new; moved], edges: moved as u64 })
    }
}

fn miscounted(seq: Seq) -> Error {
    Error::internal(format!("job {} waits for fewer jobs than none", seq.0))
}
