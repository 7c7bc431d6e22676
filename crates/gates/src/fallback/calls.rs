//! The operations of a call: by the backend, by the own model, or by both.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use tidegate_core::gates::{
    Admission, Because, Call, End, Freed, Holder, LeaseEnd, Micros, Outcome, Permit, Renewal, SECOND,
    Settled, Target, Wait,
};

use super::books::{Domain, Held};
use super::health::count;
use super::{Inner, lock};
use crate::{GateOperations, Gates, GatesError};

/// Shortest and longest time until a call that waits for the backend asks again: half the age of the outage.
const CLOSED_RETRY: (Micros, Micros) = (SECOND / 2, 4 * SECOND);

impl<B: Gates + GateOperations> Inner<B> {
    /// A wait for the backend itself.
    fn wait(&self, now: Micros, call: &Call, gate: &Arc<str>, because: Because) -> Admission {
        count(&self.tally.closed);
        let arrived = call.since.filter(|since| *since <= now).unwrap_or(now);
        let (gate, retry_at) = (gate.clone(), now + self.pause(because));
        Admission::Wait(Wait { gate, because, retry_at, position: None, arrived, woken: Vec::new() })
    }

    /// How long to stay away from what the backend alone can open: how long an outage lasts nobody knows; locks are open again
    /// within a few beats.
    fn pause(&self, because: Because) -> Micros {
        let age = if because == Because::BackendLost { 0 } else { self.mono() - lock(&self.watch).since() };
        (age / 2).clamp(CLOSED_RETRY.0, CLOSED_RETRY.1)
    }

    /// Whether a lock may be given out: only by the backend that everybody knows.
    fn locks_are_open(&self) -> bool {
        lock(&self.locks).are_open(self.mono())
    }

    fn admit_locally(&self, now: Micros, domain: &Domain, call: &Call) -> Result<Admission, GatesError> {
        let model = self.model_of(now, domain)?;
        let (share, heard) = (model.share(), self.listen(now, domain)?);
        if let Some(gate) = share.closed_to(&call.target).find(|gate| !domain.is_off(gate, &heard)) {
            return Ok(self.wait(now, call, gate, Because::BackendAway));
        }
        let Some(mut reply) = model.admit(now, call)? else {
            let gate = Arc::from("share");
            return Ok(self.wait(now, call, &gate, Because::BackendAway));
        };
        // An order ends when its operator says so, to the backend: nobody stays away for all of its time.
        if let Admission::Wait(wait) = &mut reply
            && wait.because == Because::BreakerOpen
            && heard.orders.iter().any(|order| *order.gate == *wait.gate && order.until > now)
        {
            count(&self.tally.closed);
            wait.retry_at = wait.retry_at.min(now + self.pause(wait.because));
        }
        if let Admission::Admitted(admitted) = &reply {
            count(&self.tally.admitted_locally);
            let held = Held {
                call: call.clone(),
                remote: None,
                local: Some((model, admitted.permit.clone())),
                lock: domain.locks(&call.target),
                generation: lock(&self.locks).generation(),
                ends: self.mono() + call.lease,
            };
            domain.hold(self.mono(), held);
        }
        Ok(reply)
    }

