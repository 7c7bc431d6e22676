//! Jobs that wait for others, as the referee sees them.

use std::collections::HashSet;

use tidegate_core::ids::JobId;
use tidegate_core::job::{OnDead, State};
use tidegate_core::time::Timestamp;
use tidegate_store::params::CancelReply;

use super::model::{Referee, Verdict};
use super::violation::Violation;

/// What a job that another waits for means to it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Meaning {
    Open,
    Satisfied,
    Fatal,
}

fn meaning(end: Option<State>, on_dead: OnDead) -> Meaning {
    match (end, on_dead) {
        (None, _) | (Some(State::Dead), OnDead::Wait) => Meaning::Open,
        (Some(State::Completed), _) | (Some(_), OnDead::Ignore) => Meaning::Satisfied,
        (Some(_), _) => Meaning::Fatal,
    }
}

impl Referee {
    fn any(&self, id: JobId, wanted: Meaning) -> bool {
        let Some(job) = self.jobs.get(&id) else { return false };
        let end = |parent: &JobId| self.jobs.get(parent).and_then(|p| p.end);
        job.after.iter().any(|parent| meaning(end(parent), job.on_dead) == wanted)
    }

    /// Whether a job has to wait for another.
    pub fn waits(&self, id: JobId) -> bool {
        self.any(id, Meaning::Open)
    }

    /// Whether a job waits for nothing but dead ones, or such as do.
    pub fn waits_for_the_dead(&self, id: JobId) -> bool {
        let Some(job) = self.jobs.get(&id).filter(|job| job.end.is_none()) else { return false };
        let open = |parent: &&JobId| {
            let end = self.jobs.get(parent).and_then(|p| p.end);
            meaning(end, job.on_dead) == Meaning::Open
        };
        let hopeless = |parent: &JobId| {
            let dead = self.jobs.get(parent).is_some_and(|p| p.end == Some(State::Dead));
            dead || self.waits_for_the_dead(*parent)
        };
        self.waits(id) && job.after.iter().filter(open).all(hopeless)
    }

    /// Jobs were added: they wait for what they name, or for what took its place.
    pub(super) fn follow(&mut self, made: &[JobId]) -> Verdict {
        for id in made {
            let Some(named) = self.jobs.get(id).map(|job| job.after.clone()) else { continue };
            let mut after: Vec<JobId> = vec![];
            for parent in named {
                let parent = self.last_of(parent);
                if !after.contains(&parent) {
                    after.push(parent);
                    self.children.entry(parent).or_default().push(*id);
                }
            }
            if let Some(job) = self.jobs.get_mut(id) {
                job.after = after;
            }
        }
        made.iter().try_for_each(|id| self.die_if_doomed(*id))
    }

    fn die_if_doomed(&mut self, id: JobId) -> Verdict {
        let open = self.jobs.get(&id).is_some_and(|job| job.end.is_none());
        if open && self.any(id, Meaning::Fatal) { self.end(id, State::Dead) } else { Ok(()) }
    }

    /// The last of a line of recoveries.
    fn last_of(&self, mut id: JobId) -> JobId {
        while let Some(next) = self.recovered.get(&id) {
            id = *next;
        }
        id
    }

    /// A job has ended: who waits for it may be dead with it.
    pub(super) fn pass_on(&mut self, id: JobId) -> Verdict {
        let children = self.children.get(&id).cloned().unwrap_or_default();
        children.into_iter().try_for_each(|child| self.die_if_doomed(child))
    }

    /// A dead job goes on as another: that one waits for what is not finished of what the dead one waited for, and whoever was
    /// patient waits for it.
    pub(super) fn goes_on(&mut self, dead: JobId, new: JobId) {
        self.recovered.insert(dead, new);
        let named = self.jobs.get(&new).map(|job| job.after.clone()).unwrap_or_default();
        let mut after: Vec<JobId> = named.into_iter().map(|parent| self.last_of(parent)).collect();
        after.sort_unstable();
        after.dedup();
        after.retain(|parent| self.jobs.get(parent).is_some_and(|p| p.end.is_none()));
        for parent in &after {
            self.children.entry(*parent).or_default().push(new);
        }
        if let Some(job) = self.jobs.get_mut(&new) {
            job.after = after;
        }
        for child in self.children.get(&dead).cloned().unwrap_or_default() {
            let Some(job) = self.jobs.get_mut(&child) else { continue };
            if job.end.is_none() && job.on_dead == OnDead::Wait {
                let named = job.after.iter_mut().filter(|parent| **parent == dead);
                named.for_each(|parent| *parent = new);
                self.children.entry(new).or_default().push(child);
            }
        }
    }

    /// A job was to be cancelled with all that wait for it.
    pub(super) fn cascaded(&mut self, id: JobId, reply: CancelReply, now: Timestamp) -> Verdict {
        let mut waiting: Vec<JobId> = vec![];
        let mut level = if matches!(reply, CancelReply::AlreadyFinished(_)) { vec![] } else { vec![id] };
        let mut seen: HashSet<JobId> = HashSet::new();
        while let Some(parent) = level.pop() {
            for child in self.children.get(&parent).cloned().unwrap_or_default() {
                let open = self.jobs.get(&child).is_some_and(|job| job.end.is_none());
                if open && self.waits(child) && seen.insert(child) {
                    waiting.push(child);
                    level.push(child);
                }
            }
        }
        for child in &waiting {
            if let Some(job) = self.jobs.get_mut(child) {
                job.end = Some(State::Cancelled);
            }
        }
        let (alone, others) = reply.parts();
        if others as usize != waiting.len() {
            let counted = format!("{} waited for {id}, and {others} are said to be cancelled", waiting.len());
            return Err(Violation::Nonsense(counted));
        }
        self.cancelled(id, alone, now)?;
        waiting.into_iter().try_for_each(|child| self.pass_on(child))
    }

    /// Whether a job that is neither held nor finished stands where it should.
    pub(super) fn check_waiting(&self, id: JobId, found: State) -> Verdict {
        match (self.waits(id), found) {
            (true, State::Blocked) | (false, State::Ready | State::Scheduled) => Ok(()),
            (true, _) => Err(Violation::WrongState(id, State::Blocked, found)),
            (false, _) => Err(Violation::WrongState(id, State::Ready, found)),
        }
    }
}
