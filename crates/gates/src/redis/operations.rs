//! An operator's operations on gates in Redis. Switches and the record of changes are shared by all processes.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, PoisonError};

use async_trait::async_trait;
use redis::{FromRedisValue, Value};
use tidegate_core::gates::{
    BreakerOrder, GateSet, Holder, HolderView, Micros, PartitionView, ScopeView, WaiterView,
};

use super::link::unreachable;
use super::plan::Plan;
use super::scripts::Operation;
use super::words::{Kind, Records, Saying, Texts, Times, Word, written};
use super::{Domain, Inner, RedisGates, flag, reply};
use crate::GatesError;
use crate::operations::{
    Change, DomainUsage, GateOperations, Note, Order, Released, Said, Switch, order_text, refuse_order,
    refuse_under,
};

/// Changes by operators that are kept per domain, and how long (seconds).
const CHANGES_KEPT: isize = 100;
const RECORDS_LAST: i64 = 400 * 24 * 3_600;
const SAY: &str = include_str!("../../lua/say.lua");
/// The keys of what operators say: two kinds, the times of both, the record, and the ends of orders.
const KEYS: [&str; 5] = ["switches", "orders", "times", "changes", "ends"];
/// Memory of one key, lease and place: estimates from the sizes of the strings and their entries, not measured.
const BYTES: (u64, u64, u64) = (400, 500, 650);

fn read<T: FromRedisValue>(value: Value) -> Result<T, GatesError> {
    redis::from_redis_value(value).map_err(|e| GatesError::Corrupt(e.to_string()))
}

impl Inner {
    /// Runs an operator's function on one partition.
    async fn operate(
        &self,
        domain: &Arc<Domain>,
        (partition, key): (&str, &str),
        now: Option<Micros>,
        what: &str,
        arguments: &[&[u8]],
    ) -> Result<Value, GatesError> {
        let mut all: Vec<&[u8]> = vec![what.as_bytes(), key.as_bytes()];
        all.extend(arguments);
        self.run(Operation::Operate, domain, partition, now, &all).await
    }

    /// The records of one kind that a domain has, by gate.
    async fn texts_of(&self, name: &str, kind: Kind) -> Result<Texts, GatesError> {
        let (key, mut ask) = (self.record_key(name, kind.name()), redis::cmd("HGETALL"));
        read(self.link.ask(&key, ask.arg(&key)).await.map_err(unreachable)?)
    }

    async fn switches_of(&self, name: &str, plan: &Plan) -> Result<BTreeMap<String, Switch>, GatesError> {
        let off = self.texts_of(name, Kind::Switches).await?;
        Ok(Records::read((off, Texts::new()), Default::default(), plan)?.off)
    }

    async fn orders_of(&self, name: &str, plan: &Plan) -> Result<BTreeMap<String, Order>, GatesError> {
        let orders = self.texts_of(name, Kind::Orders).await?;
        Ok(Records::read((Texts::new(), orders), Default::default(), plan)?.orders)
    }

    /// Says something of a domain, and records it. What is said about it then.
    async fn say(
        &self,
        domain: &str,
        sayings: Vec<Saying>,
        what: String,
        note: Note,
    ) -> Result<Records, GatesError> {
        let change = Change { at: self.clock(), what, note };
        let _hearing = self.hearing.lock().await;
        let known = self.known(domain)?;
        let said = self.say_words(domain, &known.plan, &known.said, (sayings, Some(change))).await;
        // It may have been written although no answer came.
        let said = said.inspect_err(|_| self.unread.add(Some(domain.into())))?;
        self.adopt(domain, said.clone())?;
        Ok(said)
    }

    fn names(&self) -> Vec<Box<str>> {
        self.domains.read().unwrap_or_else(PoisonError::into_inner).keys().cloned().collect()
    }

    /// Reads again what operators have said about these domains. One that cannot be read does not hide the others.
    pub(super) async fn read_words(&self, mut unread: BTreeSet<Option<Box<str>>>) -> Result<(), GatesError> {
        if unread.remove(&None) {
            // A domain whose first words are just being read is one of them.
            let _hearing = self.hearing.lock().await;
            unread.extend(self.names().into_iter().map(Some));
        }
        let mut all = Ok(());
        for name in unread.into_iter().flatten() {
            let _hearing = self.hearing.lock().await;
            // What is told is told to all, also of domains that are not known here.
            let Ok(domain) = self.known(&name) else { continue };
            match self.hear(&name, &domain.plan, &domain.said).await {
                Ok(said) => self.adopt(&name, said)?,
                Err(e) => {
                    self.unread.add(Some(name));
                    all = Err(e);
                }
            }
        }
        all
    }

