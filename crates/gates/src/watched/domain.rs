//! What this process notes about one domain. An operation touches one of a few locks for as long as it takes to count; what was
//! counted is folded together when somebody looks, once a second at most.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::hash::{BuildHasher as _, BuildHasherDefault};
use std::sync::atomic::{AtomicI64, AtomicU32, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError, RwLock};

use tidegate_core::gates::{
    Admission, Admitted, BreakerState, Call, Change, End, Failure, GateSet, Holder, HolderView, KeyHasher,
    LeaseEnd, Micros, Never, Outcome, Part, Permit, Renewal, SECOND, Settled, Target, Wait,
};

use super::lock;
use super::snapshot::{DomainSeen, TenantSeen};
use super::tally::{Ages, Counts, Tally};
use super::trace::{TRACES, Traces, What};

/// Locks per domain.
pub(crate) const SHARDS: usize = 4;
/// Permits that are watched until they end, per lock.
pub(crate) const BOOK: usize = 4_096;
/// Tenants told apart between two folds, per lock.
const FRESH_TENANTS: usize = 256;
/// Tenants remembered, and those that are shown: the ones with the most permits and waits.
const TENANTS: usize = 100;
pub(crate) const TENANTS_SHOWN: usize = 50;
/// Open breakers that are watched.
const OPENINGS: usize = 256;
/// How long after its end a lease is taken for lapsed: an answer may be under way.
pub(crate) const GRACE: Micros = 2 * SECOND;

type Hashing = BuildHasherDefault<KeyHasher>;
type Map<K, V> = HashMap<K, V, Hashing>;

/// What is known of a domain.
#[derive(Debug, Default)]
pub(crate) struct Domain {
    shards: [Mutex<Shard>; SHARDS],
    kept: Mutex<Kept>,
    traces: Mutex<Traces>,
    /// In which second how many traces were begun: a flood of calls is not written down one by one.
    second: AtomicI64,
    begun: AtomicU32,
    /// Failed calls in a row, and when the last one was.
    in_row: AtomicU32,
    failed_at: AtomicI64,
    /// The parts of the keys of gates.
    masks: RwLock<BTreeMap<String, u8>>,
    openings: Mutex<VecDeque<Opening>>,
    open: AtomicUsize,
    /// When it was last used, for those that must go.
    pub(crate) used: AtomicI64,
}

/// What was counted since the last fold, and the permits that are out.
#[derive(Debug, Default)]
struct Shard {
    tally: Tally,
    tenants: Map<Box<str>, Counts>,
    others: Counts,
    book: Map<Holder, Open>,
    /// Permits that did not fit in the book.
    unbooked: u64,
}

/// A permit that is out.
#[derive(Debug)]
struct Open {
    target: Arc<Target>,
    fence: i64,
    expires_at: Micros,
    waited: bool,
    traced: bool,
}

/// What was folded together.
#[derive(Debug, Default)]
struct Kept {
    ages: Ages,
    tenants: BTreeMap<Box<str>, Counts>,
    others: Counts,
}

/// A breaker that opened, and how calls ended that were under way then.
#[derive(Debug)]
struct Opening {
    gate: Arc<str>,
    key: String,
    at: Micros,
    well: u32,
    badly: u32,
}

impl Shard {
    /// Counts for the domain and for the tenant.
    fn count(&mut self, target: &Target, change: impl Fn(&mut Counts)) {
        change(&mut self.tally.counts);
        let tenant = target.part(Part::Tenant);
        if tenant.is_empty() {
            return;
        }
        if let Some(counts) = self.tenants.get_mut(tenant) {
            change(counts);
        } else if self.tenants.len() < FRESH_TENANTS {
            let mut counts = Counts::default();
            change(&mut counts);
            self.tenants.insert(tenant.into(), counts);
        } else {
            change(&mut self.others);
        }
    }

    /// Takes a permit out of the book, if it is this one.
    fn take(&mut self, holder: &Holder, fence: i64) -> Option<Open> {
        self.book.get(holder).filter(|open| open.fence == fence)?;
        self.book.remove(holder)
    }

    /// One that ended and was not in the book: another process was given it, or there was no room.
    fn count_stranger(&mut self, target: &Target) {
        if self.unbooked > 0 {
            self.unbooked -= 1;
        } else {
            self.count(target, |c| c.adopted += 1);
        }
    }
}

/// An answer, and when.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Answered {
    /// The gates' clock.
    pub(crate) now: Micros,
    /// How long it took.
    pub(crate) took: Micros,
}

impl Domain {
    pub(crate) fn configured(&self, set: &GateSet) {
        let mask = |per: &[Part]| per.iter().fold(0, |mask, part| mask | 1 << *part as u8);
        let masks = set.gates.iter().map(|g| (g.name.clone(), mask(&g.per))).collect();
        *self.masks.write().unwrap_or_else(PoisonError::into_inner) = masks;
    }

