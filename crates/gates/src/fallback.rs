//! Gates on a backend that may be out of reach (G11, `docs/adr/0010-out-of-reach.md`).
//!
//! While the backend answers, it decides, and this costs nothing but a look. When it does not answer, answers too late or
//! refuses to write, each process goes on by itself with its share of every limit: limit / number of processes, as last seen.
//! Locks, and pools smaller than that number, are closed then: their calls wait, which is no failure.
//!
//! - *Going*: what the backend gave to this process counts in its share. Together the processes admit at most one limit's
//!   worth beyond what the backend admitted before.
//! - *Coming back*: for as long as what was admitted locally counts, a call passes the process's own model **and** the
//!   backend. So nothing is admitted twice, and there is no burst.
//! - *Leases* are settled where they were made; settlements for the backend are kept and sent.
//! - A backend that may have lost its state gives out no locks until nobody can have one.
//!
//! The decisions are in `watch`, `share` and `locks`, without clock or I/O.

mod beat;
mod books;
mod calls;
mod health;
mod locks;
mod operations;
mod share;
mod watch;

use std::collections::HashMap;
use std::future::Future;
use std::hash::{BuildHasher as _, RandomState};
use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock};
use std::time::Duration;

use async_trait::async_trait;
use tidegate_core::gates::{
    Admission, Call, Freed, Holder, Micros, Outcome, Permit, Renewal, SECOND, Settled, Target,
};
use tokio::task::JoinSet;
use tokio::time::Instant;

use self::beat::Census;
pub(crate) use self::beat::PRESENCE;
use self::books::{Domain, Model};
pub use self::health::{BackendState, Counters, FallbackOptions, Health};
use self::health::{Tally, count};
use self::locks::Locks;
pub use self::watch::Cause;
use self::watch::{Limits, State, Turn as Turned, Watch};
use crate::{GateOperations, Gates, GatesError, Said, Turn, Turns};

/// A lease that others may have, if this process has seen none longer.
const USUAL_LEASE: Micros = 30 * SECOND;

/// Gates of `B`, and of this process alone while `B` is out of reach.
#[derive(Debug)]
pub struct Fallback<B> {
    inner: Arc<Inner<B>>,
    /// Says that this process lives, and looks whether the backend does; ends with this.
    _tasks: JoinSet<()>,
}

#[derive(Debug)]
struct Inner<B> {
    backend: B,
    limits: Limits,
    started: Instant,
    watch: Mutex<Watch>,
    /// Held while domains are told that the backend has left or is back; taken before any other.
    turning: Mutex<()>,
    locks: Mutex<Locks>,
    census: Mutex<Census>,
    domains: RwLock<HashMap<Box<str>, Arc<Domain>>>,
    turns: Turns,
    tally: Tally,
    health: tokio::sync::watch::Sender<Health>,
    /// The longest lease of a lock that this process asked for.
    longest: AtomicI64,
}

fn micros(duration: Duration) -> Micros {
    duration.as_micros() as Micros
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl<B: Gates + GateOperations + 'static> Fallback<B> {
    /// Registers this process with the backend, which must answer now.
    pub async fn around(backend: B, options: FallbackOptions) -> Result<Self, GatesError> {
        let limits =
            Limits { slow: micros(options.slow), away: micros(options.away), beat: micros(options.beat) };
        let random = RandomState::new().hash_one(std::process::id());
        let census = Census::new(backend.clock(), random)?;
        let turns = backend.turn(&Holder::number(random)).turns().clone();
        let health = Health {
            state: BackendState::Normal,
            because: None,
            processes: 1,
            locks_closed: true,
            stretch: 1,
        };
        let inner = Arc::new(Inner {
            limits,
            started: Instant::now(),
            watch: Mutex::new(Watch::new(0, limits)),
            turning: Mutex::default(),
            locks: Mutex::new(Locks::new(backend.generation(), micros(options.newcomer))),
            census: Mutex::new(census),
            domains: RwLock::default(),
            turns,
            tally: Tally::default(),
            health: tokio::sync::watch::Sender::new(health),
            longest: AtomicI64::new(USUAL_LEASE),
            backend,
        });
        inner.register().await?;
        inner.publish();
        let mut tasks = JoinSet::new();
        let beating = inner.clone();
        tasks.spawn(async move { beating.beat_for_ever().await });
        Ok(Self { inner, _tasks: tasks })
    }

    /// How the backend is.
    pub fn health(&self) -> Health {
        *self.inner.health.borrow()
    }

    /// Tells every change of [`Self::health`].
    pub fn watch(&self) -> tokio::sync::watch::Receiver<Health> {
        self.inner.health.subscribe()
    }

    /// What was counted.
    pub fn counters(&self) -> Counters {
        self.inner.tally.read()
    }

    /// The backend itself.
    pub fn backend(&self) -> &B {
        &self.inner.backend
    }
}

