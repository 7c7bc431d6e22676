//! The rules behind a lock, for tasks of one process, with a monotonic clock.
//!
//! A domain's state is spread over shards by its partitions; a domain that is one partition has one lock. The synchronous
//! methods (`…_now`) are the whole of it; the traits add nothing but a future.

mod noticeboard;
mod operations;

use std::collections::hash_map::Entry;
use std::collections::{BTreeMap, HashMap, VecDeque};
use std::hash::{BuildHasherDefault, Hasher};
use std::sync::{Mutex, MutexGuard, PoisonError, RwLock, RwLockReadGuard};
use std::time::{Instant, SystemTime, UNIX_EPOCH};

use async_trait::async_trait;
use tidegate_core::gates::{
    Admission, Call, Compiled, DomainName, Freed, GateSet, Holder, KeyHasher, Kind, Micros, Outcome,
    Partition, Permit, Renewal, Settled, Start, Target,
};

use crate::operations::{Change, Order, Switch};
use crate::watched::Snapshot;
use crate::{Gates, GatesError, Turn, Turns};

/// Locks per domain that is split.
const SHARDS: usize = 16;
/// Changes by operators that are kept per domain.
const CHANGES_KEPT: usize = 100;

type Map<K, V> = HashMap<K, V, BuildHasherDefault<KeyHasher>>;

/// Gates of one process.
#[derive(Debug)]
pub struct InProcess {
    domains: RwLock<Map<DomainName, Domain>>,
    turns: Turns,
    started: Instant,
    /// Wall clock when it started: readings of two runs can be compared.
    epoch: Micros,
    seen: Mutex<BTreeMap<String, Snapshot>>,
}

#[derive(Debug)]
struct Domain {
    split: u8,
    shards: Vec<Mutex<Shard>>,
    records: Mutex<Records>,
}

/// Partitions of a domain under one lock.
#[derive(Debug)]
struct Shard {
    set: Compiled,
    /// The only partition of a domain that is not split.
    whole: Partition,
    parts: Map<Box<str>, Partition>,
    key: String,
    /// Partitions to look at, for those that were made.
    made: usize,
}

/// What operators did.
#[derive(Debug, Default)]
struct Records {
    switches: BTreeMap<String, Switch>,
    orders: BTreeMap<String, Order>,
    changes: VecDeque<Change>,
}

impl Default for InProcess {
    fn default() -> Self {
        Self::new()
    }
}

