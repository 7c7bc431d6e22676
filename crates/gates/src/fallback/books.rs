//! What a process knows of one domain: its gates, what it holds and where, what it owes to the backend, and its own model
//! while there is one.

use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};
use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tidegate_core::gates::{
    Admission, Call, End, GateSet, Holder, Micros, Outcome, Part, Permit, SECOND, Target,
};

use super::share::{Seat, Share, is_lock};
use crate::operations::{Note, Said, Switch};
use crate::{GatesError, InProcess, Turns};

/// Most settlements and doubtful admissions that are kept for the backend's return; what is beyond lapses by itself.
const MOST_OWED: usize = 10_000;
const MOST_DOUBTFUL: usize = 1_000;
/// How long after the end of a lease it is forgotten that it was held.
const FORGET: Micros = 60 * SECOND;
/// Longest time for which leases that were made locally keep the model alive after the backend's return.
const LONGEST_STAY: Micros = 60 * SECOND;

/// A process's own model of a domain, from the backend's leaving until nothing that was admitted without it counts any more.
#[derive(Debug)]
pub(super) struct Model {
    pub gates: InProcess,
    share: Mutex<Arc<Share>>,
    /// When the backend came back; `MAX` while it is away.
    returned: AtomicI64,
}

/// A permit that was given out.
#[derive(Debug)]
pub(super) struct Held {
    pub call: Call,
    /// By the backend; none if it was made locally.
    pub remote: Option<Permit>,
    /// In the model.
    pub local: Option<(Arc<Model>, Permit)>,
    /// Whether it has a lock.
    pub lock: bool,
    /// Which backend gave it out.
    pub generation: u64,
    /// When it ends by this process's clock, at the earliest.
    pub ends: Micros,
}

#[derive(Debug, Default)]
struct Books {
    held: HashMap<Holder, Held>,
    /// Passed the model and not yet the backend.
    pledged: HashMap<Holder, Permit>,
    model: Option<Arc<Model>>,
    owed: VecDeque<(Permit, Outcome)>,
    /// Admissions whose answer never came: the backend may hold a lease that nobody knows of. True: the call is over.
    doubtful: HashMap<Holder, (Call, bool)>,
    /// What operators have said here while the backend was away, by gate: it may have heard nothing of that.
    switched: BTreeMap<String, Switched>,
    /// What the backend had heard when the model was last made to go by it; none while the backend decides, and after new settings.
    told: Option<Arc<Said>>,
    /// Size of `held` after it was last swept.
    swept: usize,
}

/// A word about a gate that was said here.
#[derive(Debug)]
struct Switched {
    /// None: the gate is on again.
    now: Option<Switch>,
    /// What the backend had heard of the gate then. What it hears after that is newer than this word.
    before: Option<Switch>,
}

#[derive(Debug)]
pub(super) struct Domain {
    pub name: Box<str>,
    pub set: GateSet,
    books: Mutex<Books>,
}

impl Domain {
    pub(super) fn new(name: &str, set: GateSet) -> Self {
        Self { name: name.into(), set, books: Mutex::default() }
    }

    /// The same domain with other gates.
    pub(super) fn with(&self, now: Micros, set: GateSet, seat: Seat) -> Self {
        let mut books = std::mem::take(&mut *self.books());
        books.told = None;
        if let Some(model) = &books.model {
            // A model is short-lived: with other keys in common it would have to be split anew, so it starts afresh.
            let mut share = Share::new(&set, seat);
            share.memory = share.memory.max(model.share().memory);
            match model.gates.configure_at(now, &self.name, share.set.clone()) {
                Ok(()) => *model.lock_share() = Arc::new(share),
                Err(_) => books.model = None,
            }
        }
        Self { name: self.name.clone(), set, books: Mutex::new(books) }
    }

    fn books(&self) -> MutexGuard<'_, Books> {
        self.books.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether a call for this target has a lock.
    pub(super) fn locks(&self, target: &Target) -> bool {
        let mut key = String::new();
        self.set.gates.iter().any(|gate| {
            let applies = gate.only.is_empty() || gate.only.iter().any(|e| *e == target.part(Part::Endpoint));
            let kind = if gate.overrides.is_empty() {
                &gate.gate
            } else {
                target.key_into(gate.per.iter().fold(0, |m, p| m | 1 << *p as u8), &mut key);
                gate.overrides.get(&key).unwrap_or(&gate.gate)
            };
            applies && is_lock(kind)
        })
    }

