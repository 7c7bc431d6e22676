//! The processor of dead letters (S0 §4.2): a page of letters is one commit, and where it stands is kept with it.
//!
//! Whoever has the turn looks at the next page, whichever process that is, so a letter is decided once, and what a process that
//! died has not looked at is looked at by the next one. A letter that was decided is not decided again: what is decided is in it.

use std::borrow::Cow;
use std::collections::{HashMap, HashSet};

use tidegate_core::codes;
use tidegate_core::failure::Category;
use tidegate_core::ids::{ConnectorName, EventName, JobId, KindName, Seq, TenantId, UniqueKey};
use tidegate_core::job::{DeadLetter, OnConflict, Resolution, Review, State, Unique, UniqueScope};
use tidegate_core::letters::{self, Action, Cause, Round};
use tidegate_core::limits;
use tidegate_core::payload::Payload;
use tidegate_core::retry::RetryPolicy;
use tidegate_core::seed::Seed;
use tidegate_core::time::Timestamp;

use super::hints::Need;
use super::letters::{Dead, Letter, Lines, Recovery};
use super::{Change, Face, Machine};
use crate::params::{
    CauseQuery, CauseView, Causes, NewJob, ProcessLetters, ProcessedLetters, Reauthorized, Recover, Recovered,
};
use crate::rows::{CauseRow, JobRow, KindId, LookUps, READ_TOGETHER, Reads, Rows, StateRow};
use crate::{Error, Result};

/// Who settles what nobody settled.
const BY: &str = "tidegate";

impl<R: Rows> Machine<R> {
    /// Looks at the next page of letters that wait for review, if a run is due.
    pub fn process_letters(&mut self, process: ProcessLetters) -> Result<ProcessedLetters> {
        let now = self.tick(process.now)?;
        let every = process.every_ms;
        if !letters::EVERY_RANGE_MS.contains(&every) {
            let detail = format!(
                "letters cannot be looked at every {every} ms: 1 s to 30 min are allowed, because what failed in passing runs again within \
                 the hour or not at all"
            );
            return Err(Error::new(codes::INVALID_TIME, detail));
        }
        let round = self.rows.round()?;
        if !process.at_once {
            let Some(round) = round else {
                // The first run of a store comes when its letters have had time to be seen.
                let next = now.plus_ms(every);
                self.rows.put_round(Round { next, after: None })?;
                return Ok(ProcessedLetters { next_run: Some(next), ..Default::default() });
            };
            if !round.is_due(every, now) {
                return Ok(ProcessedLetters { next_run: Some(round.next), ..Default::default() });
            }
        }
        let page = self.rows.pending_letters(round.and_then(|round| round.after), letters::PAGE)?;
        let mut done = ProcessedLetters::default();
        let decided = self.decide_page(&page, now)?;
        // Those of the page that are too much for this commit are the first ones of the next.
        let cut = decided.last().filter(|_| decided.len() < page.len());
        let cut = cut.map(|(letter, _)| (letter.died_at, letter.seq));
        let after = cut.or(page.last().copied().filter(|_| page.len() == letters::PAGE));
        for (letter, action) in decided {
            self.process_letter(letter, action, now, &mut done)?;
        }
        done.more = after.is_some();
        let next = if done.more { round.map_or(now, |round| round.next) } else { now.plus_ms(every) };
        done.next_run = Some(next);
        self.rows.put_round(Round { next, after })?;
        self.settle_due()?;
        Ok(done)
    }

