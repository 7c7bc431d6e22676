//! Seeded histories, run against two backends, every reply compared.
//!
//! A history is a set of gates and a sequence of operations with their times, made from one seed: admissions that are new,
//! repeated and tried again, settlements that are good, late, doubled or never come (a crash is silence), renewals,
//! cancelled waits, operators' levers, time that passes in small and large steps and sometimes goes back. Operations name
//! permits by the order in which they were handed out, so a history can be made before it is run. `now` is given, so
//! fences and times are the same in every backend that keeps to the specification.
//!
//! ```ignore
//! let history = history::make(seed, 400);
//! let a = history::run(&in_process, &history).await?;
//! let b = history::run(&redis, &history).await?;
//! history::compare(&history, &a, &b)?;
//! ```

mod make;

use std::fmt;

use serde::{Deserialize, Serialize};
use tidegate_core::gates::{
    Admission, BreakerOrder, Call, Freed, GateSet, Holder, HolderView, Micros, Outcome, Permit, Renewal,
    ScopeView, Settled, Target, WaiterView,
};

pub use make::{make, sets};

use crate::{GateOperations, Gates, GatesError, Note};

/// A backend that can be compared.
pub trait Backend: Gates + GateOperations {}

impl<T: Gates + GateOperations> Backend for T {}

/// A sequence of operations.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct History {
    /// Where it comes from.
    pub seed: u64,
    /// The domain it uses: one of its own.
    pub domain: String,
    /// Its gates.
    pub set: GateSet,
    /// What happens, and when.
    pub steps: Vec<(Micros, Operation)>,
}

/// One operation. Permits are named by a number: four times in five it means one of the last ten, else any.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub enum Operation {
    /// A call asks.
    Admit(Call),
    /// A call ends.
    Settle(u64, Outcome),
    /// A permit is renewed.
    Renew(u64),
    /// A place is given up.
    Cancel(Box<Target>, Holder),
    /// Time passes.
    Expire,
    /// An operator puts a waiter first.
    Promote(Holder),
    /// An operator ends the leases of a holder, or only looks.
    ForceRelease(Holder, bool),
    /// An operator tells a breaker what to do.
    Breaker(String, BreakerOrder),
    /// An operator switches a gate off or on.
    Switch(String, bool),
    /// An operator looks at who holds and waits.
    Look,
    /// The gates are looked at.
    Inspect,
}

/// What came back.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Reply {
    /// To an admission.
    Admission(Admission),
    /// To a settlement.
    Settled(Settled),
    /// To a renewal.
    Renewal(Renewal),
    /// To a cancelled wait, or time that passed.
    Freed(Freed),
    /// To a promotion.
    Promoted(bool),
    /// To a forced release.
    Released(Vec<HolderView>, Vec<Holder>),
    /// To an order or a switch: how many.
    Count(u32),
    /// Who holds and waits.
    Seen(Vec<HolderView>, Vec<WaiterView>),
    /// What the gates have; keys at rest are left out, for a backend may have forgotten them.
    Inspected(Vec<ScopeView>),
    /// There was no permit to do it with.
    Nothing,
}

/// Two backends that disagree.
#[derive(Debug, thiserror::Error)]
pub struct Mismatch {
    /// The seed of the history.
    pub seed: u64,
    /// The step.
    pub step: usize,
    /// Its time.
    pub at: Micros,
    /// What was asked.
    pub operation: Operation,
    /// What the first said.
    pub left: Box<Reply>,
    /// What the second said.
    pub right: Box<Reply>,
}

impl fmt::Display for Mismatch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { seed, step, at, operation, left, right } = self;
        write!(f, "seed {seed}, step {step} at {at}: {operation:?}\n  one: {left:?}\n  two: {right:?}")
    }
}

fn note() -> Note {
    Note { who: "history".into(), why: "comparison".into() }
}

/// Runs a history and collects the replies.
pub async fn run(backend: &dyn Backend, history: &History) -> Result<Vec<Reply>, GatesError> {
    run_with(backend, history, |_| Ok(())).await
}

