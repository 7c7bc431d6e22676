//! The one writer of a process: a thread that owns the session and commits in groups.
//!
//! Callers send operations and wait. The writer takes what is queued, opens one transaction, applies each operation,
//! commits once and sends the signals; callers are answered when their change is durable, for which the
//! [`flusher`](crate::flusher) waits while the writer goes on. While one group commits, the next gathers; and while the
//! lock is waited for, this one does.
//!
//! - A refused operation (usage, not found, state) is answered with its refusal; the others of its group go on.
//! - Any other failure undoes the group: all of it is answered with the error, the machine is thrown away and rebuilt
//!   from rows before the next operation. A failure before the first operation was applied costs nothing: the machine is
//!   as it was, and the log says whether it still is what everybody else has.
//! - A group of claims, heartbeats and the passing of time alone does not wait for the server's disk. A claim that a
//!   limiter counts, or that runs a suspect, does.
//! - Between groups the writer follows what others committed, takes over what users put into the inbox, and mends the
//!   connection, by itself.

use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use tidegate_core::ids::JobId;
use tidegate_core::seed::Seed;
use tidegate_core::time::Timestamp;
use tidegate_store::machine::PendingSignals;
use tidegate_store::machine::standing::{Stander, Standing};
use tidegate_store::rows::{JobRows as _, LookUps};
use tidegate_store::{Error, Result, Signals};
use tokio::runtime::Runtime;
use tokio::sync::mpsc;

use crate::error::OrStore as _;
use crate::flusher::{Flushed, Flusher};
use crate::inbox::Drain;
use crate::listener::Heard;
use crate::rows::foreseen::Completion;
use crate::session::{Kind, Session};
use crate::statements::Sql;
use crate::store::closed;
use crate::task::{Granted, Message, Needs, Operation, Traits};

/// Operations queued before callers wait to be let in.
pub(crate) const INBOX: usize = 1_024;

/// Most operations in one commit: bounds how long the first one waits.
const GROUP_OPERATIONS: usize = 512;

/// Most jobs in one commit, for the same reason.
const GROUP_JOBS: usize = 20_000;

/// Jobs from which on a caller that waits for the disk has a commit of its own: while it waits there, and gathers its next
/// jobs, the next one is served.
const BULK: usize = 500;

/// Longest wait for callers that are expected back: a fraction of a commit.
const GATHER: Duration = Duration::from_micros(150);

/// Pauses between attempts to connect: the first, and the longest.
const FIRST_PAUSE: Duration = Duration::from_millis(50);
const LONGEST_PAUSE: Duration = Duration::from_secs(1);

/// How often to look for what others did while `LISTEN` works: in case a notification was lost.
const LOOK_AGAIN: Duration = Duration::from_secs(2);

/// Most looks into the inbox before the first operation is served.
const LOOKS_AT_START: u32 = 200;

/// How often the clocks are compared.
const COMPARE_CLOCKS: Duration = Duration::from_secs(30);

/// Clocks that are no further apart agree: readings of them are no better.
const CLOCKS_AGREE_MS: i64 = 50;

/// Why there is no service.
struct Outage {
    error: Error,
    retry_at: Instant,
    pause: Duration,
}

/// The writer.
pub(crate) struct Writer {
    inbox: mpsc::Receiver<Message>,
    runtime: Rc<Runtime>,
    session: Session,
    outage: Option<Outage>,
    signals: Signals,
    heard: Arc<Heard>,
    flusher: Flusher,
    drain: Drain,
    standing: Standing,
    /// A claim may find more than when those that stand were last tried.
    stirred: bool,
    poll: Duration,
    clock: CallersClock,
    dice: Seed,
    /// Callers answered by the last group.
    expected: usize,
    looked: Instant,
    /// When the clocks were last compared.
    compared: Instant,
}

/// What woke the writer.
enum Event {
    Message(Message),
    Look,
    Closed,
}

