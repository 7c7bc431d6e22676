//! Dead letters: recover and resolve.

use std::collections::HashMap;

use tidegate_core::codes;
use tidegate_core::failure::cut;
use tidegate_core::ids::{JobId, Seq};
use tidegate_core::job::{DeadLetter, OnDead, Resolution, Review, State, Unique, UniqueScope};
use tidegate_core::lanes::{LaneId, LaneKey};
use tidegate_core::letters::Lineage;
use tidegate_core::limits;
use tidegate_core::time::Timestamp;

use super::Machine;
use super::enqueue::Start;
use super::hints::Need;
use super::plan::Waiting;
use crate::params::{Recover, Recovered, Resolve};
use crate::rows::{
    BlockedRow, Finished, Flow, JobExtra, JobRow, KindId, LookUps, READ_TOGETHER, Rows, StateRow,
};
use crate::{Error, Result};

impl<R: Rows> Machine<R> {
    /// Recovers dead letters as new jobs with a fresh attempt budget. Recovering one twice yields one job (J10).
    pub fn recover(&mut self, letters: Vec<Recover>, now: Timestamp) -> Result<Vec<Recovered>> {
        let now = self.tick(now)?;
        let dead = self.check_recover(&letters, |_| false)?;
        let order = self.order_letters(&dead)?;
        let mut lines = Lines::new(order.iter().filter_map(|i| dead[*i]).collect());
        let mut replies = vec![Recovered::NotDead; letters.len()];
        for some in order.chunks(READ_TOGETHER) {
            let mut found = self.read_dead(some.iter().filter_map(|i| dead[*i]))?;
            for &i in some {
                let Some(seq) = dead[i] else { continue };
                self.next_line(&mut lines)?;
                // One that comes twice was recovered a moment ago.
                let letter = match found.remove(&seq) {
                    None => self.read_dead([seq].into_iter())?.remove(&seq),
                    found => found,
                };
                if let Some(letter) = letter {
                    replies[i] = self.recover_one(letter, letters[i].new_id, &Recovery::ByHand, now)?;
                }
            }
        }
        Ok(replies)
    }

    /// Checked before anything is stored: a refusal leaves nothing behind. `settled`: it is not going to be stored anew. The numbers of the
    /// jobs, as far as they exist.
    pub(super) fn check_recover(
        &mut self,
        letters: &[Recover],
        settled: impl Fn(&Recover) -> bool,
    ) -> Result<Vec<Option<Seq>>> {
        if letters.is_empty() || letters.len() > limits::MAX_ENQUEUE_BATCH {
            let detail =
                format!("{} letters; between 1 and {} are allowed", letters.len(), limits::MAX_ENQUEUE_BATCH);
            return Err(Error::new(codes::INVALID_BATCH, detail));
        }
        let mut ids: HashMap<JobId, JobId> = HashMap::with_capacity(letters.len());
        if letters.iter().any(|l| *ids.entry(l.new_id).or_insert(l.dead) != l.dead) {
            return Err(Error::new(codes::INVALID_BATCH, "an id is meant for two recovered jobs"));
        }
        self.hint_recover(letters)?;
        let dead: Vec<JobId> = letters.iter().map(|l| l.dead).collect();
        let dead = self.rows.find_jobs(&dead)?;
        let new: Vec<JobId> = letters.iter().map(|l| l.new_id).collect();
        let taken = self.rows.find_jobs(&new)?;
        for ((recover, seq), _) in letters.iter().zip(&dead).zip(taken).filter(|(_, taken)| taken.is_some()) {
            let done = seq.map_or(Ok(None), |seq| self.rows.done(seq))?;
            let recovered = done.and_then(|done| done.letter?.recovered_as).is_some();
            if !recovered && !settled(recover) {
                let detail = format!("job {} exists already", recover.new_id);
                return Err(Error::new(codes::DUPLICATE_ID, detail));
            }
        }
        Ok(dead)
    }