    /// What operators have said about a domain, for one who has heard this much; under `hearing`. What the server has lost of that is
    /// said again, whatever else has been said or done since.
    pub(super) async fn hear(&self, name: &str, plan: &Plan, heard: &Records) -> Result<Records, GatesError> {
        self.say_words(name, plan, heard, (Vec::new(), None)).await
    }

    /// Says what was heard about a domain, and then this, which is recorded.
    async fn say_words(
        &self,
        name: &str,
        plan: &Plan,
        heard: &Records,
        (sayings, change): (Vec<Saying>, Option<Change>),
    ) -> Result<Records, GatesError> {
        let now = self.clock();
        let keys = KEYS.map(|what| self.record_key(name, what));
        let note = Note { who: "tidegate".into(), why: "the server had lost it".into() };
        let again = Change { at: now, what: "switches and orders said again".into(), note };
        let text = |n: Option<Micros>| n.map(|n| n.to_string()).unwrap_or_default();
        let mut say = redis::cmd("EVAL");
        say.arg(SAY).arg(keys.len()).arg(&keys);
        say.arg(RECORDS_LAST).arg(self.changes_channel()).arg(name).arg(written(&again)?).arg(CHANGES_KEPT);
        say.arg(change.as_ref().map(written).transpose()?.unwrap_or_default());
        for (word, at) in &heard.times {
            let end =
                heard.ends.get(&word.gate).copied().filter(|end| word.kind == Kind::Orders && *end > now);
            say.arg(word.to_string()).arg(heard.text(word)?).arg(at);
            say.arg(flag(heard.stands(word, now))).arg(text(end));
        }
        for Saying { word, text: said, end } in sayings {
            say.arg(word.to_string()).arg(said).arg("").arg("").arg(text(end));
        }
        let answer = self.link.ask(&keys[0], &say).await.map_err(unreachable)?;
        let (again, off, orders, times, ends): (Vec<String>, Texts, Texts, Times, Times) = read(answer)?;
        if again.iter().filter_map(|word| Word::parse(word)).any(|word| heard.stands(&word, now)) {
            tracing::warn!(domain = %name, "gates: the server has lost what operators have said; it is said again");
        }
        Records::read((off, orders), (times, ends), plan)
    }

    fn adopt(&self, name: &str, said: Records) -> Result<(), GatesError> {
        let changed =
            |known: &Domain| (known.said != said).then(|| known.with(&known.plan, said, known.lost));
        self.change(name, changed).map(drop)
    }

    /// Gives all partitions an order to a gate. How many keys have changed.
    async fn tell_partitions(
        &self,
        domain: &Arc<Domain>,
        now: Option<Micros>,
        what: &str,
        arguments: [&[u8]; 3],
    ) -> Result<u32, GatesError> {
        let mut changed = 0;
        for (partition, name) in self.partitions(domain).await? {
            let told = self.operate(domain, (&partition, &name), now, what, &arguments).await?;
            changed += reply::count(told)?;
        }
        Ok(changed)
    }

    /// Records a change, and says nothing.
    async fn record(&self, domain: &str, what: String, note: Note) -> Result<(), GatesError> {
        let (known, change) = (self.known(domain)?, Change { at: self.clock(), what, note });
        let said = (Vec::new(), Some(change));
        self.say_words(domain, &known.plan, &Records::default(), said).await.map(drop)
    }

    pub(super) async fn usage_of(&self, domain: &Arc<Domain>) -> Result<DomainUsage, GatesError> {
        self.count(domain, "usage").await
    }

    async fn count(&self, domain: &Arc<Domain>, what: &str) -> Result<DomainUsage, GatesError> {
        let (mut partitions, mut total) = (0, PartitionView::default());
        for (partition, key) in self.partitions(domain).await? {
            let counts: Vec<u32> = read(self.operate(domain, (&partition, &key), None, what, &[]).await?)?;
            let [keys, leases, quarantined, places] = counts[..] else {
                return Err(GatesError::Corrupt(format!("a script counted {counts:?}")));
            };
            partitions += 1;
            total.keys += keys;
            total.leases += leases;
            total.quarantined += quarantined;
            total.places += places;
        }
        let (key, lease, place) = BYTES;
        let bytes =
            u64::from(total.keys) * key + u64::from(total.leases) * lease + u64::from(total.places) * place;
        Ok(DomainUsage { domain: domain.name.to_string(), partitions, total, bytes })
    }
}