impl Writer {
    #[expect(clippy::too_many_arguments, reason = "the parts of a writer, once")]
    pub(crate) fn new(
        inbox: mpsc::Receiver<Message>,
        runtime: Rc<Runtime>,
        session: Session,
        signals: Signals,
        heard: Arc<Heard>,
        flusher: Flusher,
        poll: Duration,
        now: Timestamp,
    ) -> Self {
        let dice = Seed::new(wall_nanos().cast_unsigned() ^ u64::from(std::process::id()));
        Self {
            inbox,
            runtime,
            session,
            outage: None,
            signals,
            heard,
            flusher,
            drain: Drain::default(),
            standing: Standing::default(),
            stirred: false,
            poll,
            clock: CallersClock::new(now),
            dice,
            expected: 0,
            looked: Instant::now(),
            compared: Instant::now(),
        }
    }

    /// Compares this machine's clock with the server's: all processes go by the latter.
    fn compare_clocks(&mut self) -> Result<()> {
        self.compared = Instant::now();
        let (before, began) = (wall_clock(), Instant::now());
        let rows = self.session.ask(Sql::HeadClock, &[])?;
        let round_trip = began.elapsed().as_millis() as i64;
        let theirs: i64 = rows.first().map_or(Ok(0), |row| row.try_get(0).or_store())?;
        let ahead = theirs - (before.0 + round_trip / 2);
        self.heard.set_clock_ahead(if ahead.abs() <= CLOCKS_AGREE_MS { 0 } else { ahead });
        Ok(())
    }

    /// Serves until the store is closed or its last handle is gone.
    pub(crate) fn run(mut self) {
        if let Err(error) = self.compare_clocks() {
            self.failed(error);
        }
        // The server's time from the first moment on.
        self.clock.ahead_ms += self.heard.clock_ahead();
        // Whoever connects finds the jobs that users put into the inbox before.
        self.heard.doubt_inbox();
        for _ in 0..LOOKS_AT_START {
            self.look();
            if !self.heard.has_inbox() {
                break;
            }
        }
        let mut next = None;
        loop {
            let event = match next.take() {
                Some(message) => Event::Message(message),
                None => self.wait(),
            };
            match event {
                Event::Message(Message::Close(reply)) => {
                    self.inbox.close();
                    self.standing.take_all().for_each(|stander| stander.answer(Some(&closed())));
                    drop(self);
                    let _ = reply.send(());
                    return;
                }
                Event::Message(first) => {
                    next = self.serve_group(Some(first));
                    if next.is_none() && self.is_time_to_look() {
                        self.look();
                    }
                }
                Event::Look => self.look(),
                Event::Closed => return,
            }
            if next.is_none() && self.has_something_for_those_who_stand() {
                next = self.serve_group(None);
            }
        }
    }

    fn wait(&mut self) -> Event {
        let runtime = self.runtime.clone();
        let look_at = self.look_at();
        let (inbox, heard) = (&mut self.inbox, &self.heard);
        runtime.block_on(async {
            tokio::select! {
                biased;
                message = inbox.recv() => message.map_or(Event::Closed, Event::Message),
                () = heard.wait() => Event::Look,
                () = tokio::time::sleep_until(look_at.into()) => Event::Look,
            }
        })
    }

    fn look_at(&self) -> Instant {
        match &self.outage {
            Some(outage) => outage.retry_at,
            None if self.heard.listens() => self.looked + LOOK_AGAIN,
            None => self.looked + self.poll,
        }
    }

    /// Under steady load there is no idle moment; what others did comes with every transaction, the inbox does not.
    fn is_time_to_look(&self) -> bool {
        self.heard.has_inbox() || Instant::now() >= self.look_at()
    }

