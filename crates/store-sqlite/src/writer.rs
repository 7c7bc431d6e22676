//! The one writer: it owns the machine and commits in groups.
//!
//! Callers send operations to its thread and wait. The writer takes what is queued, applies each operation, commits once to the log,
//! sends the signals, and goes on with the next group. Who relies on the change is answered by the [`Syncer`] once the
//! disk has it; so nobody waits for the disk but those who must, and many share one wait.
//!
//! A caller that is alone need not wake a thread: it is the writer for the moment of a brief operation ([`Desk`]). What
//! takes longer, such as copying the log, is left to the thread.
//!
//! Callers that were just answered come back together a moment later. The first of them must not get a commit of its
//! own while the others queue up behind it, so a group waits briefly for as many callers as were answered since the
//! last one. A lone caller never waits.
//!
//! - A refused operation (usage, not found, state) is answered with its refusal; the others of its group go on.
//! - Any other failure, a panic included, undoes the group: all of it is answered with the error, the machine is
//!   thrown away and rebuilt from the file before the next operation. So nothing that was popped in memory is lost.
//! - What callers rely on (jobs, outcomes, settings) is answered when it is on disk. So is what was read, unless all
//!   that is committed is on disk already: nobody is shown what a power failure could undo.
//! - Claims, heartbeats and the passing of time are answered at once: should the power fail, the worker that got the
//!   lease is gone too. A job may therefore start while its enqueue still waits for the disk. A claim that a limiter
//!   counts, or that runs a suspect, waits like a write.
//! - A claim that found nothing may stand: it is tried again in every group after which there may be work, and gets
//!   its jobs in the commit that makes them ready.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use tidegate_core::codes;
use tidegate_core::time::Timestamp;
use tidegate_store::machine::Machine;
use tidegate_store::machine::standing::{Stander, Standing};
use tidegate_store::{Error, Result, Signals};
use tokio::sync::{mpsc, oneshot};

use crate::checkpointer::Checkpointer;
use crate::owner::Ownership;
use crate::rows::{Checkpoint, LogSize, SqliteRows};
use crate::syncer::{Batch, Syncer};

/// Operations queued before callers wait to be let in.
pub(crate) const INBOX: usize = 1_024;

/// Most operations in one commit: bounds how long the first one waits.
const GROUP_OPERATIONS: usize = 512;

/// Most jobs in one commit, for the same reason.
const GROUP_JOBS: usize = 20_000;

/// Most jobs of an operation that its caller may do by itself: tens of microseconds on a thread that others share.
const BRIEF_JOBS: usize = 16;

/// Most bytes of payloads in it.
pub(crate) const BRIEF_BYTES: usize = 64 << 10;

/// Longest wait for callers that are expected back: a fraction of a commit.
const GATHER: Duration = Duration::from_micros(150);

/// Frames of the write-ahead log (32 MiB) beyond which it is copied into the database file, beside the writer.
const CHECKPOINT_FRAMES: i64 = 4_000;

/// Frames that came while the log was copied, of which the writer copies the rest itself so that the log can begin
/// anew: a pause of a millisecond or two.
const CHECKPOINT_REST: i64 = 400;

/// Frames (128 MiB) beyond which the writer copies the log whatever it takes: it must not grow for ever.
const CHECKPOINT_MOST: i64 = 4 * CHECKPOINT_FRAMES;

/// Commits after which a store is taken to be in for more than a word: room is made in its log ahead of need.
const BUSY_AFTER: u32 = 16;

/// Frames left in the log's file below which more room is made.
const LOG_RESERVE: i64 = 128;

/// After a failed rebuild, the next is tried no sooner: a full disk stays full for a while.
const REBUILD_PAUSE: Duration = Duration::from_millis(500);

/// The machine over SQLite.
pub(crate) type SqliteMachine = Machine<SqliteRows>;