#[async_trait]
impl GateOperations for RedisGates {
    async fn configure(&self, domain: &str, set: GateSet) -> Result<(), GatesError> {
        self.inner.configure(domain, set).await
    }

    async fn inspect(
        &self,
        now: Option<Micros>,
        domain: &str,
        most: usize,
    ) -> Result<Vec<ScopeView>, GatesError> {
        let inner = &*self.inner;
        let domain = inner.known(domain)?;
        let mut views = Vec::new();
        for (partition, key) in inner.partitions(&domain).await? {
            let left = most.saturating_sub(views.len());
            if left == 0 {
                break;
            }
            let left = left.to_string();
            let value =
                inner.operate(&domain, (&partition, &key), now, "inspect", &[left.as_bytes()]).await?;
            views.extend(reply::scopes(value, &domain.set().gates)?);
        }
        Ok(views)
    }

    async fn holders(&self, domain: &str, most: usize) -> Result<Vec<HolderView>, GatesError> {
        let inner = &*self.inner;
        let domain = inner.known(domain)?;
        let mut views = Vec::new();
        for (partition, key) in inner.partitions(&domain).await? {
            let left = most.saturating_sub(views.len());
            if left == 0 {
                break;
            }
            let left = left.to_string();
            let value =
                inner.operate(&domain, (&partition, &key), None, "holders", &[left.as_bytes()]).await?;
            views.extend(reply::leases(value, &domain.name)?);
        }
        Ok(views)
    }

    async fn waiters(&self, domain: &str, most: usize) -> Result<Vec<WaiterView>, GatesError> {
        let inner = &*self.inner;
        let domain = inner.known(domain)?;
        let mut views = Vec::new();
        for (partition, key) in inner.partitions(&domain).await? {
            let left = most.saturating_sub(views.len());
            if left == 0 {
                break;
            }
            let left = left.to_string();
            let value =
                inner.operate(&domain, (&partition, &key), None, "waiters", &[left.as_bytes()]).await?;
            views.extend(reply::waiters(value, &domain.name)?);
        }
        Ok(views)
    }

    async fn force_release(
        &self,
        now: Option<Micros>,
        domain: &str,
        holder: &Holder,
        dry_run: bool,
        note: Note,
    ) -> Result<Released, GatesError> {
        let inner = &*self.inner;
        let known = inner.known(domain)?;
        let mut all = Released { leases: Vec::new(), woken: Vec::new() };
        for (partition, key) in inner.partitions(&known).await? {
            let arguments = [holder.as_str().as_bytes(), flag(dry_run)];
            let value = inner.operate(&known, (&partition, &key), now, "release", &arguments).await?;
            let (leases, woken) = reply::released(value, domain)?;
            all.leases.extend(leases);
            all.woken.extend(woken);
        }
        if !dry_run && !all.leases.is_empty() {
            inner.record(domain, format!("force_release {holder}"), note).await?;
            inner.turns.wake(&all.woken);
        }
        Ok(all)
    }

    async fn promote(
        &self,
        now: Option<Micros>,
        domain: &str,
        holder: &Holder,
        note: Note,
    ) -> Result<bool, GatesError> {
        let inner = &*self.inner;
        let known = inner.known(domain)?;
        let mut found = 0;
        for (partition, key) in inner.partitions(&known).await? {
            let arguments = [holder.as_str().as_bytes()];
            found +=
                reply::count(inner.operate(&known, (&partition, &key), now, "promote", &arguments).await?)?;
        }
        if found > 0 {
            inner.record(domain, format!("promote {holder}"), note).await?;
            inner.turns.wake(&[*holder]);
        }
        Ok(found > 0)
    }