impl InProcess {
    /// No domains yet.
    pub fn new() -> Self {
        let epoch = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |d| d.as_micros() as Micros);
        let (turns, seen) = (Turns::default(), Mutex::default());
        Self { domains: RwLock::default(), turns, started: Instant::now(), epoch, seen }
    }

    /// The same, waking those who wait elsewhere in this process.
    pub(crate) fn with_turns(turns: Turns) -> Self {
        Self { turns, ..Self::new() }
    }

    /// Takes over a call that was admitted elsewhere: pools, locks and quotas hold it, rates do not count it. None if there is
    /// no room for it.
    pub(crate) fn adopt_now(&self, now: Micros, call: &Call) -> Result<Option<Permit>, GatesError> {
        let reply = self.at(
            &call.target,
            |set, state| {
                let mut holding = set.clone();
                let gates = set.set().gates.iter();
                let counting = gates.filter(|g| !matches!(g.gate, Kind::Slots(_) | Kind::Lock(_)));
                holding.disable(counting.map(|g| g.name.as_str()));
                state.admit(&holding, now, call)
            },
            now,
        )?;
        Ok(match reply {
            Admission::Admitted(admitted) => Some(admitted.permit),
            Admission::Wait(_) | Admission::Refused(_) => None,
        })
    }

    /// Sets the gates of a domain.
    pub fn configure_now(&self, domain: &str, set: GateSet) -> Result<(), GatesError> {
        self.configure_at(self.clock(), domain, set)
    }

    /// The same, at this time of another clock that all operations go by.
    pub(crate) fn configure_at(&self, now: Micros, domain: &str, set: GateSet) -> Result<(), GatesError> {
        let set = Compiled::new(set)?;
        let mut domains = self.domains.write().unwrap_or_else(PoisonError::into_inner);
        match domains.entry(DomainName::new(domain)) {
            Entry::Vacant(free) => {
                free.insert(Domain::new(set));
                Ok(())
            }
            Entry::Occupied(mut known) => known.get_mut().reconfigure(domain, set, now),
        }
    }

    /// As [`Gates::admit`].
    pub fn admit_now(&self, now: Option<Micros>, call: &Call) -> Result<Admission, GatesError> {
        let now = now.unwrap_or_else(|| self.clock());
        // Not taken out of its result in between: to copy it takes as long as to ask a gate.
        let reply = self.at(&call.target, |set, state| state.admit(set, now, call), now);
        if let Ok(admission) = &reply {
            self.wake(admission.woken());
        }
        reply
    }

    /// As [`Gates::settle`].
    pub fn settle_now(
        &self,
        now: Option<Micros>,
        permit: &Permit,
        outcome: &Outcome,
    ) -> Result<Settled, GatesError> {
        let now = now.unwrap_or_else(|| self.clock());
        let reply = self.at(&permit.target, |set, state| state.settle(set, now, permit, outcome), now);
        if let Ok(settled) = &reply {
            self.wake(&settled.woken);
        }
        reply
    }

    /// As [`Gates::renew`].
    pub fn renew_now(&self, now: Option<Micros>, permit: &Permit) -> Result<Renewal, GatesError> {
        let now = now.unwrap_or_else(|| self.clock());
        self.at(&permit.target, |_, state| state.renew(now, permit), now)
    }

    /// As [`Gates::cancel_wait`].
    pub fn cancel_wait_now(
        &self,
        now: Option<Micros>,
        target: &Target,
        holder: &Holder,
    ) -> Result<Freed, GatesError> {
        let now = now.unwrap_or_else(|| self.clock());
        let reply = self.at(target, |set, state| state.cancel_wait(set, now, holder), now)?;
        self.turns.wake(&reply.woken);
        Ok(reply)
    }

    /// As [`Gates::expire`].
    pub fn expire_now(&self, now: Option<Micros>, domain: &str) -> Result<Freed, GatesError> {
        let now = now.unwrap_or_else(|| self.clock());
        let mut all = Freed { gone: 0, more: false, woken: Vec::new() };
        self.each(domain, |set, state| {
            let freed = state.expire(set, now);
            all.gone += freed.gone;
            all.more |= freed.more;
            all.woken.extend(freed.woken);
        })?;
        self.turns.wake(&all.woken);
        Ok(all)
    }

    /// When something of a domain lapses next.
    pub fn next_wakeup(&self, domain: &str) -> Result<Option<Micros>, GatesError> {
        let mut next: Option<Micros> = None;
        self.each(domain, |_, state| next = next.into_iter().chain(state.next_wakeup()).min())?;
        Ok(next)
    }

    /// The state of a domain, by partition: to be kept over a restart.
    pub fn export(&self, domain: &str) -> Result<Vec<(Box<str>, Partition)>, GatesError> {
        let domains = self.read();
        let known = domains.get(&DomainName::new(domain)).ok_or_else(|| unknown(domain))?;
        let mut all = Vec::new();
        for shard in &known.shards {
            let shard = lock(shard);
            if known.split == 0 {
                all.push(("".into(), shard.whole.clone()));
            }
            all.extend(shard.parts.iter().map(|(key, part)| (key.clone(), part.clone())));
        }
        Ok(all)
    }

    /// Goes on with a state that was exported under the same settings.
    pub fn import(&self, domain: &str, parts: Vec<(Box<str>, Partition)>) -> Result<(), GatesError> {
        let domains = self.read();
        let known = domains.get(&DomainName::new(domain)).ok_or_else(|| unknown(domain))?;
        known.shards.iter().for_each(|shard| lock(shard).parts.clear());
        for (key, mut part) in parts {
            // One part alone makes the key of most splits; several are hashed one by one, as targets are.
            let at = if known.split == 0 { 0 } else { key_hash(&key) as usize % SHARDS };
            let mut shard = lock(&known.shards[at]);
            part.reindex(&shard.set);
            if known.split == 0 {
                shard.whole = part;
            } else {
                shard.parts.insert(key, part);
            }
        }
        Ok(())
    }

    /// Those who wait in this process.
    pub fn turns(&self) -> &Turns {
        &self.turns
    }

    #[inline]
    fn wake(&self, woken: &[Holder]) {
        if !woken.is_empty() {
            self.turns.wake(woken);
        }
    }

    fn read(&self) -> RwLockReadGuard<'_, Map<DomainName, Domain>> {
        self.domains.read().unwrap_or_else(PoisonError::into_inner)
    }

    /// Runs `act` on the partition of a target.
    fn at<R>(
        &self,
        target: &Target,
        act: impl FnOnce(&Compiled, &mut Partition) -> R,
        now: Micros,
    ) -> Result<R, GatesError> {
        let domains = self.read();
        let domain = domains.get(target.domain_name()).ok_or_else(|| unknown(target.domain()))?;
        let shard = if domain.split == 0 { 0 } else { target.key_hash(domain.split) as usize % SHARDS };
        let mut shard = lock(&domain.shards[shard]);
        let shard = &mut *shard;
        if domain.split == 0 {
            return Ok(act(&shard.set, &mut shard.whole));
        }
        Ok(shard.part(target, now, act))
    }

    /// Runs `act` on every partition of a domain.
    fn each(&self, domain: &str, mut act: impl FnMut(&Compiled, &mut Partition)) -> Result<(), GatesError> {
        let domains = self.read();
        let known = domains.get(&DomainName::new(domain)).ok_or_else(|| unknown(domain))?;
        for shard in &known.shards {
            lock(shard).each(known.split, &mut act);
        }
        Ok(())
    }
}