/// What the writer must know of an operation.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Traits {
    /// Whether it changes anything.
    pub(crate) writes: bool,
    /// Whether its caller relies on the change after a power failure.
    pub(crate) durable: bool,
    /// How many jobs it is about.
    pub(crate) jobs: usize,
    /// Whether it costs little, so that its caller may do it by itself.
    pub(crate) brief: bool,
    /// The caller's time, if it has one.
    pub(crate) now: Option<Timestamp>,
}

impl Traits {
    /// An operation that changes nothing.
    pub(crate) fn read() -> Self {
        Self { writes: false, durable: false, jobs: 1, brief: false, now: None }
    }

    /// An operation that changes this many jobs.
    pub(crate) fn write(jobs: usize, now: Timestamp) -> Self {
        Self { writes: true, durable: true, jobs, brief: false, now: Some(now) }
    }

    /// An operation on leases alone: a power failure ends leases anyway.
    pub(crate) fn lease(jobs: usize, now: Timestamp) -> Self {
        Self { durable: false, ..Self::write(jobs, now) }
    }

    /// The same, of an operation whose cost is that of its jobs.
    pub(crate) fn by_jobs(self) -> Self {
        Self { brief: self.jobs <= BRIEF_JOBS, ..self }
    }
}

/// What is sent to the writer.
pub(crate) enum Message {
    /// Do this.
    Run(Box<dyn Operation>),
    /// This claim waits for its jobs, under this number.
    Stand(u64, Box<Stander>),
    /// Answer the claim of this number, whatever it got.
    Withdraw(u64),
    /// A caller that was the writer left the log for the thread to copy.
    CopyLog,
    /// Finish, once these readers have.
    Close { readers: Vec<JoinHandle<()>>, reply: oneshot::Sender<Result<()>> },
}

/// An operation with its caller.
pub(crate) trait Operation: Send {
    fn traits(&self) -> Traits;
    /// Applies it, keeps the reply, and returns an error if the group cannot go on.
    fn apply(&mut self, machine: &mut SqliteMachine) -> Result<()>;
    /// Answers with the reply that was kept, or with what undid it.
    fn answer(self: Box<Self>, undone: Option<&Error>);
}

/// An operation made of a function.
pub(crate) struct Task<T, F> {
    traits: Traits,
    run: Option<F>,
    reply: Option<Result<T>>,
    caller: oneshot::Sender<Result<T>>,
    /// Counted until it is answered, though its caller may be gone before.
    _under_way: UnderWay,
}

impl<T, F> Task<T, F> {
    pub(crate) fn new(
        traits: Traits,
        run: F,
        caller: oneshot::Sender<Result<T>>,
        under_way: UnderWay,
    ) -> Self {
        Self { traits, run: Some(run), reply: None, caller, _under_way: under_way }
    }
}

/// An operation that is not answered yet.
pub(crate) struct UnderWay(Arc<AtomicUsize>);

impl UnderWay {
    /// One more. True if there was no other.
    pub(crate) fn new(count: &Arc<AtomicUsize>) -> (Self, bool) {
        let before = count.fetch_add(1, Ordering::AcqRel);
        (Self(count.clone()), before == 0)
    }
}

impl Drop for UnderWay {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::AcqRel);
    }
}

impl<T: Send, F: FnOnce(&mut SqliteMachine) -> Result<T> + Send> Operation for Task<T, F> {
    fn traits(&self) -> Traits {
        self.traits
    }

    fn apply(&mut self, machine: &mut SqliteMachine) -> Result<()> {
        let Some(run) = self.run.take() else { return Ok(()) };
        match run(machine) {
            Err(error) if !error.is_refusal() => Err(error),
            reply => {
                self.reply = Some(reply);
                Ok(())
            }
        }
    }

    fn answer(self: Box<Self>, undone: Option<&Error>) {
        let reply = match (undone, self.reply) {
            (Some(error), _) => Err(error.clone()),
            (None, Some(reply)) => reply,
            (None, None) => Err(Error::internal("the operation was not run")),
        };
        // A caller that has gone away needs no answer.
        let _ = self.caller.send(reply);
    }
}