    /// Mends the connection if it is broken, follows what others did, takes over what is in the inbox.
    fn look(&mut self) {
        let heard = self.heard.take();
        if !heard.only_commits() {
            self.looked = Instant::now();
        }
        if let Some(outage) = &self.outage
            && Instant::now() < outage.retry_at
        {
            return;
        }
        // Of a commit that is known here nothing need be asked, unless it is not known whether anybody answers.
        let known = heard.only_commits() && heard.version <= self.session.version();
        let looks = !known || self.outage.is_some();
        let now = self.clock.now();
        let looked = self.guard(|writer| {
            if looks {
                writer.session.refresh()?;
                let signals = writer.session.start()?;
                writer.send(signals);
            }
            if heard.only_commits() {
                return Ok(());
            }
            if writer.compared.elapsed() >= COMPARE_CLOCKS {
                writer.compare_clocks()?;
            }
            let promoted = writer.drain.run(&mut writer.session, now)?;
            writer.send(promoted.signals);
            if promoted.more {
                // Callers come first: heartbeats and outcomes do not wait until a large inbox is empty.
                writer.heard.more_in_inbox();
            }
            Ok(())
        });
        match looked {
            Ok(()) if looks => self.works(),
            Ok(()) => {}
            Err(error) => self.failed(error),
        }
    }

    /// Runs something that may panic.
    fn guard<T>(&mut self, run: impl FnOnce(&mut Self) -> Result<T>) -> Result<T> {
        let result = catch_unwind(AssertUnwindSafe(|| run(self)));
        result.unwrap_or_else(|_| {
            self.session.dirty();
            Err(Error::internal("an operation met a defect; nothing was stored"))
        })
    }

    /// The server has answered.
    fn works(&mut self) {
        if self.outage.take().is_some() {
            tracing::info!("The store works again.");
            self.stirred = true;
            self.signals.work();
        }
    }

    /// After a failure nothing in memory is to be trusted but what was committed.
    fn failed(&mut self, error: Error) {
        self.session.note(&error);
        self.session.roll_back();
        if self.session.is_dirty() {
            self.session.discard();
        }
        if self.outage.is_none() {
            tracing::warn!(code = %error.code, "The store failed; it is tried again: {error}");
        }
        let pause = self.outage.as_ref().map_or(FIRST_PAUSE, |o| (o.pause * 2).min(LONGEST_PAUSE));
        // Processes that lost the server together do not come back together.
        let jitter = pause.mul_f64(self.dice.below(1_000) as f64 / 1_000.0);
        // The first attempt is made at once.
        let retry_at =
            Instant::now() + if self.outage.is_none() { Duration::ZERO } else { pause / 2 + jitter / 2 };
        self.outage = Some(Outage { error, retry_at, pause });
    }

    /// Whether those who stand are to be tried: others have done something after which one would find something.
    fn has_something_for_those_who_stand(&mut self) -> bool {
        if self.standing.is_empty() || self.outage.is_some() || !std::mem::take(&mut self.stirred) {
            return false;
        }
        let (standing, clock) = (&mut self.standing, &self.clock);
        let found = self.session.machine().is_ok_and(|machine| {
            let now = clock.now().max(machine.now());
            standing.would_find(machine, now)
        });
        self.stirred = found;
        found
    }

    fn send(&mut self, signals: PendingSignals) {
        if signals.work {
            self.stirred = true;
            self.signals.work();
        }
        for job in signals.cancels {
            self.signals.cancel(job);
        }
    }