    pub(super) async fn admit(&self, given: Option<Micros>, call: &Call) -> Result<Admission, GatesError> {
        let domain = self.known(call.target.domain())?;
        let now = given.unwrap_or_else(|| self.backend.clock());
        if self.is_away() {
            return self.admit_locally(now, &domain, call);
        }
        let locks = domain.locks(&call.target);
        if locks {
            self.longest.fetch_max(call.lease, Ordering::AcqRel);
            if !self.locks_are_open() {
                return Ok(self.wait(now, call, &Arc::from("lock"), Because::BackendLost));
            }
        }
        // What was admitted without the backend still counts: first the own model, then the backend.
        let mut pledge = None;
        if let Some(model) = domain.model() {
            domain.listen(now, || self.backend.heard(&domain.name))?;
            match model.admit(now, call)? {
                Some(Admission::Admitted(admitted)) => {
                    domain.pledge(call.holder, admitted.permit.clone());
                    pledge = Some((model, admitted.permit));
                }
                Some(other) => return Ok(other),
                // Above the share, and nothing to be afraid of: the backend decides.
                None => {}
            }
        }
        let (generation, sent) = (lock(&self.locks).generation(), self.mono());
        let answer = self.ask(self.backend.admit(given, call)).await;
        // New settings may have come meanwhile, and taken the books with them.
        let domain = self.known(call.target.domain())?;
        match answer {
            Ok(Admission::Admitted(admitted)) => {
                if locks && lock(&self.locks).generation() != generation {
                    // The answer is another backend's: somebody may have the lock from the one before.
                    let unused = Outcome::of(End::Unused);
                    let _ = self.ask(self.backend.settle(given, &admitted.permit, &unused)).await;
                    domain.withdraw(now, &call.holder)?;
                    return Ok(self.wait(now, call, &Arc::from("lock"), Because::BackendLost));
                }
                count(&self.tally.admitted_by_backend);
                let permit = &admitted.permit;
                let late = given.is_none() && self.backend.clock() > permit.use_by;
                let usable = permit.use_by - permit.admitted_at;
                self.tell(|watch, now| watch.permit(now, late, usable));
                let held = Held {
                    call: call.clone(),
                    remote: Some(permit.clone()),
                    local: pledge,
                    lock: locks,
                    generation,
                    ends: sent + call.lease,
                };
                domain.hold(self.mono(), held);
                Ok(Admission::Admitted(admitted))
            }
            Ok(Admission::Wait(wait)) => Ok(Admission::Wait(wait)),
            Err(GatesError::Unreachable(_)) => {
                domain.doubt(call);
                // The answer may have been waited for: what was now is long ago.
                let now = given.unwrap_or_else(|| self.backend.clock());
                self.admit_locally(now, &domain, call)
            }
            decided => {
                domain.withdraw(now, &call.holder)?;
                decided
            }
        }
    }

    pub(super) async fn settle(
        &self,
        given: Option<Micros>,
        permit: &Permit,
        outcome: &Outcome,
    ) -> Result<Settled, GatesError> {
        let domain = self.known(permit.target.domain())?;
        let now = given.unwrap_or_else(|| self.backend.clock());
        let mut reply = Settled { state: LeaseEnd::Released, woken: Vec::new(), changes: Vec::new() };
        let mut own = false;
        if let Some(held) = domain.release(permit) {
            if let Some((model, permit)) = &held.local {
                reply = model.gates.settle_now(Some(now), permit, outcome)?;
                own = true;
            }
            if held.remote.is_none() {
                return Ok(reply);
            }
        }
        if !self.is_away() {
            match self.ask(self.backend.settle(given, permit, outcome)).await {
                Err(GatesError::Unreachable(_)) => {}
                // Another backend knows nothing of it, or its lease lapsed in an outage: here it was held all the time.
                Ok(Settled { state: LeaseEnd::Gone, .. }) if own => return Ok(reply),
                answered => return answered,
            }
        }
        // The domain as it is after the answer was waited for.
        if !self.known(permit.target.domain())?.owe(permit, outcome) {
            count(&self.tally.forgotten);
        }
        Ok(reply)
    }

    pub(super) async fn renew(&self, given: Option<Micros>, permit: &Permit) -> Result<Renewal, GatesError> {
        let mut domain = self.known(permit.target.domain())?;
        let now = given.unwrap_or_else(|| self.backend.clock());
        let generation = lock(&self.locks).generation();
        let look = |h: &mut Held| (h.remote.is_some(), h.lock, h.generation == generation, h.ends);
        let Some((remote, locks, same, ends)) = domain.look(permit, look) else {
            if self.is_away() {
                return Ok(unrenewed(permit, now < permit.expires_at));
            }
            return self.ask(self.backend.renew(given, permit)).await;
        };
        if remote && same && !self.is_away() {
            let sent = self.mono();
            let answer = self.ask(self.backend.renew(given, permit)).await;
            domain = self.known(permit.target.domain())?;
            match answer {
                Ok(Renewal::Renewed { expires_at }) => {
                    domain.look(permit, |h| h.ends = sent + h.call.lease);
                    self.renew_locally(now, &domain, permit)?;
                    return Ok(Renewal::Renewed { expires_at });
                }
                // The backend knows best who has a lock.
                Ok(Renewal::Gone) if locks => return Ok(Renewal::Gone),
                // It lapsed at the backend; if it was renewed here in an outage, it goes on here.
                Ok(Renewal::Gone) | Err(GatesError::Unreachable(_)) => {}
                Err(e) => return Err(e),
            }
        }
        if remote && locks {
            // Nobody else has the lock until the time that the backend gave; then anybody may.
            return Ok(unrenewed(permit, self.mono() < ends));
        }
        if self.is_away() && remote {
            self.model_of(now, &domain)?;
        }
        self.renew_locally(now, &domain, permit)
    }