impl Operation for Stander {
    fn traits(&self) -> Traits {
        Traits::lease(self.max(), self.now())
    }

    fn apply(&mut self, _: &mut SqliteMachine) -> Result<()> {
        // It was applied when it got its jobs.
        Ok(())
    }

    fn answer(self: Box<Self>, undone: Option<&Error>) {
        Stander::answer(*self, undone);
    }
}

/// The machine, or why there is none.
enum Condition {
    Works(Box<SqliteMachine>),
    Failed { error: Error, retry_at: Instant },
}

/// Where the writer is, for whoever is the writer at the moment. `None` once it has closed.
pub(crate) type Desk = Arc<Mutex<Option<Writer>>>;

/// Does a brief operation on the caller's own thread, if the writer is free and in order; otherwise gives it back. True
/// if the thread is to copy the log.
pub(crate) fn do_at_once(desk: &Desk, operation: Box<dyn Operation>) -> Result<bool, Box<dyn Operation>> {
    let Ok(mut at) = desk.try_lock() else { return Err(operation) };
    let now = operation.traits().now;
    let Some(writer) = at.as_mut().filter(|writer| writer.is_in_order(now)) else { return Err(operation) };
    writer.serve_group(Message::Run(operation), None);
    Ok(writer.log_is_full())
}

/// Serves what is sent until it is told to close or every handle is gone.
pub(crate) fn serve(desk: &Desk, mut inbox: mpsc::Receiver<Message>) {
    let mut next = None;
    while let Some(message) = next.take().or_else(|| inbox.blocking_recv()) {
        let mut at = desk.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(writer) = at.as_mut() else { return };
        match message {
            Message::Close { readers, reply } => {
                let Some(writer) = at.take() else { return };
                drop(at);
                return writer.close(&mut inbox, readers, reply);
            }
            first => next = writer.serve_group(first, Some(&mut inbox)),
        }
        writer.copy_log_if_full();
    }
}

/// The writer.
pub(crate) struct Writer {
    condition: Condition,
    signals: Signals,
    /// Opens the file anew.
    open: Box<dyn Fn() -> Result<SqliteRows> + Send>,
    last_now: Timestamp,
    standing: Standing,
    syncer: Syncer,
    checkpointer: Checkpointer,
    /// Number of the group, for events, and whether the machine makes any.
    commit: u64,
    watching: bool,
    /// Commits so far, as far as they matter.
    commits: u32,
    /// Frames that fit into the log's file as it is.
    log_room: i64,
    /// The log after the last commit.
    log: LogSize,
    checkpoint_at: i64,
    /// Frames in the log when the checkpointer was asked to copy them.
    asked_at: Option<i64>,
    ownership: Ownership,
}

impl std::fmt::Debug for Writer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Writer").finish_non_exhaustive()
    }
}

impl Writer {
    /// A writer over the rows that `open` gives.
    pub(crate) fn new(
        signals: Signals,
        open: impl Fn() -> Result<SqliteRows> + Send + 'static,
        ownership: Ownership,
        syncer: Syncer,
        database: &Path,
        now: Timestamp,
    ) -> Result<Self> {
        let machine = rebuild(&open, now, false)?;
        Ok(Self {
            condition: Condition::Works(machine),
            signals,
            open: Box::new(open),
            last_now: now,
            standing: Standing::default(),
            syncer,
            checkpointer: Checkpointer::start(database)?,
            commit: 0,
            watching: false,
            commits: 0,
            log_room: 0,
            log: LogSize { frames: 0, copied: 0 },
            checkpoint_at: CHECKPOINT_FRAMES,
            asked_at: None,
            ownership,
        })
    }

    /// Whether it can do something now, without waiting for the disk and without more to do than was asked.
    fn is_in_order(&self, now: Option<Timestamp>) -> bool {
        let Condition::Works(machine) = &self.condition else { return false };
        let on_time = now.is_none_or(|now| !machine.has_something_due(now));
        on_time && !self.syncer.is_behind() && self.syncer.failure().is_none()
    }