    /// Those of these jobs that are dead, with everything that recovering them takes.
    pub(super) fn read_dead(&mut self, jobs: impl Iterator<Item = Seq>) -> Result<HashMap<Seq, Dead>> {
        let jobs: Vec<(Seq, bool)> = jobs.map(|seq| (seq, self.memory.with_state.contains(&seq))).collect();
        let dead = |Finished { seq, job, state, done }: Finished| {
            let letter = Letter { seq, died_at: done.at, body: *done.letter? };
            Some((seq, Dead { letter, row: job, state }))
        };
        let finished = self.rows.finished(&jobs)?.into_iter();
        Ok(finished.filter(|f| f.done.state == State::Dead).filter_map(dead).collect())
    }

    fn hint_recover(&mut self, letters: &[Recover]) -> Result<()> {
        if !R::PREFETCHES {
            return Ok(());
        }
        let ids = letters.iter().flat_map(|letter| [letter.dead, letter.new_id]).collect();
        self.hint_look_ups(&LookUps { ids, keys: vec![] })?;
        let dead: Vec<JobId> = letters.iter().map(|letter| letter.dead).collect();
        let dead = self.rows.find_jobs(&dead)?;
        self.hint_rows(dead.into_iter().flatten(), Need::Everything)
    }

    /// The next of these is about to be recovered.
    pub(super) fn next_line(&mut self, lines: &mut Lines) -> Result<()> {
        if lines.at == lines.ahead {
            lines.ahead += self.hint_lines(&lines.dead[lines.at..])?;
        }
        lines.at += 1;
        Ok(())
    }

    pub(super) fn recover_one(
        &mut self,
        dead: Dead,
        new_id: JobId,
        how: &Recovery<'_>,
        now: Timestamp,
    ) -> Result<Recovered> {
        let Dead { letter: Letter { seq, died_at, body: mut letter }, row, state } = dead;
        if let Some(id) = letter.recovered_as {
            return Ok(Recovered::Already(id));
        }
        let flow = row.extra.as_ref().and_then(|e| e.flow);
        let waiting = if flow.is_some() { self.wait_again(seq)? } else { Waiting::default() };
        let on_dead = flow.map_or(OnDead::Fail, |flow| flow.on_dead);
        let lineage = how.carry(letter.lineage(died_at));
        let lane = self.lane_of_today(state.lane.unwrap_or(row.lane), row.kind)?;
        let extra = JobExtra {
            flow: flow.map(|flow| Flow { total: waiting.parents.len() as u32, ..flow }),
            unique: how.key(row.extra.as_deref()),
            recovered_from: Some(row.id),
            lineage: Some(lineage),
            sent: None,
            ..row.extra.map(|e| *e).unwrap_or_default()
        };
        let row = JobRow {
            id: new_id,
            lane,
            created_at: now,
            run_at: now,
            payload: state.payload.unwrap_or(row.payload),
            extra: Some(Box::new(extra)),
            ..row
        };
        let new = self.next_seq()?;
        let start = match waiting.open {
            0 => Start::Ready,
            open => Start::Blocked(BlockedRow { open, on_dead, run_at: None }),
        };
        self.insert(new, &row, start)?;
        self.link_up(new, waiting)?;
        self.hand_on(seq, new)?;
        if let Some(run) = row.extra.as_ref().and_then(|extra| extra.schedule.as_ref()) {
            self.run_recovered(run, new, new_id, now)?;
        }
        letter.recovered_as = Some(new_id);
        how.settle(&mut letter, now);
        self.rows.put_letter(seq, &letter)?;
        Ok(Recovered::As(new_id))
    }

    /// The lane of a job that is stored anew: its kind may have been given a limit since it was enqueued.
    fn lane_of_today(&mut self, lane: LaneId, kind: KindId) -> Result<LaneId> {
        let missing = || Error::internal(format!("lane {} is missing", lane.0));
        let key = self.memory.lanes.lane_key(lane).ok_or_else(missing)?;
        let (_, settings) = self.memory.names.kind(kind).ok_or_else(missing)?;
        let own = settings.has_own_lanes().then_some(kind);
        if key.kind == own {
            return Ok(lane);
        }
        let key = LaneKey { kind: own, ..key.clone() };
        self.lane(key)
    }