/// Why an operation failed, as far as its text tells.
fn cause_of(error: &(dyn std::error::Error + 'static)) -> Cause {
    let text = error.to_string();
    let refuses = ["READONLY", "OOM ", "MISCONF", "NOREPLICAS", "read-only", "read only"];
    if refuses.iter().any(|word| text.contains(word)) {
        return Cause::ReadOnly;
    }
    error.source().map_or(Cause::Unreachable, cause_of)
}

impl<B: Gates + GateOperations> Inner<B> {
    /// This process's own clock.
    fn mono(&self) -> Micros {
        micros(self.started.elapsed())
    }

    fn is_away(&self) -> bool {
        lock(&self.watch).is_away()
    }

    fn known(&self, domain: &str) -> Result<Arc<Domain>, GatesError> {
        let domains = self.domains.read().unwrap_or_else(PoisonError::into_inner);
        domains.get(domain).cloned().ok_or_else(|| GatesError::UnknownDomain { domain: domain.into() })
    }

    fn all(&self) -> Vec<Arc<Domain>> {
        self.domains.read().unwrap_or_else(PoisonError::into_inner).values().cloned().collect()
    }

    /// Tells the watch, and does what follows.
    fn tell(&self, event: impl FnOnce(&mut Watch, Micros) -> Turned) {
        let mono = self.mono();
        let turned = event(&mut lock(&self.watch), mono);
        self.follow(turned);
    }

    /// Does what follows from a turn.
    fn follow(&self, turned: Turned) {
        match turned {
            Turned::Nothing => return,
            Turned::Pace => {}
            Turned::Left => {
                count(&self.tally.outages);
                self.tell_domains();
                tracing::warn!("gates: {}", self.read_health().sentence());
                // Those who wait for the backend's time or wake-up can go on with the share.
                self.turns.wake_all();
            }
            Turned::Back => {
                self.tell_domains();
                tracing::info!("gates: the backend is back");
            }
        }
        self.publish();
    }

    /// Tells all domains whether the backend is away: as it is now, since the turn that this follows from may not be the last.
    fn tell_domains(&self) {
        let _turning = lock(&self.turning);
        let (away, now, mono) = (self.is_away(), self.backend.clock(), self.mono());
        for domain in self.all() {
            if !away {
                domain.returned(now, mono);
            } else if let Err(e) = domain.left(now, || self.backend.heard(&domain.name)) {
                tracing::error!(domain = %domain.name, error = %e, "gates: what operators have said is not known here");
            }
        }
    }

    /// The domain's model; made if there is none.
    fn model_of(&self, now: Micros, domain: &Domain) -> Result<Arc<Model>, GatesError> {
        if let Some(there) = domain.model() {
            return Ok(there);
        }
        let _turning = lock(&self.turning);
        let (seat, mono) = (lock(&self.census).seat(), self.mono());
        let model = domain.model_or_new(now, mono, seat, &self.turns, || self.backend.heard(&domain.name))?;
        if !self.is_away() {
            // All domains have been told so before this one had a model.
            domain.returned(now, mono);
        }
        Ok(model)
    }

    /// What the backend has heard of operators, although it is away: its answers come too late for calls, or it was out of reach on
    /// some ways only. The domain's model goes by that from now on.
    fn listen(&self, now: Micros, domain: &Domain) -> Result<Arc<Said>, GatesError> {
        let hear = || self.backend.heard(&domain.name);
        if let Some(heard) = domain.listen(now, hear)? {
            return Ok(heard);
        }
        // The backend has left just now, and this domain was not told yet.
        let _turning = lock(&self.turning);
        if self.is_away() {
            domain.left(now, hear)?;
        }
        Ok(hear())
    }

    fn read_health(&self) -> Health {
        let (state, processes) = (lock(&self.watch).state(), lock(&self.census).seat().processes);
        let locks_closed = !lock(&self.locks).are_open(self.mono());
        let returning = || self.all().iter().any(|domain| domain.model().is_some());
        let (state, because, stretch) = match state {
            State::Normal if returning() => (BackendState::Returning, None, 1),
            State::Normal => (BackendState::Normal, None, 1),
            State::Slow => (BackendState::Slow, Some(Cause::Slow), watch::STRETCH as u32),
            State::Away(cause) => (BackendState::Away, Some(cause), 1),
        };
        Health { state, because, processes, locks_closed, stretch }
    }

    fn publish(&self) {
        let new = self.read_health();
        self.health.send_if_modified(|old| std::mem::replace(old, new) != new);
    }

    /// Asks the backend, for as long as an answer counts.
    async fn ask<R>(&self, operation: impl Future<Output = Result<R, GatesError>>) -> Result<R, GatesError> {
        let began = self.mono();
        let patience = Duration::from_micros(self.limits.away as u64);
        match tokio::time::timeout(patience, operation).await {
            Ok(answer) => {
                if answer.is_ok() {
                    self.tell(|watch, now| watch.answered(now, now - began));
                }
                self.heed(answer)
            }
            Err(late) => {
                count(&self.tally.failures);
                self.tell(|watch, now| watch.outstanding(now, now - began));
                Err(GatesError::Unreachable(Box::new(late)))
            }
        }
    }

    /// Asks the backend for something that takes a round trip per partition, as what operators ask for does. How long that takes
    /// says nothing of its health, and nobody is served by half of it. The backend bounds every round trip.
    async fn ask_throughout<R>(
        &self,
        operation: impl Future<Output = Result<R, GatesError>>,
    ) -> Result<R, GatesError> {
        self.heed(operation.await)
    }

    /// Sees from an answer whether the backend could be reached, and whether it is another one.
    fn heed<R>(&self, answer: Result<R, GatesError>) -> Result<R, GatesError> {
        match &answer {
            Ok(_) => {
                self.note_generation();
            }
            Err(GatesError::Unreachable(e)) => {
                count(&self.tally.failures);
                let cause = cause_of(&**e);
                self.tell(|watch, now| watch.failed(now, cause));
            }
            Err(_) => {}
        }
        answer
    }

    /// Looks whether the backend is still the one that it was. If not, what it gave to this process is taken over into the
    /// models, and locks are closed. True if it is another one.
    fn note_generation(&self) -> bool {
        let generation = self.backend.generation();
        let processes = lock(&self.census).seat().processes;
        let longest = self.longest.load(Ordering::Acquire);
        if !lock(&self.locks).changed(self.mono(), generation, processes, longest) {
            return false;
        }
        count(&self.tally.losses);
        tracing::warn!("gates: the backend is another one, or was restarted; its state may be lost");
        let now = self.backend.clock();
        for domain in self.all() {
            if let Err(e) = self.model_of(now, &domain) {
                tracing::error!(domain = %domain.name, error = %e, "gates: no model could be made");
            }
        }
        self.tell_domains();
        self.publish();
        true
    }
}

#[async_trait]
impl<B: Gates + GateOperations + 'static> Gates for Fallback<B> {
    fn health(&self) -> Option<Health> {
        Some(self.health())
    }

    async fn admit(&self, now: Option<Micros>, call: &Call) -> Result<Admission, GatesError> {
        self.inner.admit(now, call).await
    }

    async fn settle(
        &self,
        now: Option<Micros>,
        permit: &Permit,
        outcome: &Outcome,
    ) -> Result<Settled, GatesError> {
        self.inner.settle(now, permit, outcome).await
    }

    async fn renew(&self, now: Option<Micros>, permit: &Permit) -> Result<Renewal, GatesError> {
        self.inner.renew(now, permit).await
    }

    async fn cancel_wait(
        &self,
        now: Option<Micros>,
        target: &Target,
        holder: &Holder,
    ) -> Result<Freed, GatesError> {
        self.inner.cancel_wait(now, target, holder).await
    }

    async fn expire(&self, now: Option<Micros>, domain: &str) -> Result<Freed, GatesError> {
        self.inner.expire(now, domain).await
    }

    fn clock(&self) -> Micros {
        self.inner.backend.clock()
    }

    fn generation(&self) -> u64 {
        self.inner.backend.generation()
    }

    fn turn(&self, holder: &Holder) -> Turn {
        self.inner.backend.turn(holder)
    }
}