    /// What may have to be done on this page, as far as it is done in one commit, and rows fetched for that alone: most letters are left
    /// as they are.
    fn decide_page(&mut self, page: &[(Timestamp, Seq)], now: Timestamp) -> Result<Vec<(Letter, Action)>> {
        if R::PREFETCHES {
            self.hint(&Reads { done: page.iter().map(|(_, seq)| *seq).collect(), ..Reads::default() })?;
        }
        let mut decided = Vec::with_capacity(page.len());
        for &(died_at, seq) in page {
            let Some(body) = self.rows.done(seq)?.and_then(|done| done.letter) else {
                // One damaged row must not keep all others from being looked at.
                tracing::warn!(seq = seq.0, "a dead letter has no body and is left out");
                continue;
            };
            let body = *body;
            let action = letters::decide(&body, died_at, true, now);
            decided.push((Letter { seq, died_at, body }, action));
        }
        let touched = decided.iter().filter(|(letter, action)| !is_left(letter, *action));
        let touched: Vec<Seq> = touched.map(|(letter, _)| letter.seq).collect();
        self.hint_rows(touched.into_iter(), Need::Everything)?;
        self.hint_retries(&decided)?;
        let mut retried = vec![];
        for (letter, _) in decided.iter().filter(|(_, action)| *action == Action::Retry) {
            let (row, state) = self.row_and_state(letter.seq)?;
            if self.may_retry(&row, &state)? {
                retried.push(letter.seq);
            }
        }
        let now_retried = self.lines_of_a_commit(&retried)?;
        if let Some(next) = retried.get(now_retried) {
            let at = decided.iter().position(|(letter, _)| letter.seq == *next);
            decided.truncate(at.unwrap_or(decided.len()));
        }
        self.hint_lines(&retried[..now_retried])?;
        Ok(decided)
    }

    /// Dead jobs are looked up by their ids, and so are the ids of those that take their places.
    fn hint_retries(&mut self, decided: &[(Letter, Action)]) -> Result<()> {
        if !R::PREFETCHES {
            return Ok(());
        }
        let (mut ids, mut keys) = (vec![], vec![]);
        for (letter, _) in decided.iter().filter(|(_, action)| *action == Action::Retry) {
            let Some(row) = self.rows.job(letter.seq)? else { continue };
            ids.extend([row.id, self.mint(row.id, "")]);
            keys.extend(row.extra.and_then(|extra| extra.unique).map(|unique| (row.kind, unique.key)));
        }
        self.hint_look_ups(&LookUps { ids, keys })
    }

    fn process_letter(
        &mut self,
        letter: Letter,
        action: Action,
        now: Timestamp,
        done: &mut ProcessedLetters,
    ) -> Result<()> {
        done.looked_at += 1;
        if is_left(&letter, action) {
            done.left += 1;
            return Ok(());
        }
        let Letter { seq, died_at, body: mut letter } = letter;
        let (row, state) = self.row_and_state(seq)?;
        if letter.cause.is_none() {
            // A version before there were fingerprints made it.
            let kind = self.kind_name(&row)?;
            letter.cause = Some(Cause::of(kind.as_str(), letter.category, &letter.code, &letter.message));
            self.rows.put_letter(seq, &letter)?;
        }
        match action {
            Action::Retry if self.may_retry(&row, &state)? => {
                let new_id = self.mint(row.id, "");
                if self.rows.find_job(new_id)?.is_some() {
                    // Somebody made a job under this id. A millisecond later it is another one.
                    done.left += 1;
                    return Ok(());
                }
                let dead = Dead { letter: Letter { seq, died_at, body: letter }, row, state };
                self.recover_one(dead, new_id, &Recovery::Automatic, now)?;
                done.retried += 1;
            }
            Action::Ask { again } => self.ask_tenant(seq, &row, &state, letter, again, now, done)?,
            Action::Abandon => {
                letter.review = Review::Abandoned;
                letter.resolution = Some(Resolution::Abandoned);
                letter.resolved_by = Some(BY.into());
                letter.resolved_at = Some(now);
                self.rows.put_letter(seq, &letter)?;
                done.abandoned += 1;
            }
            Action::Retry | Action::Leave => done.left += 1,
        }
        Ok(())
    }

    /// An id for a job that is made because of a dead one, at this time: the same in every store, and nobody else's.
    fn mint(&self, dead: JobId, whose: &str) -> JobId {
        let dead = dead.uuid().as_u128();
        let mut seed = Seed::new((dead >> 64) as u64);
        let mut random = u128::from(seed.next_u64()) << 64 | u128::from(seed.next_u64());
        random ^= dead;
        for byte in whose.bytes() {
            let mut next = Seed::new((random as u64) ^ u64::from(byte));
            random = random.rotate_left(8) ^ u128::from(next.next_u64());
        }
        JobId::from_parts(self.last_now.0.max(0).cast_unsigned(), random)
    }

    fn kind_name(&self, row: &JobRow) -> Result<&KindName> {
        let missing = || Error::internal(format!("the kind of job {} is missing", row.id));
        self.memory.names.kind(row.kind).map(|(name, _)| name).ok_or_else(missing)
    }