    /// One group, of this message and of what is in the inbox; without one, for those who stand. Returns the message that ended it, if
    /// there was one: to close, or the first of the next group.
    fn serve_group(&mut self, first: Option<Message>) -> Option<Message> {
        if let Some(outage) = &self.outage
            && Instant::now() < outage.retry_at
        {
            match first {
                Some(Message::Run(operation)) => operation.answer(Some(&outage.error)),
                Some(Message::Stand(_, stander)) => stander.answer(Some(&outage.error)),
                Some(Message::Withdraw(number)) => {
                    self.standing.withdraw(number).into_iter().for_each(|stander| stander.answer(None));
                }
                Some(Message::Close(_)) | None => {}
            }
            return None;
        }
        let mut group = Group::default();
        match first {
            Some(first) => group.take(first, &mut self.clock, &mut self.standing),
            None => (group.needs, group.tries) = (Needs::Lock, true),
        }
        group.gather(&mut self.inbox, &mut self.clock, &mut self.standing, None);
        let began = Instant::now();
        let expected = self.expected;
        let (mut to_flush, mut keep) = (false, false);
        let served = self.guard(|writer| {
            group.arrive_in_vain(writer)?;
            if group.asks_in_vain(writer)? {
                return Ok(());
            }
            match group.needs {
                Needs::Glance => {
                    writer.session.mend()?;
                    group.apply(&mut writer.session)?;
                }
                Needs::Memory => {
                    writer.session.refresh()?;
                    let signals = writer.session.start()?;
                    writer.send(signals);
                    group.apply(&mut writer.session)?;
                }
                Needs::Rows => {
                    writer.session.begin(Kind::Read)?;
                    let signals = writer.session.start()?;
                    writer.send(signals);
                    group.apply(&mut writer.session)?;
                    writer.session.finish_reading()?;
                }
                Needs::Lock => {
                    writer.session.foresee(group.take_completions(), group.now)?;
                    writer.session.begin(Kind::Write)?;
                    let signals = writer.session.start()?;
                    writer.send(signals);
                    // Others came while the lock was waited for; those that were just answered are about to.
                    let wait = Some((expected, began));
                    group.gather(&mut writer.inbox, &mut writer.clock, &mut writer.standing, wait);
                    writer.session.dirty();
                    group.apply(&mut writer.session)?;
                    // A lone caller is best served by a commit that waits; others must not wait for it.
                    let lone = group.taken.len() == 1 && expected <= 1;
                    let granted = group.serve_standing(writer)?;
                    let patient = lone && !granted && !group.bulk && writer.inbox.is_empty();
                    let committed = writer.session.commit(group.durable, patient)?;
                    // Those who stand have been tried since.
                    let stirred = std::mem::take(&mut writer.stirred);
                    writer.send(committed.signals);
                    writer.stirred = stirred;
                    (to_flush, keep) = (committed.to_flush, committed.keep);
                }
            }
            Ok(())
        });
        match served {
            Ok(()) => {
                if group.needs > Needs::Glance {
                    self.works();
                }
                if group.callers > 0 {
                    self.expected = group.callers;
                }
                if to_flush {
                    // Who has changed nothing has seen what may not be on disk yet.
                    let waits = |traits: &Traits| keep || traits.durable || traits.needs < Needs::Lock;
                    let (callers, now): (Vec<_>, Vec<_>) =
                        std::mem::take(&mut group.taken).into_iter().partition(|o| waits(o.traits()));
                    group.taken = now;
                    self.flusher.answer_later(Flushed { mark: self.session.mark(), callers });
                }
                group.answer(None);
                self.session.prune_log();
            }
            Err(error) => {
                group.answer(Some(&error));
                if group.tries {
                    // One of them may be to blame, or nobody else was there to be told.
                    self.standing.take_all().for_each(|stander| stander.answer(Some(&error)));
                }
                self.failed(error);
            }
        }
        group.next
    }
}

/// Operations that share a transaction.
struct Group {
    taken: Vec<Box<dyn Operation>>,
    /// How many of them were sent.
    callers: usize,
    /// Claims that came to stand.
    arrived: VecDeque<(u64, Stander)>,
    /// Claims that stood and got something.
    granted: Vec<Stander>,
    /// It was begun for those who stand, or they were tried.
    tries: bool,
    ids: Vec<JobId>,
    jobs: usize,
    needs: Needs,
    durable: bool,
    /// Whether one of the callers brought many jobs.
    bulk: bool,
    /// The latest time that one of its callers read.
    now: Timestamp,
    /// What ended the group.
    next: Option<Message>,
}

impl Default for Group {
    fn default() -> Self {
        Self {
            taken: vec![],
            callers: 0,
            arrived: VecDeque::new(),
            granted: vec![],
            tries: false,
            ids: vec![],
            jobs: 0,
            needs: Needs::Glance,
            durable: false,
            bulk: false,
            now: Timestamp(i64::MIN),
            next: None,
        }
    }
}