    fn shard(&self, holder: &Holder) -> &Mutex<Shard> {
        &self.shards[Hashing::default().hash_one(holder) as usize % SHARDS]
    }

    fn may_trace(&self, now: Micros) -> bool {
        let second = now / SECOND;
        if self.second.swap(second, Ordering::Relaxed) != second {
            self.begun.store(0, Ordering::Relaxed);
        }
        self.begun.load(Ordering::Relaxed) < TRACES as u32
            && self.begun.fetch_add(1, Ordering::Relaxed) < TRACES as u32
    }

    /// Adds to the call's trace, which is begun if it has none. True if it has one.
    fn trace(&self, began: Micros, now: Micros, call: &Call, what: What) -> bool {
        let mut traces = lock(&self.traces);
        if traces.add(now, &call.holder, what.clone()) {
            return true;
        }
        if !self.may_trace(now) {
            return false;
        }
        traces.begin(began.min(now), call);
        traces.add(now, &call.holder, what)
    }

    pub(crate) fn unanswered(&self, answered: Answered, call: &Call) {
        lock(self.shard(&call.holder)).count(&call.target, |c| {
            c.asked += 1;
            c.unanswered += 1;
        });
        self.trace(answered.now - answered.took, answered.now, call, What::Unanswered);
    }

    pub(crate) fn decided(&self, answered: Answered, call: &Call, reply: &Admission) {
        match reply {
            Admission::Admitted(admitted) => self.admitted(answered, call, admitted),
            Admission::Wait(wait) => self.waits(answered, call, wait),
            Admission::Refused(refused) => {
                let mut shard = lock(self.shard(&call.holder));
                shard.tally.decisions.add(answered.took);
                shard.count(&call.target, |c| {
                    c.asked += 1;
                    c.refused += 1;
                });
                drop(shard);
                // The holder has asked anew since: that life goes on.
                if refused.because == Never::StaleAsk {
                    return;
                }
                let what = What::Refused { gate: refused.gate.clone(), because: refused.because };
                self.trace(answered.now - answered.took, answered.now, call, what);
            }
        }
    }

    fn admitted(&self, Answered { now, took }: Answered, call: &Call, admitted: &Admitted) {
        let permit = &admitted.permit;
        let mut shard = lock(self.shard(&call.holder));
        shard.tally.decisions.add(took);
        let before = shard.book.get(&call.holder).map(|open| (open.fence, open.expires_at, open.traced));
        if before.is_some_and(|(fence, ..)| fence == permit.fence) {
            shard.count(&call.target, |c| c.asked += 1);
            return;
        }
        let waited = call.since.map(|since| permit.admitted_at - since).filter(|us| *us > 0);
        if let Some(us) = waited {
            shard.tally.waits.add(us);
        }
        shard.count(&call.target, |c| {
            c.asked += 1;
            c.reserved += 1;
            c.waited += u64::from(waited.is_some());
            // A new try of the same holder: the gates have given back the old permit, unless it had lapsed.
            match before {
                Some((_, expires_at, _)) if expires_at <= permit.admitted_at => c.expired += 1,
                Some(_) => c.released += 1,
                None => {}
            }
        });
        let traced = self.trace_admission(now - took, now, call, permit, before.is_some_and(|b| b.2));
        if shard.book.len() < BOOK || before.is_some() {
            let open = Open {
                target: permit.target.clone(),
                fence: permit.fence,
                expires_at: permit.expires_at,
                waited: waited.is_some(),
                traced,
            };
            shard.book.insert(call.holder, open);
        } else {
            shard.unbooked += 1;
        }
    }

    fn trace_admission(&self, began: Micros, now: Micros, call: &Call, permit: &Permit, again: bool) -> bool {
        // Who has not waited has no trace yet.
        let known = call.since.is_some() || again;
        if known && lock(&self.traces).admitted(now, permit) {
            return true;
        }
        if !self.may_trace(now) {
            return false;
        }
        let mut traces = lock(&self.traces);
        traces.begin(call.since.unwrap_or(began).min(now), call);
        traces.admitted(now, permit)
    }

    fn waits(&self, Answered { now, took }: Answered, call: &Call, wait: &Wait) {
        let mut shard = lock(self.shard(&call.holder));
        shard.tally.decisions.add(took);
        shard.count(&call.target, |c| {
            c.asked += 1;
            c.waits += 1;
        });
        drop(shard);
        let (gate, retry_at) = (wait.gate.clone(), wait.retry_at);
        let what = What::Waited { gate, because: wait.because, retry_at, position: wait.position };
        self.trace(wait.arrived, now, call, what);
    }