    /// One group, of this message and of what is in the inbox. Returns the message that ended it, if there was one.
    fn serve_group(
        &mut self,
        first: Message,
        mut inbox: Option<&mut mpsc::Receiver<Message>>,
    ) -> Option<Message> {
        if let Some(error) = self.mend() {
            match first {
                Message::Run(operation) => operation.answer(Some(&error)),
                Message::Stand(_, stander) => Operation::answer(stander, Some(&error)),
                Message::Withdraw(_) | Message::CopyLog | Message::Close { .. } => {}
            }
            // Nobody stands while the store is out of order.
            self.standing.take_all().for_each(|stander| stander.answer(Some(&error)));
            return None;
        }
        let Condition::Works(machine) = &mut self.condition else { return None };
        let watched = self.syncer.feed().watched();
        if watched != std::mem::replace(&mut self.watching, watched) {
            machine.watch(watched);
            self.syncer.feed().skip_to(self.commit);
        }
        machine.measure();
        self.commit += 1;
        let mut group = Group { done: vec![], jobs: 0, writing: false, next: None };
        let (last_now, standing) = (&mut self.last_now, &mut self.standing);
        let (expected, began) = (self.syncer.take_answered(), Instant::now());
        let served = catch_unwind(AssertUnwindSafe(|| {
            group.take(machine, first, last_now, standing)?;
            while group.has_room() {
                match inbox.as_mut().map(|inbox| inbox.try_recv()) {
                    Some(Ok(next)) => group.take(machine, next, last_now, standing)?,
                    Some(Err(_)) if group.done.len() < expected && began.elapsed() < GATHER => {
                        std::thread::yield_now();
                    }
                    Some(Err(_)) | None => break,
                }
            }
            if group.writing {
                if machine.may_have_work() {
                    // All of them: claims of one process, and no lock that others wait for.
                    let now = machine.now();
                    standing.serve(machine, now, usize::MAX, |granted| group.done.push(Box::new(granted)))?;
                }
                machine.rows_mut().commit()?;
            }
            Ok(())
        }));
        let served =
            served.unwrap_or_else(|_| Err(Error::internal("an operation met a defect; nothing was stored")));
        match served {
            Ok(()) => {
                let keep = machine.must_keep();
                send_signals(&self.signals, machine);
                machine.count_seen(self.syncer.feed().meter());
                let written = group.writing;
                let events = (self.commit, machine.take_events());
                let callers = group.answer_now(keep, self.syncer.is_behind());
                if !callers.is_empty() || !events.1.is_empty() {
                    self.syncer.hand_over(Batch { callers, events });
                }
                if written {
                    self.look_at_log();
                }
            }
            Err(error) => {
                tracing::warn!(code = %error.code, "A commit failed and was undone: {error}");
                group.undo(&error);
                self.standing.take_all().for_each(|stander| stander.answer(Some(&error)));
                self.condition = Condition::Failed { error, retry_at: Instant::now() };
            }
        }
        group.next
    }

    /// Rebuilds the machine if it was thrown away. Returns the error that stands in the way.
    fn mend(&mut self) -> Option<Error> {
        let log_in_doubt = self.syncer.failure();
        if let (Some(error), Condition::Works(_)) = (&log_in_doubt, &self.condition) {
            tracing::warn!(code = %error.code, "The disk did not take the log: {error}");
            self.condition = Condition::Failed { error: error.clone(), retry_at: Instant::now() };
        }
        let Condition::Failed { error, retry_at } = &self.condition else { return None };
        if Instant::now() < *retry_at {
            return Some(error.clone());
        }
        match rebuild(&*self.open, self.last_now, log_in_doubt.is_some()) {
            Ok(machine) => {
                self.syncer.recovered();
                tracing::info!("The store works again.");
                (self.checkpoint_at, self.log_room) = (CHECKPOINT_FRAMES, 0);
                self.watching = false;
                self.condition = Condition::Works(machine);
                None
            }
            Err(error) => {
                let retry_at = Instant::now() + REBUILD_PAUSE;
                self.condition = Condition::Failed { error: error.clone(), retry_at };
                Some(error)
            }
        }
    }