#[cfg(test)]
mod tests {
    use tidegate_core::gates::config::Breaker;
    use tidegate_core::gates::{Because, BreakerOrder, Gate, GateSet, Kind};

    use super::*;
    use crate::{InProcess, Note};

    /// A breaker that is open by order, on a backend that has left.
    async fn left_with_an_order() -> Fallback<InProcess> {
        let gates = Fallback::around(InProcess::new(), FallbackOptions::default()).await.unwrap();
        let breaker = Gate::new("health", Kind::Breaker(Breaker::default()));
        gates.configure("d", GateSet::of(vec![breaker])).await.unwrap();
        let (trip, note) =
            (BreakerOrder::Trip { lasts: 600 * SECOND }, Note { who: "me".into(), why: "a test".into() });
        gates.order_breaker(None, "d", ("health", None), trip, note).await.unwrap();
        gates.inner.tell(|watch, now| watch.failed(now, Cause::Unreachable));
        gates
    }

    fn comes_back(inner: &Inner<InProcess>) -> Turned {
        let (mut watch, mono) = (lock(&inner.watch), inner.mono());
        assert_eq!(watch.beat_answered(mono, 0), Turned::Nothing);
        watch.beat_answered(mono, 0)
    }

    #[tokio::test(start_paused = true)]
    async fn a_return_that_is_carried_out_after_the_next_outage_began_changes_nothing() {
        let gates = left_with_an_order().await;
        let (inner, domain) = (&gates.inner, gates.inner.known("d").unwrap());
        let call = Call::new(Arc::new(Target::new("d").unwrap()), Holder::number(1));
        let model = inner.model_of(inner.backend.clock(), &domain).unwrap();
        let back = comes_back(inner);
        assert_eq!(back, Turned::Back);
        inner.tell(|watch, now| watch.failed(now, Cause::Unreachable));
        inner.follow(back);
        let reply = inner.admit(None, &call).await.unwrap();
        assert!(matches!(&reply, Admission::Wait(w) if w.because == Because::BreakerOpen), "{reply:?}");
        assert!(domain.retire(Micros::MAX - 1), "a model stays for as long as the backend is away");
        assert!(Arc::ptr_eq(&domain.model().unwrap(), &model));
    }