    /// Settles a dead letter without running it again.
    pub fn resolve(&mut self, resolve: Resolve) -> Result<()> {
        let now = self.tick(resolve.now)?;
        let Some(Letter { seq, body: mut letter, .. }) = self.letter(resolve.id)? else {
            self.find(resolve.id)?;
            return Err(Error::new(codes::WRONG_STATE, format!("job {} is not dead", resolve.id)));
        };
        if letter.review != Review::PendingReview {
            let detail =
                format!("dead letter {} is {} already", resolve.id, letter.review.as_str().replace('_', " "));
            return Err(Error::new(codes::WRONG_STATE, detail));
        }
        letter.review = if resolve.resolution == Resolution::Abandoned {
            Review::Abandoned
        } else {
            Review::ManualResolved
        };
        letter.resolution = Some(resolve.resolution);
        letter.resolved_by = Some(cut(resolve.by, limits::MAX_NAME_BYTES));
        letter.resolved_at = Some(now);
        self.rows.put_letter(seq, &letter)
    }

    /// A dead letter by the id of its job.
    pub(super) fn letter(&mut self, id: JobId) -> Result<Option<Letter>> {
        let Some(seq) = self.rows.find_job(id)? else { return Ok(None) };
        let done = self.rows.done(seq)?.filter(|d| d.state == State::Dead);
        Ok(done.and_then(|d| Some(Letter { seq, died_at: d.at, body: *d.letter? })))
    }

    /// A new letter of a job: what it died of in common with others, and what its line has been through.
    pub(super) fn compose(
        &self,
        kind: KindId,
        extra: Option<&JobExtra>,
        letter: DeadLetter,
    ) -> Result<DeadLetter> {
        let missing = || Error::internal("a kind has no settings");
        let (name, _) = self.memory.names.kind(kind).ok_or_else(missing)?;
        Ok(letter.of_line(name, extra.and_then(|extra| extra.lineage)))
    }
}

/// A dead letter as it is stored.
#[derive(Debug)]
pub(super) struct Letter {
    pub(super) seq: Seq,
    pub(super) died_at: Timestamp,
    pub(super) body: DeadLetter,
}

/// A dead job with all that recovering it takes.
#[derive(Debug)]
pub(super) struct Dead {
    pub(super) letter: Letter,
    pub(super) row: JobRow,
    pub(super) state: StateRow,
}

/// Dead jobs that are recovered one after the other. What is read ahead at a time is bounded, however many wait for them.
#[derive(Debug)]
pub(super) struct Lines {
    dead: Vec<Seq>,
    at: usize,
    ahead: usize,
}

impl Lines {
    pub(super) fn new(dead: Vec<Seq>) -> Self {
        Self { dead, at: 0, ahead: 0 }
    }
}

/// Who decided that a dead job runs again.
#[derive(Debug, Clone, Copy)]
pub(super) enum Recovery<'a> {
    /// A person.
    ByHand,
    /// The processor.
    Automatic,
    /// The tenant, by authorizing again; who brought the news.
    Reauthorized(&'a str),
}

impl Recovery<'_> {
    /// The key that the new job holds. The dead one's was freed when it died. The processor has seen that nobody holds it, and what it
    /// runs again must not be enqueued beside; whoever else recovers a job wants it whoever holds the key by now.
    fn key(&self, extra: Option<&JobExtra>) -> Option<Unique> {
        let unique = extra?.unique.as_ref()?;
        let held = matches!(unique.scope, UniqueScope::Pending | UniqueScope::PendingOrRunning);
        (matches!(self, Self::Automatic) && held).then(|| unique.clone())
    }

    /// What the line has been through, for the job that takes the dead one's place.
    fn carry(&self, lineage: Lineage) -> Lineage {
        match self {
            Self::ByHand => lineage,
            Self::Automatic => Lineage { auto_retries: lineage.auto_retries + 1, ..lineage },
            // A new grant that fails is a new reason to ask.
            Self::Reauthorized(_) => Lineage { asked_at: None, ..lineage },
        }
    }
}