    pub(crate) fn renewed(&self, now: Micros, permit: &Permit, renewal: Renewal) {
        let mut shard = lock(self.shard(&permit.holder));
        let traced = match renewal {
            Renewal::Renewed { expires_at } => {
                shard.count(&permit.target, |c| c.renewed += 1);
                let open = shard.book.get_mut(&permit.holder).filter(|open| open.fence == permit.fence);
                open.is_none_or(|open| {
                    open.expires_at = open.expires_at.max(expires_at);
                    open.traced
                })
            }
            Renewal::Gone => match shard.take(&permit.holder, permit.fence) {
                Some(open) => {
                    shard.count(&permit.target, |c| c.expired += 1);
                    open.traced
                }
                None => return,
            },
        };
        drop(shard);
        if traced {
            let what = match renewal {
                Renewal::Renewed { expires_at } => What::Renewed { expires_at },
                Renewal::Gone => What::Expired,
            };
            lock(&self.traces).add(now, &permit.holder, what);
        }
    }

    pub(crate) fn settled(&self, now: Micros, permit: &Permit, outcome: &Outcome, settled: &Settled) {
        let mut shard = lock(self.shard(&permit.holder));
        let open = shard.take(&permit.holder, permit.fence);
        if open.is_none() {
            // It was settled before, or noted as lapsed.
            if settled.state == LeaseEnd::Gone {
                return;
            }
            shard.count_stranger(&permit.target);
        }
        let waited = open.as_ref().is_some_and(|open| open.waited);
        shard.count(&permit.target, |c| {
            match settled.state {
                LeaseEnd::Released => c.released += 1,
                LeaseEnd::Quarantined { .. } => c.quarantined += 1,
                LeaseEnd::Gone => c.expired += 1,
            }
            c.ended(outcome.end, waited);
        });
        drop(shard);
        self.heard(now, outcome.end);
        if !settled.changes.is_empty() || self.open.load(Ordering::Relaxed) > 0 {
            self.breakers(now, permit, outcome.end, &settled.changes);
        }
        if open.is_none_or(|open| open.traced) {
            let what = What::Settled { end: outcome.end, state: settled.state };
            lock(&self.traces).add(now, &permit.holder, what);
        }
    }

    /// Counts failures in a row.
    fn heard(&self, now: Micros, end: End) {
        match end {
            End::Ok | End::Failed(Failure::Request) => {
                if self.in_row.load(Ordering::Relaxed) != 0 {
                    self.in_row.store(0, Ordering::Relaxed);
                }
            }
            End::Failed(Failure::Network | Failure::Server | Failure::TimedOut) => {
                self.in_row.fetch_add(1, Ordering::Relaxed);
                self.failed_at.store(now, Ordering::Relaxed);
            }
            End::Throttled { .. } | End::Abandoned | End::Unused => {}
        }
    }

    fn key(&self, gate: &str, target: &Target) -> String {
        let masks = self.masks.read().unwrap_or_else(PoisonError::into_inner);
        let mut key = String::new();
        target.key_into(masks.get(gate).copied().unwrap_or(0), &mut key);
        key
    }

    /// An opening was false if calls that were under way then went well, all of them, and so did the first that tried again.
    fn breakers(&self, now: Micros, permit: &Permit, end: End, changes: &[Change]) {
        let (mut opened, mut false_ones) = (0, 0);
        let mut openings = lock(&self.openings);
        for opening in openings.iter_mut().filter(|o| permit.admitted_at < o.at) {
            if opening.key == self.key(&opening.gate, &permit.target) {
                match end {
                    End::Ok | End::Failed(Failure::Request) => opening.well += 1,
                    End::Failed(_) => opening.badly += 1,
                    End::Throttled { .. } | End::Abandoned | End::Unused => {}
                }
            }
        }
        for change in changes {
            let Change::Breaker { gate, to } = change else { continue };
            let key = self.key(gate, &permit.target);
            let at = openings.iter().position(|o| o.gate == *gate && o.key == key);
            match (to, at) {
                // It tried, and failed again.
                (BreakerState::Open, Some(at)) => openings[at].badly += 1,
                (BreakerState::Open, None) => {
                    opened += 1;
                    if openings.len() >= OPENINGS {
                        openings.pop_front();
                    }
                    openings.push_back(Opening { gate: gate.clone(), key, at: now, well: 0, badly: 0 });
                }
                (BreakerState::Closed | BreakerState::Ramp, Some(at)) => {
                    let over = openings.remove(at);
                    false_ones += u64::from(over.is_some_and(|o| o.badly == 0 && o.well > 0));
                }
                (BreakerState::Closed | BreakerState::Ramp, None)
                | (BreakerState::HalfOpen | BreakerState::OpenForProcess, _) => {}
            }
        }
        self.open.store(openings.len(), Ordering::Relaxed);
        drop(openings);
        if opened + false_ones > 0 {
            lock(self.shard(&permit.holder)).count(&permit.target, |c| {
                c.breakers_opened += opened;
                c.breakers_false += false_ones;
            });
        }
    }