/// As [`run`], with something done before every step, such as a restart.
pub async fn run_with(
    backend: &dyn Backend,
    history: &History,
    mut before: impl FnMut(usize) -> Result<(), GatesError>,
) -> Result<Vec<Reply>, GatesError> {
    backend.configure(&history.domain, history.set.clone()).await?;
    let mut permits: Vec<Permit> = Vec::new();
    let mut replies = Vec::with_capacity(history.steps.len());
    for (step, (now, operation)) in history.steps.iter().enumerate() {
        before(step)?;
        let reply = apply(backend, &history.domain, *now, operation, &permits).await?;
        if let Reply::Admission(Admission::Admitted(admitted)) = &reply {
            permits.push(admitted.permit.clone());
        }
        replies.push(reply);
    }
    Ok(replies)
}

/// The permit that a number means: four times in five one of the last ten, else any that was ever handed out.
fn nth(permits: &[Permit], n: u64) -> Option<&Permit> {
    let among = if n.is_multiple_of(5) { permits.len() } else { permits.len().min(10) };
    let back = (n / 5).checked_rem(among as u64)? as usize;
    permits.get(permits.len() - 1 - back)
}

async fn apply(
    backend: &dyn Backend,
    domain: &str,
    now: Micros,
    operation: &Operation,
    permits: &[Permit],
) -> Result<Reply, GatesError> {
    let at = Some(now);
    let permit = |n: u64| nth(permits, n);
    Ok(match operation {
        Operation::Admit(call) => Reply::Admission(backend.admit(at, call).await?),
        Operation::Settle(n, outcome) => match permit(*n) {
            Some(permit) => Reply::Settled(backend.settle(at, permit, outcome).await?),
            None => Reply::Nothing,
        },
        Operation::Renew(n) => match permit(*n) {
            Some(permit) => Reply::Renewal(backend.renew(at, permit).await?),
            None => Reply::Nothing,
        },
        Operation::Cancel(target, holder) => Reply::Freed(backend.cancel_wait(at, target, holder).await?),
        Operation::Expire => {
            let mut freed = backend.expire(at, domain).await?;
            // Partitions come in no particular order.
            freed.woken.sort_unstable();
            Reply::Freed(freed)
        }
        Operation::Promote(holder) => Reply::Promoted(backend.promote(at, domain, holder, note()).await?),
        Operation::ForceRelease(holder, dry_run) => {
            let mut released = backend.force_release(at, domain, holder, *dry_run, note()).await?;
            released.leases.sort_unstable_by_key(|l| l.fence);
            released.woken.sort_unstable();
            Reply::Released(released.leases, released.woken)
        }
        Operation::Breaker(gate, order) => {
            // How many keys have state depends on when a backend forgets those at rest.
            backend.order_breaker(at, domain, (gate, None), *order, note()).await?;
            Reply::Count(1)
        }
        Operation::Switch(gate, off) => {
            Reply::Count(backend.switch(domain, Some(gate), *off, note()).await?.len() as u32)
        }
        Operation::Look => {
            let mut holders = backend.holders(domain, 10_000).await?;
            let mut waiters = backend.waiters(domain, 10_000).await?;
            holders.sort_by_key(|h| (h.fence, h.holder));
            waiters.sort_by_key(|w| (w.arrived, w.holder));
            Reply::Seen(holders, waiters)
        }
        Operation::Inspect => {
            let mut views = backend.inspect(at, domain, 10_000).await?;
            views.retain(|v| v.live > 0 || v.waiting > 0);
            views.sort_by(|a, b| (&a.key, &a.gates[0].0).cmp(&(&b.key, &b.gates[0].0)));
            Reply::Inspected(views)
        }
    })
}

/// Compares the replies of two backends to one history.
pub fn compare(history: &History, left: &[Reply], right: &[Reply]) -> Result<(), Box<Mismatch>> {
    for (step, (at, operation)) in history.steps.iter().enumerate() {
        let (a, b) = (left.get(step), right.get(step));
        if a != b {
            let or_nothing = |r: Option<&Reply>| Box::new(r.cloned().unwrap_or(Reply::Nothing));
            return Err(Box::new(Mismatch {
                seed: history.seed,
                step,
                at: *at,
                operation: operation.clone(),
                left: or_nothing(a),
                right: or_nothing(b),
            }));
        }
    }
    Ok(())
}
