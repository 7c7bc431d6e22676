//! What is sent to the writer: operations with their callers.

use tidegate_core::ids::JobId;
use tidegate_core::time::Timestamp;
use tidegate_store::machine::Machine;
use tidegate_store::machine::standing::Stander;
use tidegate_store::params::{Claim, Claimed};
use tidegate_store::{Error, Result};
use tokio::sync::oneshot;

use crate::error::is_refusal;
use crate::rows::PgRows;
use crate::rows::foreseen::Completion;
use crate::rows::send::COPY_FROM;

/// The machine over Postgres.
pub(crate) type PgMachine = Machine<PgRows>;

/// What an operation needs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Needs {
    /// The memory as it is: what others did may be missing.
    Glance,
    /// The memory, up to date.
    Memory,
    /// Rows as well, of the same moment.
    Rows,
    /// The right to write.
    Lock,
}

/// What the writer must know of an operation.
#[derive(Debug, Clone)]
pub(crate) struct Traits {
    pub(crate) needs: Needs,
    /// Whether its caller relies on the change after a crash of the server.
    pub(crate) durable: bool,
    /// Whether it stores new jobs.
    pub(crate) stores: bool,
    /// How many jobs it is about.
    pub(crate) jobs: usize,
    /// The caller's time, if it has one.
    pub(crate) now: Option<Timestamp>,
    /// Ids that it looks up.
    pub(crate) ids: Vec<JobId>,
    /// Jobs that it completes, if they are many: their marks are written before the lock is waited for.
    pub(crate) completes: Vec<Completion>,
}

impl Traits {
    /// An operation that looks at the memory alone, and can live with what it was a moment ago.
    pub(crate) fn glance() -> Self {
        Self { needs: Needs::Glance, ..Self::memory() }
    }

    /// An operation that looks at the memory alone.
    pub(crate) fn memory() -> Self {
        Self {
            needs: Needs::Memory,
            durable: false,
            stores: false,
            jobs: 1,
            now: None,
            ids: vec![],
            completes: vec![],
        }
    }

    /// An operation that reads rows.
    pub(crate) fn read(jobs: usize) -> Self {
        Self { needs: Needs::Rows, jobs, ..Self::memory() }
    }

    /// An operation that changes this many jobs.
    pub(crate) fn write(jobs: usize, now: Timestamp) -> Self {
        Self { needs: Needs::Lock, durable: true, jobs, now: Some(now), ..Self::memory() }
    }

    /// An operation on leases alone: its caller can live with a crash that forgets it.
    pub(crate) fn lease(jobs: usize, now: Timestamp) -> Self {
        Self { durable: false, ..Self::write(jobs, now) }
    }

    /// Stores new jobs.
    pub(crate) fn stores(mut self) -> Self {
        self.stores = true;
        self
    }

    /// Whether it stores at least so many jobs.
    pub(crate) fn is_bulk(&self, jobs: usize) -> bool {
        self.stores && self.jobs >= jobs
    }

    /// Completes these jobs.
    pub(crate) fn completes(mut self, completions: Vec<Completion>) -> Self {
        if completions.len() >= COPY_FROM {
            self.completes = completions;
        }
        self
    }

    /// Looks up these ids.
    pub(crate) fn finds(mut self, ids: impl IntoIterator<Item = JobId>) -> Self {
        self.ids.extend(ids);
        self
    }
}

/// What is sent to the writer.
pub(crate) enum Message {
    /// Do this.
    Run(Box<dyn Operation>),
    /// A claim that stands under this number until it finds something.
    Stand(u64, Box<Stander>),
    /// It need not stand any longer.
    Withdraw(u64),
    /// Finish.
    Close(oneshot::Sender<()>),
}

/// An operation with its caller.
pub(crate) trait Operation: Send {
    fn traits(&self) -> &Traits;
    /// Takes out what it completes.
    fn take_completions(&mut self) -> Vec<Completion>;
    /// Whether it is a claim that is certain to find nothing. It has its answer then, without being applied.
    fn is_in_vain(&mut self, _: &PgMachine) -> bool {
        false
    }
    /// Applies it, keeps the reply, and returns an error if the group cannot go on.
    fn apply(&mut self, machine: &mut PgMachine) -> Result<()>;
    /// Answers with the reply that was kept, or with what undid it.
    fn answer(self: Box<Self>, undone: Option<&Error>);
}