    /// Renews what a permit has in the model.
    fn renew_locally(&self, now: Micros, domain: &Domain, permit: &Permit) -> Result<Renewal, GatesError> {
        let Some(Some((model, own))) = domain.look(permit, |h| h.local.clone()) else {
            return Ok(Renewal::Gone);
        };
        let reply = model.gates.renew_now(Some(now), &own)?;
        if matches!(reply, Renewal::Renewed { .. }) {
            let mono = self.mono();
            domain.look(permit, |h| h.ends = h.ends.max(mono + h.call.lease));
        }
        Ok(reply)
    }

    pub(super) async fn cancel_wait(
        &self,
        given: Option<Micros>,
        target: &Target,
        holder: &Holder,
    ) -> Result<Freed, GatesError> {
        let domain = self.known(target.domain())?;
        let now = given.unwrap_or_else(|| self.backend.clock());
        domain.withdraw(now, holder)?;
        let mut freed = Freed { gone: 0, more: false, woken: Vec::new() };
        if let Some(model) = domain.model() {
            freed = model.gates.cancel_wait_now(Some(now), target, holder)?;
        }
        if self.is_away() {
            return Ok(freed);
        }
        match self.ask(self.backend.cancel_wait(given, target, holder)).await {
            // Its place lapses by itself.
            Err(GatesError::Unreachable(_)) => Ok(freed),
            answered => answered,
        }
    }

    pub(super) async fn expire(&self, given: Option<Micros>, name: &str) -> Result<Freed, GatesError> {
        let domain = self.known(name)?;
        let now = given.unwrap_or_else(|| self.backend.clock());
        let mut freed = Freed { gone: 0, more: false, woken: Vec::new() };
        if let Some(model) = domain.model() {
            freed = model.gates.expire_now(Some(now), name)?;
        }
        if self.is_away() {
            return Ok(freed);
        }
        match self.ask_throughout(self.backend.expire(given, name)).await {
            Err(GatesError::Unreachable(_)) => Ok(freed),
            answered => answered,
        }
    }

    /// After the backend came back: sends what is owed, and ends leases that it may have made without our knowing.
    pub(super) async fn settle_up(&self) {
        for name in self.all().iter().map(|domain| &domain.name) {
            // After every answer the domain as it is then: new settings take its books with them.
            while let Some((permit, outcome)) = self.known(name).ok().and_then(|domain| domain.next_owed()) {
                if self.ask(self.backend.settle(None, &permit, &outcome)).await.is_err() {
                    if let Ok(domain) = self.known(name) {
                        domain.owe(&permit, &outcome);
                    }
                    return;
                }
                count(&self.tally.settled_late);
            }
            for call in self.known(name).map(|domain| domain.take_doubts()).unwrap_or_default() {
                let call = Call { place: false, ..call };
                if let Ok(Admission::Admitted(admitted)) = self.ask(self.backend.admit(None, &call)).await {
                    let unused = Outcome::of(End::Unused);
                    let _ = self.ask(self.backend.settle(None, &admitted.permit, &unused)).await;
                }
            }
        }
    }
}

/// A permit that cannot be renewed is good until its end.
fn unrenewed(permit: &Permit, lasts: bool) -> Renewal {
    if lasts { Renewal::Renewed { expires_at: permit.expires_at } } else { Renewal::Gone }
}