/// The hash of a partition's key, as [`Target::key_hash`] makes it from the parts.
fn key_hash(key: &str) -> u64 {
    let mut hasher = KeyHasher::default();
    key.split('/').for_each(|part| hasher.write(part.as_bytes()));
    hasher.finish()
}

fn unknown(domain: &str) -> GatesError {
    GatesError::UnknownDomain { domain: domain.into() }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Shard {
    fn new(set: Compiled) -> Self {
        let whole = Partition::new(&set, Start::Full);
        Self { set, whole, parts: Map::default(), key: String::new(), made: 0 }
    }

    /// Runs `act` on every partition.
    fn each(&mut self, split: u8, mut act: impl FnMut(&Compiled, &mut Partition)) {
        if split == 0 {
            act(&self.set, &mut self.whole);
        }
        self.parts.values_mut().for_each(|part| act(&self.set, part));
    }

    /// Runs `act` on the partition of a target, made if it is new.
    #[inline]
    fn part<R>(
        &mut self,
        target: &Target,
        now: Micros,
        act: impl FnOnce(&Compiled, &mut Partition) -> R,
    ) -> R {
        let key = self.set.partition(target, &mut self.key);
        if let Some(part) = self.parts.get_mut(key) {
            return act(&self.set, part);
        }
        let key = key.into();
        self.made += 1;
        self.sweep(now);
        let new = Partition::new(&self.set, Start::Full);
        act(&self.set, self.parts.entry(key).or_insert(new))
    }

    /// Forgets partitions at rest, whenever as many were made as remained the last time: amortised two looks per new one.
    fn sweep(&mut self, now: Micros) {
        if self.made > self.parts.len() / 2 + 64 {
            let set = &self.set;
            self.parts.retain(|_, part| !part.at_rest(set, now));
            self.made = 0;
        }
    }
}

impl Domain {
    fn new(set: Compiled) -> Self {
        let count = if set.is_split() { SHARDS } else { 1 };
        let shards = (0..count).map(|_| Mutex::new(Shard::new(set.clone()))).collect();
        Self { split: set.split(), shards, records: Mutex::default() }
    }

    fn is_idle(&mut self) -> bool {
        let idle = |shard: &mut Mutex<Shard>| {
            let shard = shard.get_mut().unwrap_or_else(PoisonError::into_inner);
            shard.whole.is_idle() && shard.parts.values().all(Partition::is_idle)
        };
        self.shards.iter_mut().all(idle)
    }

    fn reconfigure(&mut self, name: &str, mut set: Compiled, now: Micros) -> Result<(), GatesError> {
        let moves = set.split() != self.split;
        if moves && !self.is_idle() {
            return Err(GatesError::InUse { domain: name.into() });
        }
        let records = self.records.get_mut().unwrap_or_else(PoisonError::into_inner);
        // Gates that are gone take their switches with them.
        records.switches.retain(|name, _| set.set().gates.iter().any(|g| g.name == *name));
        set.disable(records.switches.keys().map(String::as_str));
        records.orders.retain(|name, _| set.is_breaker(name));
        set.order(records.orders.values().map(|o| (o.gate.as_str(), o.until)));
        if moves {
            let records = std::mem::take(&mut self.records);
            *self = Self { records, ..Self::new(set) };
            return Ok(());
        }
        for shard in &mut self.shards {
            let shard = shard.get_mut().unwrap_or_else(PoisonError::into_inner);
            let old = std::mem::replace(&mut shard.set, set.clone());
            shard.whole.reconfigure(&old, &set, now);
            shard.parts.values_mut().for_each(|part| part.reconfigure(&old, &set, now));
        }
        Ok(())
    }
}

#[async_trait]
impl Gates for InProcess {
    async fn admit(&self, now: Option<Micros>, call: &Call) -> Result<Admission, GatesError> {
        self.admit_now(now, call)
    }

    async fn settle(
        &self,
        now: Option<Micros>,
        permit: &Permit,
        outcome: &Outcome,
    ) -> Result<Settled, GatesError> {
        self.settle_now(now, permit, outcome)
    }

    async fn renew(&self, now: Option<Micros>, permit: &Permit) -> Result<Renewal, GatesError> {
        self.renew_now(now, permit)
    }

    async fn cancel_wait(
        &self,
        now: Option<Micros>,
        target: &Target,
        holder: &Holder,
    ) -> Result<Freed, GatesError> {
        self.cancel_wait_now(now, target, holder)
    }

    async fn expire(&self, now: Option<Micros>, domain: &str) -> Result<Freed, GatesError> {
        self.expire_now(now, domain)
    }

    fn clock(&self) -> Micros {
        self.epoch + self.started.elapsed().as_micros() as Micros
    }

    fn turn(&self, holder: &Holder) -> Turn {
        self.turns.register(holder)
    }
}