    /// Makes room in the log ahead of need, and notes its size.
    fn look_at_log(&mut self) {
        let Condition::Works(machine) = &mut self.condition else { return };
        let rows = machine.rows_mut();
        let Ok(size) = rows.checkpoint(Checkpoint::Look) else { return };
        self.commits = self.commits.saturating_add(1);
        if self.commits > BUSY_AFTER && size.frames + LOG_RESERVE > self.log_room {
            // Without it commits are slower, and a full disk is for the next commit to report.
            let tried_for = size.frames + 2 * LOG_RESERVE;
            self.log_room = rows.make_room_in_log(size.frames).unwrap_or(tried_for);
        }
        // A log shorter than expected has begun anew, since all of it was copied.
        if size.frames < self.checkpoint_at - CHECKPOINT_FRAMES {
            self.checkpoint_at = CHECKPOINT_FRAMES;
        }
        self.log = size;
    }

    /// Whether the log is to be copied.
    fn log_is_full(&self) -> bool {
        let LogSize { frames, .. } = self.log;
        frames >= self.checkpoint_at && (frames >= CHECKPOINT_MOST || !self.checkpointer.is_busy())
    }

    fn copy_log_if_full(&mut self) {
        if !self.log_is_full() {
            return;
        }
        let Condition::Works(machine) = &mut self.condition else { return };
        let rows = machine.rows_mut();
        // The checkpointer may have been at it since the last commit.
        let Ok(size) = rows.checkpoint(Checkpoint::Look) else { return };
        self.log = size;
        let rest = size.frames - size.copied;
        if rest > CHECKPOINT_REST && size.frames < CHECKPOINT_MOST {
            if self.asked_at.is_some_and(|asked| size.copied < asked) {
                // A backup or another reader holds the log; it grows until the reader is done.
                self.checkpoint_at = size.frames + CHECKPOINT_FRAMES;
                self.asked_at = None;
                return;
            }
            self.asked_at = Some(size.frames);
            self.checkpointer.start_copying();
            return;
        }
        self.asked_at = None;
        match rows.checkpoint(Checkpoint::Passive) {
            Ok(LogSize { frames, copied }) if copied == frames => {
                self.checkpoint_at = CHECKPOINT_FRAMES;
                self.log = LogSize { frames: 0, copied: 0 };
            }
            Ok(size) => self.checkpoint_at = size.frames + CHECKPOINT_FRAMES,
            Err(error) => {
                // Nothing is lost: the log has everything, and the next commit says if the disk is full.
                tracing::warn!(code = %error.code, "Copying the write-ahead log failed, it is kept: {error}");
                self.checkpoint_at = size.frames + CHECKPOINT_FRAMES;
            }
        }
    }

    fn close(
        mut self,
        inbox: &mut mpsc::Receiver<Message>,
        readers: Vec<JoinHandle<()>>,
        reply: oneshot::Sender<Result<()>>,
    ) {
        inbox.close();
        for reader in readers {
            // A reader that panicked has nothing left to finish.
            let _ = reader.join();
        }
        self.standing.take_all().for_each(|stander| stander.answer(Some(&crate::store::closed())));
        // Callers are answered before the files are let go.
        drop(self.syncer);
        drop(self.checkpointer);
        let closed = match &mut self.condition {
            Condition::Works(machine) => machine.rows_mut().checkpoint(Checkpoint::Truncate).map(drop),
            Condition::Failed { .. } => Ok(()),
        };
        if let Err(error) = &closed {
            tracing::warn!(code = %error.code, "Copying the write-ahead log failed at close, it is kept: {error}");
        }
        // Files and lock are let go before the caller hears of it.
        drop((self.condition, self.open, self.ownership));
        let _ = reply.send(Ok(()));
    }
}