impl Group {
    fn take(&mut self, message: Message, clock: &mut CallersClock, standing: &mut Standing) {
        match message {
            Message::Run(operation) => self.push(operation, clock),
            Message::Stand(number, stander) => {
                clock.read(stander.now());
                self.now = self.now.max(stander.now());
                self.arrived.push_back((number, *stander));
            }
            Message::Withdraw(number) => {
                let here = self.arrived.iter().position(|(n, _)| *n == number);
                let found = here.and_then(|at| self.arrived.remove(at)).map(|(_, stander)| stander);
                let found = found.or_else(|| standing.withdraw(number));
                if let Some(stander) = found {
                    stander.answer(None);
                }
            }
            close @ Message::Close(_) => self.next = Some(close),
        }
    }

    fn push(&mut self, operation: Box<dyn Operation>, clock: &mut CallersClock) {
        let traits = operation.traits();
        self.jobs += traits.jobs;
        self.durable |= traits.durable;
        self.bulk |= traits.is_bulk(BULK);
        self.ids.extend_from_slice(&traits.ids);
        self.needs = self.needs.max(traits.needs);
        if let Some(now) = traits.now {
            clock.read(now);
            self.now = self.now.max(now);
        }
        self.taken.push(operation);
        self.callers += 1;
    }

    /// What the operations complete, taken out of them.
    fn take_completions(&mut self) -> Vec<Completion> {
        self.taken.iter_mut().flat_map(|operation| operation.take_completions()).collect()
    }

    fn has_room(&self) -> bool {
        let operations = self.taken.len() + self.arrived.len();
        self.next.is_none() && operations < GROUP_OPERATIONS && self.jobs < GROUP_JOBS
    }

    /// Takes what is queued; with `wait`, gives as many callers as the last group had a moment to come back.
    fn gather(
        &mut self,
        inbox: &mut mpsc::Receiver<Message>,
        clock: &mut CallersClock,
        standing: &mut Standing,
        wait: Option<(usize, Instant)>,
    ) {
        while self.has_room() {
            match inbox.try_recv() {
                Ok(Message::Run(next)) if self.bulk && next.traits().is_bulk(BULK) => {
                    self.next = Some(Message::Run(next));
                }
                Ok(next) => self.take(next, clock, standing),
                Err(_) => match wait {
                    Some((expected, began)) if self.taken.len() < expected && began.elapsed() < GATHER => {
                        std::thread::yield_now();
                    }
                    _ => return,
                },
            }
        }
    }

    /// Claims that are certain to find nothing stand without a transaction. For the others there must be one.
    fn arrive_in_vain(&mut self, writer: &mut Writer) -> Result<()> {
        if self.arrived.is_empty() || self.needs == Needs::Lock {
            return Ok(());
        }
        writer.session.mend()?;
        let machine = writer.session.machine()?;
        for (number, stander) in std::mem::take(&mut self.arrived) {
            let rest = writer.standing.arrive_in_vain(number, stander, machine);
            self.arrived.extend(rest.map(|stander| (number, stander)));
        }
        if !self.arrived.is_empty() {
            self.needs = Needs::Lock;
        }
        Ok(())
    }

    /// Whether all of it are claims that are certain to find nothing, by a memory that is up to date: they have their answer. If the memory
    /// as it is says otherwise, that is not asked; and what is broken is mended with the lock.
    fn asks_in_vain(&mut self, writer: &mut Writer) -> Result<bool> {
        let claims = self.arrived.is_empty() && !self.taken.is_empty();
        if !claims || !self.are_in_vain(&mut writer.session) || writer.session.refresh().is_err() {
            return Ok(false);
        }
        let signals = writer.session.start()?;
        writer.send(signals);
        Ok(self.are_in_vain(&mut writer.session))
    }

    fn are_in_vain(&mut self, session: &mut Session) -> bool {
        session
            .machine()
            .is_ok_and(|machine| self.taken.iter_mut().all(|operation| operation.is_in_vain(machine)))
    }