    /// Whether its policy allows that it runs again without a person (J22).
    fn may_retry(&mut self, row: &JobRow, state: &StateRow) -> Result<bool> {
        // A schedule's next run comes anyway, and an alert that was overtaken by later news must not be told.
        let scheduled = row.extra.as_ref().is_some_and(|extra| extra.schedule.is_some());
        if scheduled || self.kind_name(row)?.as_str().starts_with(limits::RESERVED_KINDS) {
            return Ok(false);
        }
        // Somebody has enqueued the same again.
        if let Some(key) = row.extra.as_ref().and_then(|extra| extra.unique.as_ref())
            && self.rows.unique(row.kind, &key.key)?.is_some_and(|holder| holder.id != row.id)
        {
            return Ok(false);
        }
        let missing = || Error::internal(format!("a name of job {} is missing", row.id));
        let names = &self.memory.names;
        let (_, kind) = names.kind(row.kind).ok_or_else(missing)?;
        let queue = self.queue_of(state.lane.unwrap_or(row.lane))?;
        let (_, queue) = names.queue(queue).ok_or_else(missing)?;
        let own = row.extra.as_ref().and_then(|e| e.retry.as_ref()).or(kind.retry.as_ref());
        let named = |name| names.policies.named(name).map_or_else(RetryPolicy::none, Cow::into_owned);
        let (critical, none) = (named("critical"), named("none"));
        let max_attempts = row.max_attempts.or(kind.max_attempts);
        Ok(letters::allows_retries(own.unwrap_or(&queue.retry), max_attempts, [&critical, &none]))
    }

    /// Enqueues a job of every kind that subscribes to [`letters::REAUTHORIZE_EVENT`], at most one a day for the same tenant and
    /// API, and notes that it was asked.
    #[expect(clippy::too_many_arguments, reason = "everything that is known of the letter by now")]
    fn ask_tenant(
        &mut self,
        seq: Seq,
        row: &JobRow,
        state: &StateRow,
        mut letter: DeadLetter,
        again: bool,
        now: Timestamp,
        done: &mut ProcessedLetters,
    ) -> Result<()> {
        let told = self.subscribers();
        let Request { tenant, connector, kind, key } = self.request(row, state)?;
        if told.contains(&kind) {
            // Whoever asks tenants cannot be asked for itself.
            done.left += 1;
            return Ok(());
        }
        let payload = serde_json::json!({
            "event": letters::REAUTHORIZE_EVENT,
            "tenant": tenant,
            "connector": connector,
            "kind": kind,
            "job": row.id,
            "code": letter.code,
            "reminder": again,
        });
        let (mut refused, some) = (0, !told.is_empty());
        for name in told {
            let unique = Unique {
                key: key.clone(),
                scope: UniqueScope::PeriodMs(letters::REMIND_MS),
                on_conflict: OnConflict::Keep,
            };
            let job = NewJob {
                tenant: tenant.clone(),
                unique: Some(unique),
                id_may_exist: true,
                ..NewJob::new(self.mint(row.id, name.as_str()), name, Payload::trusted(payload.to_string()))
            };
            match self.check_one(&job, now) {
                Ok(checked) => drop(self.enqueue_one(job, checked, None, now)?),
                Err(error) if error.is_refusal() => refused += 1,
                Err(error) => return Err(error),
            }
        }
        done.refused += u64::from(refused > 0);
        if some && refused > 0 {
            // Nobody may have heard: the next run tries again, and whoever has heard is not told twice a day.
            done.left += 1;
            return Ok(());
        }
        letter.asked_at = Some(now);
        self.rows.put_letter(seq, &letter)?;
        *if again { &mut done.reminded } else { &mut done.asked } += 1;
        let queue = self.queue_of(state.lane.unwrap_or(row.lane))?;
        let face = Face { id: row.id, queue, kind: row.kind, tenant: row.tenant };
        self.change(Change::Asked { face, again })
    }