    /// The model, if there is one.
    pub(super) fn model(&self) -> Option<Arc<Model>> {
        self.books().model.clone()
    }

    /// The model; made if there is none. What the backend gave to this process is taken over into it, unless it has lapsed, and what
    /// operators have said.
    pub(super) fn model_or_new(
        &self,
        now: Micros,
        mono: Micros,
        seat: Seat,
        turns: &Turns,
        hear: impl FnOnce() -> Arc<Said>,
    ) -> Result<Arc<Model>, GatesError> {
        let mut books = self.books();
        if let Some(there) = &books.model {
            return Ok(there.clone());
        }
        let (gates, share) = (InProcess::with_turns(turns.clone()), Share::new(&self.set, seat));
        gates.configure_at(now, &self.name, share.whole.clone())?;
        let mut taken = Vec::new();
        for (holder, held) in books.held.iter().filter(|(_, held)| held.ends > mono) {
            if let Some(permit) = gates.adopt_now(now, &held.call)? {
                taken.push((*holder, permit));
            }
        }
        gates.configure_at(now, &self.name, share.set.clone())?;
        let heard = hear();
        gates.take_over(&self.name, books.said(&heard), now)?;
        books.told = Some(heard);
        let share = Mutex::new(Arc::new(share));
        let model = Arc::new(Model { gates, share, returned: AtomicI64::new(Micros::MAX) });
        for (holder, permit) in taken {
            if let Some(held) = books.held.get_mut(&holder) {
                held.local = Some((model.clone(), permit));
            }
        }
        books.model = Some(model.clone());
        Ok(model)
    }

    /// The backend is away (again): the model stays, without fresh credit, and goes by what operators have said since.
    pub(super) fn left(&self, now: Micros, hear: impl FnOnce() -> Arc<Said>) -> Result<(), GatesError> {
        {
            let mut books = self.books();
            books.told = None;
            if let Some(model) = &books.model {
                model.returned.store(Micros::MAX, Ordering::Release);
            }
        }
        self.listen(now, hear).map(drop)
    }

    /// Makes the model go by what the backend has heard, and says what that is; none if the model was not told that the backend is away:
    /// then orders to breakers are the backend's alone, and what is switched off there is off here, too.
    /// The backend is asked under the lock of the books: of two who listen, the one who comes last hears what is newest.
    pub(super) fn listen(
        &self,
        now: Micros,
        hear: impl FnOnce() -> Arc<Said>,
    ) -> Result<Option<Arc<Said>>, GatesError> {
        let mut books = self.books();
        let heard = hear();
        // What is newer than a word that was said here ends it for good.
        books.switched.retain(|gate, here| here.before.as_ref() == heard.switch_of(gate));
        let Some(model) = &books.model else { return Ok(Some(heard)) };
        let away = model.returned.load(Ordering::Acquire) == Micros::MAX;
        if books.told.as_ref().is_none_or(|told| !Arc::ptr_eq(told, &heard) && *told != heard) {
            let said = books.said(&heard);
            let said = if away { said } else { Said { orders: vec![], ..said } };
            model.gates.take_over(&self.name, said, now)?;
            books.told = Some(heard.clone());
        }
        Ok(away.then_some(heard))
    }

    /// The backend is back: what operators say is said to it.
    pub(super) fn returned(&self, now: Micros, mono: Micros) {
        let mut books = self.books();
        books.switched.clear();
        books.told = None;
        if let Some(model) = &books.model {
            // A gate that is gone needs no end.
            let _ = model.gates.orders_are(&self.name, &[], now);
            model.returned.store(mono, Ordering::Release);
        }
    }