/// An operation made of a function.
pub(crate) struct Task<T, F> {
    traits: Traits,
    run: Option<F>,
    reply: Option<Result<T>>,
    caller: oneshot::Sender<Result<T>>,
}

impl<T, F> Task<T, F> {
    pub(crate) fn new(traits: Traits, run: F, caller: oneshot::Sender<Result<T>>) -> Self {
        Self { traits, run: Some(run), reply: None, caller }
    }
}

impl<T: Send, F: FnOnce(&mut PgMachine) -> Result<T> + Send> Operation for Task<T, F> {
    fn traits(&self) -> &Traits {
        &self.traits
    }

    fn take_completions(&mut self) -> Vec<Completion> {
        std::mem::take(&mut self.traits.completes)
    }

    fn apply(&mut self, machine: &mut PgMachine) -> Result<()> {
        self.run.take().map_or(Ok(()), |run| keep(&mut self.reply, run(machine)))
    }

    fn answer(self: Box<Self>, undone: Option<&Error>) {
        answer(self.caller, self.reply, undone);
    }
}

/// Keeps a reply, unless it is an error after which the group cannot go on.
fn keep<T>(kept: &mut Option<Result<T>>, reply: Result<T>) -> Result<()> {
    match reply {
        Err(error) if !is_refusal(&error) => Err(error),
        reply => {
            *kept = Some(reply);
            Ok(())
        }
    }
}

fn answer<T>(caller: oneshot::Sender<Result<T>>, reply: Option<Result<T>>, undone: Option<&Error>) {
    let reply = match (undone, reply) {
        (Some(error), _) => Err(error.clone()),
        (None, Some(reply)) => reply,
        (None, None) => Err(Error::internal("the operation was not run")),
    };
    // A caller that has gone away needs no answer.
    let _ = caller.send(reply);
}

/// A claim that does not wait.
pub(crate) struct Asking {
    traits: Traits,
    claim: Claim,
    reply: Option<Result<Claimed>>,
    caller: oneshot::Sender<Result<Claimed>>,
}

impl Asking {
    pub(crate) fn new(claim: Claim, caller: oneshot::Sender<Result<Claimed>>) -> Self {
        Self { traits: Traits::lease(claim.max as usize, claim.now), claim, reply: None, caller }
    }
}

impl Operation for Asking {
    fn traits(&self) -> &Traits {
        &self.traits
    }

    fn take_completions(&mut self) -> Vec<Completion> {
        vec![]
    }

    fn is_in_vain(&mut self, machine: &PgMachine) -> bool {
        self.reply = machine.in_vain(&self.claim).map(Ok);
        self.reply.is_some()
    }

    fn apply(&mut self, machine: &mut PgMachine) -> Result<()> {
        let reply = machine.claim(self.claim.clone());
        if let Ok(claimed) = &reply {
            machine.rows_mut().foreseen().note(claimed);
        }
        keep(&mut self.reply, reply)
    }

    fn answer(self: Box<Self>, undone: Option<&Error>) {
        answer(self.caller, self.reply, undone);
    }
}

/// A claim that stood and got something.
pub(crate) struct Granted {
    traits: Traits,
    stander: Stander,
}

impl Granted {
    pub(crate) fn new(stander: Stander) -> Self {
        Self { traits: Traits::lease(stander.max(), stander.now()), stander }
    }
}

impl Operation for Granted {
    fn traits(&self) -> &Traits {
        &self.traits
    }

    fn take_completions(&mut self) -> Vec<Completion> {
        vec![]
    }

    fn apply(&mut self, _: &mut PgMachine) -> Result<()> {
        // It was applied when it got its jobs.
        Ok(())
    }

    fn answer(self: Box<Self>, undone: Option<&Error>) {
        self.stander.answer(undone);
    }
}