    /// Kinds that hear when a tenant must authorize again.
    fn subscribers(&self) -> Vec<KindName> {
        let event = |on: &[EventName]| on.iter().any(|event| event.as_str() == letters::REAUTHORIZE_EVENT);
        let kinds = self.memory.names.kinds();
        let mut told: Vec<KindName> =
            kinds.filter(|(_, (_, s))| event(&s.on)).map(|(_, (name, _))| name.clone()).collect();
        told.sort();
        told.truncate(limits::MAX_SUBSCRIBERS);
        told
    }

    /// What a tenant has to authorize for a dead job, and the key under which it is asked once a day.
    fn request(&self, row: &JobRow, state: &StateRow) -> Result<Request> {
        let kind = self.kind_name(row)?.clone();
        let lane = state.lane.unwrap_or(row.lane);
        let connector = self.memory.lanes.lane_key(lane).and_then(|key| key.connector.clone());
        let tenant = row.tenant.and_then(|no| self.memory.names.tenant(no).cloned());
        let about = connector.as_ref().map_or(kind.as_str(), ConnectorName::as_str);
        let whose = tenant.as_ref().map_or("", TenantId::as_str);
        let key = UniqueKey::new(format!("reauthorize/{whose}/{about}"))
            .or_else(|_| UniqueKey::new(format!("reauthorize/{}", row.id)))
            .map_err(|e| Error::internal(e.to_string()))?;
        Ok(Request { tenant, connector, kind, key })
    }

    /// Tenants did what they were asked for because of these letters: if they have to do it again today, they are asked again.
    fn forget_requests(&mut self, letters: &HashMap<Seq, Dead>) -> Result<()> {
        let told = self.subscribers();
        let kinds: Vec<KindId> = told.iter().filter_map(|name| self.memory.names.kind_id(name)).collect();
        let mut requests = HashSet::new();
        for dead in letters.values().filter(|dead| !kinds.is_empty() && waits_for_grant(&dead.letter)) {
            requests.insert(self.request(&dead.row, &dead.state)?.key);
        }
        let keys: Vec<(KindId, UniqueKey)> =
            requests.iter().flat_map(|key| kinds.iter().map(|kind| (*kind, key.clone()))).collect();
        if R::PREFETCHES {
            self.hint_look_ups(&LookUps { ids: vec![], keys: keys.clone() })?;
        }
        for (kind, key) in keys {
            if let Some(holder) = self.rows.unique(kind, &key)? {
                self.rows.delete_unique(kind, &key, holder.seq)?;
            }
        }
        Ok(())
    }

    /// Tenants have authorized again: those of these letters that waited for it run again, or are settled.
    pub fn reauthorized(
        &mut self,
        letters: Vec<Reauthorized>,
        by: &str,
        now: Timestamp,
    ) -> Result<Vec<Recovered>> {
        let now = self.tick(now)?;
        let recover = |l: &Reauthorized| Recover { dead: l.dead, new_id: l.new_id.unwrap_or(l.dead) };
        let all: Vec<Recover> = letters.iter().map(recover).collect();
        let dead = self.check_recover(&all, |l| l.new_id == l.dead)?;
        let letters: Vec<(Option<Seq>, Option<JobId>)> =
            dead.into_iter().zip(letters.iter().map(|l| l.new_id)).collect();
        let mut replies = Vec::with_capacity(letters.len());
        for some in letters.chunks(READ_TOGETHER) {
            let mut found = self.read_dead(some.iter().filter_map(|(seq, _)| *seq))?;
            self.forget_requests(&found)?;
            let again = some.iter().filter(|(_, new_id)| new_id.is_some()).filter_map(|(seq, _)| *seq);
            let mut lines = Lines::new(again.collect());
            for &(seq, new_id) in some {
                let Some(seq) = seq else {
                    replies.push(Recovered::NotDead);
                    continue;
                };
                if new_id.is_some() {
                    self.next_line(&mut lines)?;
                }
                // One that comes twice was seen to a moment ago.
                let dead = match found.remove(&seq) {
                    None => self.read_dead([seq].into_iter())?.remove(&seq),
                    found => found,
                };
                replies.push(match dead {
                    Some(dead) => self.reauthorize_one(dead, new_id, &Recovery::Reauthorized(by), now)?,
                    None => Recovered::NotDead,
                });
            }
        }
        Ok(replies)
    }