    #[tokio::test(start_paused = true)]
    async fn a_call_that_overtakes_the_word_of_an_outage_goes_by_what_operators_have_said() {
        let gates = left_with_an_order().await;
        let (inner, domain) = (&gates.inner, gates.inner.known("d").unwrap());
        inner.model_of(inner.backend.clock(), &domain).unwrap();
        inner.follow(comes_back(inner));
        let mono = inner.mono();
        assert_eq!(lock(&inner.watch).failed(mono, Cause::Unreachable), Turned::Left);
        let call = Call::new(Arc::new(Target::new("d").unwrap()), Holder::number(1));
        let reply = inner.admit(None, &call).await.unwrap();
        assert!(matches!(&reply, Admission::Wait(w) if w.because == Because::BreakerOpen), "{reply:?}");
    }

    #[tokio::test(start_paused = true)]
    async fn a_model_that_is_made_when_the_backend_is_already_back_goes_by_itself() {
        let gates = left_with_an_order().await;
        let (inner, domain) = (&gates.inner, gates.inner.known("d").unwrap());
        inner.follow(comes_back(inner));
        // By one that looked whether it is away just before.
        inner.model_of(inner.backend.clock(), &domain).unwrap();
        let mono = inner.mono() + 61 * SECOND;
        assert!(!domain.retire(mono), "nothing counts any more");
    }
}