    /// Notes what an operator has said about one gate or all of them while the backend is away: also where the model has no such gate,
    /// or is not there yet.
    pub(super) fn switched(&self, at: Micros, gate: Option<&str>, off: bool, note: &Note, heard: &Said) {
        let mut books = self.books();
        books.told = None;
        for name in self.set.gates.iter().map(|g| &g.name).filter(|name| gate.is_none_or(|g| g == **name)) {
            let now = off.then(|| Switch { gate: name.clone(), at, note: note.clone() });
            books.switched.insert(name.clone(), Switched { now, before: heard.switch_of(name).cloned() });
        }
    }

    /// The backend has answered to what was said about one gate or all of them: what it has heard holds.
    pub(super) fn forget_switch(&self, gate: Option<&str>) {
        let mut books = self.books();
        books.switched.retain(|name, _| gate.is_some_and(|gate| gate != name));
        books.told = None;
    }

    /// What operators have said: what the backend has heard, and what was said here since it is away and it has not heard otherwise.
    pub(super) fn said(&self, heard: &Said) -> Said {
        self.books().said(heard)
    }

    /// Whether they have switched a gate off.
    pub(super) fn is_off(&self, gate: &str, heard: &Said) -> bool {
        self.books().switch_of(gate, heard).is_some()
    }

    /// Ends the model if nothing that it admitted counts any more. Whether there still is one.
    pub(super) fn retire(&self, mono: Micros) -> bool {
        let mut books = self.books();
        let Some(model) = &books.model else { return false };
        let back_for = mono.saturating_sub(model.returned.load(Ordering::Acquire));
        let out = books.held.values().any(|h| h.remote.is_none() && h.ends > mono);
        if back_for < model.share().memory.max(1) || (out && back_for < LONGEST_STAY) {
            return true;
        }
        books.model = None;
        books.pledged.clear();
        false
    }

    /// Notes a permit.
    pub(super) fn hold(&self, mono: Micros, held: Held) {
        let mut books = self.books();
        books.pledged.remove(&held.call.holder);
        books.held.insert(held.call.holder, held);
        if books.held.len() > 2 * books.swept + 64 {
            books.held.retain(|_, h| h.ends + FORGET > mono);
            books.swept = books.held.len();
        }
    }

    /// Takes out what is known of a permit.
    pub(super) fn release(&self, permit: &Permit) -> Option<Held> {
        let mut books = self.books();
        if let Some((_, over)) = books.doubtful.get_mut(&permit.holder) {
            *over = true;
        }
        let known = books.held.get(&permit.holder).is_some_and(|h| h.is(permit));
        known.then(|| books.held.remove(&permit.holder)).flatten()
    }

    /// Looks at what is known of a permit, or changes it.
    pub(super) fn look<R>(&self, permit: &Permit, look: impl FnOnce(&mut Held) -> R) -> Option<R> {
        self.books().held.get_mut(&permit.holder).filter(|h| h.is(permit)).map(look)
    }

    /// Whether a lock is held that another backend gave out.
    pub(super) fn has_old_locks(&self, mono: Micros, generation: u64) -> bool {
        let books = self.books();
        books.held.values().any(|h| h.lock && h.generation != generation && h.ends > mono)
    }

    /// Passed the model, not yet the backend.
    pub(super) fn pledge(&self, holder: Holder, permit: Permit) {
        self.books().pledged.insert(holder, permit);
    }

    /// Gives back what a call has in the model that will not pass the backend.
    pub(super) fn withdraw(&self, now: Micros, holder: &Holder) -> Result<(), GatesError> {
        let (permit, model) = {
            let mut books = self.books();
            (books.pledged.remove(holder), books.model.clone())
        };
        if let (Some(permit), Some(model)) = (permit, model) {
            model.gates.settle_now(Some(now), &permit, &Outcome::of(End::Unused))?;
        }
        Ok(())
    }

    /// A settlement to be sent later. False if there are too many.
    pub(super) fn owe(&self, permit: &Permit, outcome: &Outcome) -> bool {
        let mut books = self.books();
        let room = books.owed.len() < MOST_OWED;
        if room {
            books.owed.push_back((permit.clone(), outcome.clone()));
        }
        room
    }

    pub(super) fn next_owed(&self) -> Option<(Permit, Outcome)> {
        self.books().owed.pop_front()
    }