    async fn order_breaker(
        &self,
        now: Option<Micros>,
        domain: &str,
        (gate, key): (&str, Option<&str>),
        order: BreakerOrder,
        note: Note,
    ) -> Result<u32, GatesError> {
        let inner = &*self.inner;
        let known = inner.known(domain)?;
        let Some(id) = known.plan.id_of(gate).map(|id| id.to_string()) else {
            return Err(GatesError::UnknownGate { domain: domain.into(), gate: gate.into() });
        };
        refuse_order(domain, gate, known.plan.compiled.is_breaker(gate), order)?;
        let at = now.unwrap_or_else(|| inner.clock());
        let orders = inner.orders_of(domain, &known.plan).await?;
        refuse_under(orders.get(gate), key, order, at)?;
        let what = order_text(gate, key, order);
        let Some(key) = key else {
            // Before it is told to the partitions that are there: it goes with every call, also to those that are not told. One that is
            // over stays until the next one to its breaker: who takes it away could take a new one.
            let order = Order::of(gate, order, at, &note);
            let until = order.as_ref().map(|order| order.until);
            let text = order.as_ref().map(written).transpose()?.unwrap_or_default();
            let saying = Saying { word: Word::order(gate), text, end: until };
            let said = inner.say(domain, vec![saying], what, note).await?;
            let (until, at) = (until.unwrap_or(0), said.times.get(&Word::order(gate)).copied().unwrap_or(0));
            let (until, at) = (until.to_string(), at.to_string());
            let arguments = [id.as_bytes(), until.as_bytes(), at.as_bytes()];
            return inner.tell_partitions(&known, now, "order", arguments).await;
        };
        let lasts = match order {
            BreakerOrder::Reset => String::new(),
            BreakerOrder::Trip { lasts } => lasts.to_string(),
        };
        let arguments = [id.as_bytes(), lasts.as_bytes(), key.as_bytes()];
        let changed = inner.tell_partitions(&known, now, "breaker", arguments).await?;
        if changed > 0 {
            inner.record(domain, what, note).await?;
        }
        Ok(changed)
    }

    async fn switch(
        &self,
        domain: &str,
        gate: Option<&str>,
        off: bool,
        note: Note,
    ) -> Result<Vec<Switch>, GatesError> {
        let inner = &*self.inner;
        let known = inner.known(domain)?;
        if let Some(gate) = gate.filter(|g| known.plan.id_of(g).is_none()) {
            return Err(GatesError::UnknownGate { domain: domain.into(), gate: gate.into() });
        }
        let all = known.set().gates.iter().map(|g| g.name.clone());
        let names: Vec<String> = all.filter(|name| gate.is_none_or(|g| g == name)).collect();
        let verb = if off { "disable" } else { "enable" };
        let what = format!("{verb} {}", gate.unwrap_or("all gates"));
        let at = inner.clock();
        let sayings = names.into_iter().map(|gate| {
            let switch = off.then(|| written(&Switch { gate: gate.clone(), at, note: note.clone() }));
            let word = Word { kind: Kind::Switches, gate };
            Ok(Saying { word, text: switch.transpose()?.unwrap_or_default(), end: None })
        });
        let sayings = sayings.collect::<Result<_, GatesError>>()?;
        Ok(inner.say(domain, sayings, what, note).await?.off.into_values().collect())
    }

    async fn switches(&self, domain: &str) -> Result<Vec<Switch>, GatesError> {
        let known = self.inner.known(domain)?;
        Ok(self.inner.switches_of(domain, &known.plan).await?.into_values().collect())
    }

    async fn orders(&self, domain: &str) -> Result<Vec<Order>, GatesError> {
        let (known, now) = (self.inner.known(domain)?, self.inner.clock());
        let orders = self.inner.orders_of(domain, &known.plan).await?;
        Ok(orders.into_values().filter(|order| order.until > now).collect())
    }

    async fn gates_of(&self, domain: &str) -> Result<Option<GateSet>, GatesError> {
        Ok(Some(self.inner.known(domain)?.set().clone()))
    }

    fn heard(&self, domain: &str) -> Arc<Said> {
        self.inner.known(domain).map_or_else(|_| Arc::default(), |known| known.heard.clone())
    }

    async fn changes(&self, domain: &str) -> Result<Vec<Change>, GatesError> {
        let inner = &*self.inner;
        inner.known(domain)?;
        let mut ask = redis::cmd("LRANGE");
        let key = inner.record_key(domain, "changes");
        ask.arg(&key).arg(0).arg(-1);
        let texts: Vec<String> = read(inner.link.ask(&key, &ask).await.map_err(unreachable)?)?;
        texts
            .iter()
            .map(|t| serde_json::from_str(t).map_err(|e| GatesError::Corrupt(e.to_string())))
            .collect()
    }

    async fn usage(&self) -> Result<Vec<DomainUsage>, GatesError> {
        let inner = &*self.inner;
        let mut names = inner.names();
        names.sort_unstable();
        let mut usages = Vec::new();
        for name in names {
            let domain = inner.known(&name)?;
            usages.push(inner.usage_of(&domain).await?);
        }
        Ok(usages)
    }

    async fn clear(&self, domain: &str, dry_run: bool, note: Note) -> Result<DomainUsage, GatesError> {
        let inner = &*self.inner;
        let known = inner.known(domain)?;
        let usage = inner.count(&known, if dry_run { "usage" } else { "clear" }).await?;
        if !dry_run {
            inner.record(domain, "clear".into(), note).await?;
        }
        Ok(usage)
    }
}