    /// Tries those who stand, if one may find more than before, and then claims that have come. Whether one was granted something.
    /// The lock is held: what is more than a commit holds has a transaction of its own.
    fn serve_standing(&mut self, writer: &mut Writer) -> Result<bool> {
        self.tries |= !self.arrived.is_empty() || !writer.standing.is_empty();
        self.try_standing(writer).map_err(|error| writer.session.cause_of(error))?;
        let machine = writer.session.machine()?;
        let before = self.taken.len();
        for stander in self.granted.drain(..) {
            if let Some(claimed) = stander.granted() {
                machine.rows_mut().foreseen().note(claimed);
            }
            self.taken.push(Box::new(Granted::new(stander)));
        }
        Ok(self.taken.len() > before)
    }

    fn try_standing(&mut self, writer: &mut Writer) -> Result<()> {
        let (machine, standing) = (writer.session.machine()?, &mut writer.standing);
        // The callers' time, if one of them had one. What is made up is never taken for a clock that went back.
        let timed = self.taken.iter().any(|operation| operation.traits().now.is_some());
        let made_up = if timed { machine.now() } else { writer.clock.now() };
        let now = made_up.max(machine.now());
        let mut more = false;
        if std::mem::take(&mut writer.stirred) || machine.may_have_work() {
            more = standing.serve(machine, now, self.left(), |stander| self.grant(stander))?;
        }
        let arrived = !self.arrived.is_empty();
        while let Some((number, stander)) = self.arrived.pop_front() {
            if self.left() == 0 {
                standing.line_up(number, stander);
                more = true;
            } else if let Some(stander) = standing.arrive(number, stander, machine)? {
                self.grant(stander);
            }
        }
        // By its time something may have come due that is for another.
        if arrived && machine.may_have_work() {
            more |= standing.serve(machine, machine.now(), self.left(), |stander| self.grant(stander))?;
        }
        writer.stirred = more;
        Ok(())
    }

    /// How many more jobs a commit holds.
    fn left(&self) -> usize {
        GROUP_JOBS.saturating_sub(self.jobs)
    }

    fn grant(&mut self, stander: Stander) {
        self.jobs += stander.granted().map_or(0, |claimed| claimed.jobs.len());
        self.granted.push(stander);
    }

    fn apply(&mut self, session: &mut Session) -> Result<()> {
        let machine = session.machine()?;
        if self.ids.len() > 1 {
            // One look-up for all of them instead of one each.
            let ids = std::mem::take(&mut self.ids);
            machine.rows_mut().will_look_up(&LookUps { ids, ..LookUps::default() })?;
        }
        for operation in &mut self.taken {
            if let Err(error) = operation.apply(session.machine()?) {
                return Err(session.cause_of(error));
            }
        }
        Ok(())
    }

    fn answer(&mut self, undone: Option<&Error>) {
        for operation in self.taken.drain(..) {
            operation.answer(undone);
        }
        // None is left of these unless something failed.
        let arrived = self.arrived.drain(..).map(|(_, stander)| stander);
        arrived.chain(self.granted.drain(..)).for_each(|stander| stander.answer(undone));
    }
}

/// The callers' time, for what the writer does between their calls: how far it is ahead of this machine's clock, which goes on while the
/// machine sleeps and goes back when theirs does.
struct CallersClock {
    ahead_ms: i64,
}

impl CallersClock {
    fn new(now: Timestamp) -> Self {
        Self { ahead_ms: now.since(wall_clock()) }
    }

    fn read(&mut self, now: Timestamp) {
        *self = Self::new(now);
    }

    fn now(&self) -> Timestamp {
        wall_clock().plus_ms(self.ahead_ms)
    }
}

/// The system's time.
fn wall_clock() -> Timestamp {
    Timestamp(wall_nanos() / 1_000_000)
}

fn wall_nanos() -> i64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or(Duration::ZERO).as_nanos() as i64
}