    pub(crate) fn cancelled(&self, now: Micros, target: &Target, holder: &Holder) {
        lock(self.shard(holder)).count(target, |c| c.cancelled += 1);
        lock(&self.traces).add(now, holder, What::Cancelled);
    }

    pub(crate) fn promoted(&self, now: Micros, holder: &Holder) {
        lock(self.shard(holder)).tally.counts.promoted += 1;
        lock(&self.traces).add(now, holder, What::Promoted);
    }

    /// An operator ended these permits: they did not lapse.
    pub(crate) fn force_released(&self, now: Micros, leases: &[HolderView]) {
        for lease in leases.iter().filter(|l| !l.quarantined) {
            let mut shard = lock(self.shard(&lease.holder));
            if shard.take(&lease.holder, lease.fence).is_none() {
                shard.count_stranger(&lease.target);
            }
            shard.count(&lease.target, |c| c.released += 1);
            drop(shard);
            lock(&self.traces).add(now, &lease.holder, What::ForceReleased);
        }
    }

    /// Folds together what was counted; what there is to see, with so many traces.
    pub(crate) fn seen(&self, name: &str, now: Micros, traces: usize) -> DomainSeen {
        let mut kept = lock(&self.kept);
        let (mut held, mut held_until) = (0, 0);
        let mut by_tenant: BTreeMap<Box<str>, u32> = BTreeMap::new();
        for shard in &self.shards {
            let mut shard = lock(shard);
            self.lapse(&mut shard, now);
            let tally = std::mem::take(&mut shard.tally);
            kept.ages.add(now, &tally);
            for (tenant, counts) in std::mem::take(&mut shard.tenants) {
                kept.tenants.entry(tenant).or_default().merge(&counts);
            }
            let others = std::mem::take(&mut shard.others);
            kept.others.merge(&others);
            for open in shard.book.values() {
                held += 1;
                held_until = held_until.max(open.expires_at);
                let tenant = open.target.part(Part::Tenant);
                if let Some(count) = by_tenant.get_mut(tenant) {
                    *count += 1;
                } else if !tenant.is_empty() {
                    by_tenant.insert(tenant.into(), 1);
                }
            }
        }
        kept.bound();
        let (tenants, others) = kept.top(&by_tenant);
        let mut kept_traces = lock(&self.traces);
        kept_traces.forget_old(now);
        let failed_at = self.failed_at.load(Ordering::Relaxed);
        DomainSeen {
            domain: name.to_owned(),
            total: kept.ages.total,
            recent: kept.ages.recent(now),
            held,
            held_until,
            in_row: self.in_row.load(Ordering::Relaxed),
            failed_at: (failed_at > 0).then_some(failed_at),
            tenants,
            others,
            traces: kept_traces.newest(traces).cloned().collect(),
        }
    }

    /// Takes out of the book what has lapsed.
    fn lapse(&self, shard: &mut Shard, now: Micros) {
        let lapsed: Vec<(Holder, Open)> =
            shard.book.extract_if(|_, open| open.expires_at + GRACE < now).collect();
        for (holder, open) in lapsed {
            shard.count(&open.target, |c| c.expired += 1);
            if open.traced {
                lock(&self.traces).add(open.expires_at, &holder, What::Expired);
            }
        }
    }
}

fn weight(counts: &Counts) -> u64 {
    counts.reserved + counts.waits
}

impl Kept {
    /// Forgets the tenants that matter least, as single ones.
    fn bound(&mut self) {
        if self.tenants.len() <= TENANTS {
            return;
        }
        let mut all: Vec<_> = std::mem::take(&mut self.tenants).into_iter().collect();
        all.sort_by_key(|(_, counts)| std::cmp::Reverse(weight(counts)));
        for (_, counts) in all.drain(TENANTS_SHOWN..) {
            self.others.merge(&counts);
        }
        self.tenants = all.into_iter().collect();
    }

    /// Those to be shown, and all others together.
    fn top(&self, held: &BTreeMap<Box<str>, u32>) -> (Vec<TenantSeen>, Counts) {
        let mut all: Vec<TenantSeen> = self
            .tenants
            .iter()
            .map(|(tenant, counts)| TenantSeen {
                tenant: tenant.to_string(),
                counts: *counts,
                held: held.get(tenant).copied().unwrap_or(0),
            })
            .collect();
        all.sort_by_key(|t| std::cmp::Reverse(weight(&t.counts)));
        let mut others = self.others;
        all.drain(TENANTS_SHOWN.min(all.len())..).for_each(|t| others.merge(&t.counts));
        (all, others)
    }
}
