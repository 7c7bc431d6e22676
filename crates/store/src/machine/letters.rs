//! Dead letters: recover and resolve.

use std::collections::{HashMap, HashSet};

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
use crate::rows::{BlockedRow, Flow, JobExtra, JobRow, KindId, LookUps, Rows};
use crate::{Error, Result};

impl<R: Rows> Machine<R> {
    /// Recovers dead letters as new jobs with a fresh attempt budget. Recovering one twice yields one job (J10).
    pub fn recover(&mut self, letters: Vec<Recover>, now: Timestamp) -> Result<Vec<Recovered>> {
        let now = self.tick(now)?;
        let mut found = self.check_recover(&letters, |_| false)?;
        let dead: Vec<Option<Seq>> = found.iter().map(|letter| letter.as_ref().map(|l| l.seq)).collect();
        let mut met: HashSet<JobId> = HashSet::with_capacity(letters.len());
        let mut replies: Vec<Option<Recovered>> = vec![None; letters.len()];
        let order = self.order_letters(&dead)?;
        let mut lines = Lines::new(order.iter().filter_map(|i| dead[*i]).collect());
        for i in order {
            if dead[i].is_some() {
                self.next_line(&mut lines)?;
            }
            // One that was met before is read again: it may have been recovered a moment ago.
            let letter =
                if met.insert(letters[i].dead) { found[i].take() } else { self.letter(letters[i].dead)? };
            replies[i] = Some(match letter {
                Some(letter) => self.recover_one(letter, letters[i].new_id, &Recovery::ByHand, now)?,
                None => Recovered::NotDead,
            });
        }
        Ok(replies.into_iter().flatten().collect())
    }

    /// Checked before anything is stored: a refusal leaves nothing behind. `settled`: it is not going to be stored anew. The letters, as
    /// far as the jobs are dead.
    pub(super) fn check_recover(
        &mut self,
        letters: &[Recover],
        settled: impl Fn(&Recover) -> bool,
    ) -> Result<Vec<Option<Letter>>> {
        if letters.is_empty() || letters.len() > limits::MAX_ENQUEUE_BATCH {
            let detail =
                format!("{} letters; between 1 and {} are allowed", letters.len(), limits::MAX_ENQUEUE_BATCH);
            return Err(Error::new(codes::INVALID_BATCH, detail));
        }
        let mut ids: HashMap<JobId, JobId> = HashMap::new();
        if letters.iter().any(|l| *ids.entry(l.new_id).or_insert(l.dead) != l.dead) {
            return Err(Error::new(codes::INVALID_BATCH, "an id is meant for two recovered jobs"));
        }
        self.hint_recover(letters)?;
        let mut found = Vec::with_capacity(letters.len());
        for recover in letters {
            let letter = self.letter(recover.dead)?;
            let recovered =
                settled(recover) || letter.as_ref().is_some_and(|l| l.body.recovered_as.is_some());
            if !recovered && self.rows.find_job(recover.new_id)?.is_some() {
                return Err(Error::new(
                    codes::DUPLICATE_ID,
                    format!("job {} exists already", recover.new_id),
                ));
            }
            found.push(letter);
        }
        Ok(found)
    }

    fn hint_recover(&mut self, letters: &[Recover]) -> Result<()> {
        if !R::PREFETCHES {
            return Ok(());
        }
        let ids = letters.iter().flat_map(|letter| [letter.dead, letter.new_id]).collect();
        self.hint_look_ups(&LookUps { ids, keys: vec![] })?;
        let dead: Vec<Option<Seq>> =
            letters.iter().map(|l| self.rows.find_job(l.dead)).collect::<Result<_>>()?;
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
        letter: Letter,
        new_id: JobId,
        how: &Recovery<'_>,
        now: Timestamp,
    ) -> Result<Recovered> {
        let Letter { seq, died_at, body: mut letter } = letter;
        if let Some(id) = letter.recovered_as {
            return Ok(Recovered::Already(id));
        }
        let (row, state) = self.row_and_state(seq)?;
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
