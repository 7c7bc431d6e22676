//! An operation that waits to be run on a partition: what to do, and whom to answer.

use tidegate_core::gates::{Compiled, Holder, Micros, Partition};
use tokio::sync::oneshot;

use crate::GatesError;

/// Why an operation was not done.
#[derive(Debug)]
pub(super) enum Failed {
    /// The domain is split in another way now: find the partition again.
    Moved,
    /// It cannot be done.
    Error(GatesError),
}

/// An operation. It may be run more than once, if a transaction fails; only the last run counts.
pub(super) trait Job: Send {
    /// The time it was given, if any.
    fn now(&self) -> Option<Micros>;

    /// Does it and keeps the reply.
    fn run(&mut self, set: &Compiled, state: &mut Partition, now: Micros);

    /// Who should ask now, by the reply that is kept.
    fn woken(&self) -> &[Holder];

    /// Whether nobody waits for the answer any more.
    fn abandoned(&self) -> bool;

    /// Answers with the reply that is kept.
    fn deliver(self: Box<Self>);

    /// Answers that it was not done.
    fn fail(self: Box<Self>, why: Failed);
}

/// A reply that may wake others.
pub(super) trait Wakes: Send {
    /// Who should ask now.
    fn woken(&self) -> &[Holder];
}

/// What an operation's caller waits for.
pub(super) type Answer<R> = oneshot::Receiver<Result<R, Failed>>;

struct Typed<R, F> {
    now: Option<Micros>,
    act: F,
    reply: Option<R>,
    caller: oneshot::Sender<Result<R, Failed>>,
}

/// An operation from a closure.
pub(super) fn job<R, F>(now: Option<Micros>, act: F) -> (Box<dyn Job>, Answer<R>)
where
    R: Wakes + 'static,
    F: FnMut(&Compiled, &mut Partition, Micros) -> R + Send + 'static,
{
    let (caller, answer) = oneshot::channel();
    (Box::new(Typed { now, act, reply: None, caller }), answer)
}

impl<R: Wakes, F: FnMut(&Compiled, &mut Partition, Micros) -> R + Send> Job for Typed<R, F> {
    fn now(&self) -> Option<Micros> {
        self.now
    }

    fn run(&mut self, set: &Compiled, state: &mut Partition, now: Micros) {
        self.reply = Some((self.act)(set, state, self.now.unwrap_or(now)));
    }

    fn woken(&self) -> &[Holder] {
        self.reply.as_ref().map_or(&[], Wakes::woken)
    }

    fn abandoned(&self) -> bool {
        self.caller.is_closed()
    }

    fn deliver(self: Box<Self>) {
        let unanswered = || Failed::Error(GatesError::Corrupt("an operation was not run".into()));
        // A caller that has gone lets its lease or place lapse.
        let _ = self.caller.send(self.reply.ok_or_else(unanswered));
    }

    fn fail(self: Box<Self>, why: Failed) {
        let _ = self.caller.send(Err(why));
    }
}