    /// The answer to this admission never came.
    pub(super) fn doubt(&self, call: &Call) {
        let mut books = self.books();
        if books.doubtful.len() < MOST_DOUBTFUL {
            books.doubtful.insert(call.holder, (call.clone(), false));
        }
    }

    /// Doubtful admissions of calls that will not ask for them again: over, or admitted locally. The others ask themselves.
    pub(super) fn take_doubts(&self) -> Vec<Call> {
        let mut books = self.books();
        let all = std::mem::take(&mut books.doubtful);
        let idle =
            |holder: &Holder, over: bool| over || books.held.get(holder).is_some_and(|h| h.remote.is_none());
        all.into_iter().filter(|(holder, (_, over))| idle(holder, *over)).map(|(_, (call, _))| call).collect()
    }
}

impl Books {
    /// The switch of a gate that is off.
    fn switch_of<'a>(&'a self, gate: &str, heard: &'a Said) -> Option<&'a Switch> {
        let heard = heard.switch_of(gate);
        match self.switched.get(gate) {
            Some(here) if here.before.as_ref() == heard => here.now.as_ref(),
            _ => heard,
        }
    }

    fn said(&self, heard: &Said) -> Said {
        let gates: BTreeSet<&String> =
            heard.off.iter().map(|switch| &switch.gate).chain(self.switched.keys()).collect();
        let off = gates.into_iter().filter_map(|gate| self.switch_of(gate, heard)).cloned().collect();
        Said { off, orders: heard.orders.clone() }
    }
}

impl Held {
    fn is(&self, permit: &Permit) -> bool {
        let own = self.remote.as_ref().or(self.local.as_ref().map(|(_, p)| p));
        own.is_some_and(|p| p.fence == permit.fence)
    }
}

impl Model {
    /// What of the gates is this process's; another one when the gates are set anew.
    pub(super) fn share(&self) -> Arc<Share> {
        self.lock_share().clone()
    }

    fn lock_share(&self) -> MutexGuard<'_, Arc<Share>> {
        self.share.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Asks the model. A cost above the share is no reason to refuse a call for ever.
    pub(super) fn admit(&self, now: Micros, call: &Call) -> Result<Option<Admission>, GatesError> {
        use tidegate_core::gates::{Never, Refused};
        Ok(match self.gates.admit_now(Some(now), call)? {
            Admission::Refused(Refused { because: Never::CostAboveCapacity { .. }, .. }) => None,
            other => Some(other),
        })
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::channel;
    use std::time::Duration;

    use tidegate_core::gates::config::Breaker;
    use tidegate_core::gates::{Gate, Kind};

    use super::*;
    use crate::operations::Order;

    #[test]
    fn of_two_who_listen_at_the_same_time_the_one_who_hears_what_is_older_is_not_the_last() {
        let breaker = Gate::new("health", Kind::Breaker(Breaker::default()));
        let domain = Domain::new("d", GateSet::of(vec![breaker]));
        let now = 1_700_000_000 * SECOND;
        let seat = Seat { rank: 0, processes: 1 };
        let model = domain.model_or_new(now, 0, seat, &Turns::default(), Arc::default).unwrap();
        let note = Note { who: "ada".into(), why: "their outage".into() };
        let order = Order { gate: "health".into(), until: now + 600 * SECOND, at: now, note };
        let newer = Arc::new(Said { off: Vec::new(), orders: vec![order] });
        let ((hears, heard), (knows, known)) = (channel(), channel());
        std::thread::scope(|both| {
            let domain = &domain;
            both.spawn(move || {
                let older = || {
                    hears.send(()).unwrap();
                    // The other one is not let in before this has been taken over.
                    let _ = known.recv_timeout(Duration::from_millis(300));
                    Arc::default()
                };
                domain.listen(now, older).unwrap();
            });
            heard.recv().unwrap();
            domain.listen(now, || newer.clone()).unwrap();
            let _ = knows.send(());
        });
        let call = Call::new(Arc::new(Target::new("d").unwrap()), Holder::number(1));
        let reply = model.admit(now, &call).unwrap();
        assert!(matches!(reply, Some(Admission::Wait(_))), "{reply:?}");
    }
}
