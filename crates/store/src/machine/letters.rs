//! Dead letters: recover and resolve.

use std::collections::HashMap;

use tidegate_core::codes;
use tidegate_core::failure::cut;
use tidegate_core::ids::{JobId, Seq};
use tidegate_core::job::{DeadLetter, OnDead, Resolution, Review, State};
use tidegate_core::limits;
use tidegate_core::time::Timestamp;

use super::Machine;
use super::enqueue::Start;
use super::hints::Need;
use super::plan::Waiting;
use crate::params::{Recover, Recovered, Resolve};
use crate::rows::{BlockedRow, Flow, JobExtra, JobRow, LookUps, Rows};
use crate::{Error, Result};

impl<R: Rows> Machine<R> {
    /// Recovers dead letters as new jobs with a fresh attempt budget. Recovering one twice yields one job (J10).
    pub fn recover(&mut self, letters: Vec<Recover>, now: Timestamp) -> Result<Vec<Recovered>> {
        let now = self.tick(now)?;
        if letters.is_empty() || letters.len() > limits::MAX_ENQUEUE_BATCH {
            let detail =
                format!("{} letters; between 1 and {} are allowed", letters.len(), limits::MAX_ENQUEUE_BATCH);
            return Err(Error::new(codes::INVALID_BATCH, detail));
        }
        // Checked before anything is stored: a refusal leaves nothing behind.
        let mut ids: HashMap<JobId, JobId> = HashMap::new();
        if letters.iter().any(|l| *ids.entry(l.new_id).or_insert(l.dead) != l.dead) {
            return Err(Error::new(codes::INVALID_BATCH, "an id is meant for two recovered jobs"));
        }
        self.hint_recover(&letters)?;
        for letter in &letters {
            let recovered = self.letter(letter.dead)?.and_then(|(_, l)| l.recovered_as);
            if recovered.is_none() && self.rows.find_job(letter.new_id)?.is_some() {
                return Err(Error::new(codes::DUPLICATE_ID, format!("job {} exists already", letter.new_id)));
            }
        }
        let mut dead = Vec::with_capacity(letters.len());
        for letter in &letters {
            dead.push(self.rows.find_job(letter.dead)?);
        }
        let mut replies: Vec<Option<Recovered>> = vec![None; letters.len()];
        for i in self.order_letters(&dead)? {
            replies[i] = Some(self.recover_one(letters[i], now)?);
        }
        Ok(replies.into_iter().flatten().collect())
    }

    fn hint_recover(&mut self, letters: &[Recover]) -> Result<()> {
        if !R::PREFETCHES {
            return Ok(());
        }
        let ids = letters.iter().flat_map(|letter| [letter.dead, letter.new_id]).collect();
        self.hint_look_ups(&LookUps { ids, keys: vec![] })?;
        let dead: Vec<Option<Seq>> =
            letters.iter().map(|l| self.rows.find_job(l.dead)).collect::<Result<_>>()?;
        self.hint_rows(dead.iter().copied().flatten(), Need::Everything)?;
        self.hint_lines(dead.into_iter().flatten().collect())
    }

    fn recover_one(&mut self, recover: Recover, now: Timestamp) -> Result<Recovered> {
        let Some((seq, mut letter)) = self.letter(recover.dead)? else { return Ok(Recovered::NotDead) };
        if let Some(id) = letter.recovered_as {
            return Ok(Recovered::Already(id));
        }
        let (row, state) = self.row_and_state(seq)?;
        let flow = row.extra.as_ref().and_then(|e| e.flow);
        let waiting = if flow.is_some() { self.wait_again(seq)? } else { Waiting::default() };
        let on_dead = flow.map_or(OnDead::Fail, |flow| flow.on_dead);
        let extra = JobExtra {
            flow: flow.map(|flow| Flow { total: waiting.parents.len() as u32, ..flow }),
            // The key was freed when the job died; somebody else may hold it by now.
            unique: None,
            recovered_from: Some(recover.dead),
            ..row.extra.map(|e| *e).unwrap_or_default()
        };
        let row = JobRow {
            id: recover.new_id,
            lane: state.lane.unwrap_or(row.lane),
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
            self.run_recovered(run, new, recover.new_id, now)?;
        }
        letter.recovered_as = Some(recover.new_id);
        letter.review = Review::ManualResolved;
        letter.resolution = Some(Resolution::Recovered);
        letter.resolved_at = Some(now);
        self.rows.put_letter(seq, &letter)?;
        Ok(Recovered::As(recover.new_id))
    }

    /// Settles a dead letter without running it again.
    pub fn resolve(&mut self, resolve: Resolve) -> Result<()> {
        let now = self.tick(resolve.now)?;
        let Some((seq, mut letter)) = self.letter(resolve.id)? else {
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

    fn letter(&mut self, id: JobId) -> Result<Option<(Seq, DeadLetter)>> {
        let Some(seq) = self.rows.find_job(id)? else { return Ok(None) };
        let done = self.rows.done(seq)?.filter(|d| d.state == State::Dead);
        Ok(done.and_then(|d| d.letter).map(|letter| (seq, *letter)))
    }
}