/// Operations that share a commit.
struct Group {
    done: Vec<Box<dyn Operation>>,
    jobs: usize,
    writing: bool,
    /// What ended the group.
    next: Option<Message>,
}

impl Group {
    fn has_room(&self) -> bool {
        self.next.is_none() && self.done.len() < GROUP_OPERATIONS && self.jobs < GROUP_JOBS
    }

    fn take(
        &mut self,
        machine: &mut SqliteMachine,
        message: Message,
        last_now: &mut Timestamp,
        standing: &mut Standing,
    ) -> Result<()> {
        match message {
            Message::Run(operation) => {
                let traits = operation.traits();
                // Kept before it is applied, so that it is answered even if it panics.
                self.done.push(operation);
                self.jobs += traits.jobs;
                *last_now = traits.now.unwrap_or(*last_now);
                if traits.writes {
                    self.begin(machine)?;
                }
                self.done.last_mut().map_or(Ok(()), |operation| operation.apply(machine))
            }
            Message::Stand(number, stander) => {
                *last_now = stander.now();
                self.begin(machine)?;
                let got = standing.arrive(number, *stander, machine)?;
                self.done.extend(got.map(|stander| Box::new(stander) as Box<dyn Operation>));
                Ok(())
            }
            Message::Withdraw(number) => {
                self.done.extend(standing.withdraw(number).map(|s| Box::new(s) as Box<dyn Operation>));
                Ok(())
            }
            Message::CopyLog => Ok(()),
            close @ Message::Close { .. } => {
                self.next = Some(close);
                Ok(())
            }
        }
    }

    fn begin(&mut self, machine: &mut SqliteMachine) -> Result<()> {
        if !self.writing {
            machine.rows_mut().begin()?;
            self.writing = true;
        }
        Ok(())
    }

    /// Answers whoever need not wait for the disk and returns the others. `keep`: claims must wait too; `behind`: what
    /// was read may not be on disk yet.
    fn answer_now(&mut self, keep: bool, behind: bool) -> Vec<Box<dyn Operation>> {
        let unsynced = behind || self.done.iter().any(|o| o.traits().durable) || (self.writing && keep);
        let waits = |traits: Traits| match (traits.writes, traits.durable) {
            (true, durable) => durable || keep,
            (false, _) => unsynced,
        };
        let (later, now): (Vec<_>, Vec<_>) = self.done.drain(..).partition(|o| waits(o.traits()));
        for operation in now {
            operation.answer(None);
        }
        later
    }

    fn undo(&mut self, error: &Error) {
        for operation in self.done.drain(..) {
            operation.answer(Some(error));
        }
    }
}

/// Opens the file and rebuilds the machine from it. What the rebuild itself writes is durable before anything else. A log
/// that may have holes on disk is copied into the database file first, all of it, from what the system still has in memory.
fn rebuild(
    open: &dyn Fn() -> Result<SqliteRows>,
    now: Timestamp,
    log_in_doubt: bool,
) -> Result<Box<SqliteMachine>> {
    let rebuilt = catch_unwind(AssertUnwindSafe(|| {
        let mut rows = open()?;
        if log_in_doubt {
            let LogSize { frames, copied } = rows.checkpoint(Checkpoint::Truncate)?;
            if copied < frames {
                return Err(Error::new(
                    codes::STORE_FAILED,
                    "the log could not be copied while others read it",
                ));
            }
        }
        rows.begin()?;
        let mut machine = Machine::open(rows, now)?;
        machine.rows_mut().commit()?;
        machine.rows_mut().sync()?;
        Ok(Box::new(machine))
    }));
    rebuilt.unwrap_or_else(|_| {
        Err(Error::new(codes::INTERNAL, "rebuilding the store from its file met a defect"))
    })
}

fn send_signals(signals: &Signals, machine: &mut SqliteMachine) {
    let pending = machine.take_signals();
    if pending.work {
        signals.work();
    }
    for job in pending.cancels {
        signals.cancel(job);
    }
}