    fn reauthorize_one(
        &mut self,
        mut dead: Dead,
        new_id: Option<JobId>,
        how: &Recovery<'_>,
        now: Timestamp,
    ) -> Result<Recovered> {
        let waits = waits_for_grant(&dead.letter);
        let letter = &mut dead.letter;
        match (letter.body.recovered_as, new_id) {
            (Some(id), _) => Ok(Recovered::Already(id)),
            (None, _) if !waits => Ok(Recovered::NotDead),
            (None, Some(new_id)) => self.recover_one(dead, new_id, how, now),
            (None, None) => {
                how.settle(&mut letter.body, now);
                self.rows.put_letter(letter.seq, &letter.body)?;
                Ok(Recovered::Resolved)
            }
        }
    }

    /// Causes with an example each, as people see them.
    pub fn describe_causes(&mut self, rows: Vec<CauseRow>, total: u64) -> Result<Causes> {
        let examples: Vec<Seq> = rows.iter().map(|row| row.example).collect();
        let jobs = self.views(&examples)?;
        let mut causes = Vec::with_capacity(rows.len());
        for row in rows {
            let Some((_, job)) = jobs.iter().find(|(seq, _)| *seq == row.example) else { continue };
            let Some(letter) = &job.dead else { continue };
            causes.push(CauseView {
                cause: row.cause,
                count: row.count,
                first_at: row.first,
                last_at: row.last,
                example: job.id,
                kind: job.kind.clone(),
                queue: job.queue.clone(),
                queues: row.queues,
                category: letter.category,
                code: letter.code.clone(),
                message: letters::shape(&letter.message),
            });
        }
        let shown: u64 = causes.iter().map(|cause| cause.count).sum();
        Ok(Causes { causes, other: total.saturating_sub(shown), total })
    }

    /// The numbers that a question about causes names; `None`: what it names does not exist, so nothing fits.
    pub fn cause_filter(&self, query: &CauseQuery) -> Option<crate::rows::CauseFilter> {
        let names = &self.memory.names;
        let found = |named: bool, no: Option<u32>| if named { no.map(Some) } else { Some(None) };
        Some(crate::rows::CauseFilter {
            queue: found(
                query.queue.is_some(),
                query.queue.as_ref().and_then(|q| names.queue_id(q)).map(|id| id.0),
            )?,
            kind: found(
                query.kind.is_some(),
                query.kind.as_ref().and_then(|k| names.kind_id(k)).map(|id| id.0),
            )?,
            tenant: found(
                query.tenant.is_some(),
                query.tenant.as_ref().and_then(|t| names.tenant_no(t)).map(|id| id.0),
            )?,
            limit: query.limit.clamp(1, limits::MAX_CAUSES),
        })
    }
}

impl Recovery<'_> {
    /// Writes into the letter how it was settled.
    pub(super) fn settle(&self, letter: &mut DeadLetter, now: Timestamp) {
        let (review, resolution, by) = match self {
            Self::ByHand => (Review::ManualResolved, Resolution::Recovered, None),
            Self::Automatic => (Review::AutoResolved, Resolution::Recovered, Some(BY)),
            Self::Reauthorized(by) => (Review::AutoResolved, Resolution::Reauthorize, Some(*by)),
        };
        letter.review = review;
        letter.resolution = Some(resolution);
        letter.resolved_by = by.map(|by| tidegate_core::failure::cut(by.to_owned(), limits::MAX_NAME_BYTES));
        letter.resolved_at = Some(now);
    }
}

/// What a tenant is asked for.
struct Request {
    tenant: Option<TenantId>,
    connector: Option<ConnectorName>,
    kind: KindName,
    key: UniqueKey,
}

fn waits_for_grant(letter: &Letter) -> bool {
    let body = &letter.body;
    body.review == Review::PendingReview && body.category == Category::PermanentAuth
}

/// Whether nothing is done with a letter, not even to give it the fingerprint that a version before there were any did not.
fn is_left(letter: &Letter, action: Action) -> bool {
    action == Action::Leave && letter.body.cause.is_some()
}

/// Whether a finished job is a letter that waits for review: what the rows' index of such letters holds.
pub fn is_pending(done: &crate::rows::DoneRow) -> bool {
    done.state == State::Dead && done.letter.as_ref().is_some_and(|l| l.review == Review::PendingReview)
}
