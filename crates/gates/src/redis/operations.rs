//! An operator's operations on gates in Redis. Switches and the record of changes are shared by all processes.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, PoisonError};

use async_trait::async_trait;
use redis::{FromRedisValue, Value};
use serde::de::DeserializeOwned;
use tidegate_core::gates::{
    BreakerOrder, GateSet, Holder, HolderView, Micros, PartitionView, ScopeView, WaiterView,
};

use super::link::unreachable;
use super::plan::Plan;
use super::scripts::Operation;
use super::{Domain, Inner, Records, RedisGates, flag, reply};
use crate::GatesError;
use crate::operations::{
    Change, DomainUsage, GateOperations, Note, Order, Released, Said, Switch, order_text, refuse_order,
    refuse_under,
};

/// Changes by operators that are kept per domain, and how long (seconds).
const CHANGES_KEPT: isize = 100;
const RECORDS_LAST: i64 = 400 * 24 * 3_600;
const SAY: &str = include_str!("../../lua/say.lua");
/// The kinds of words of operators, as their keys end.
const SWITCHES: &str = "switches";
const ORDERS: &str = "orders";
/// The key of the times of both.
const TIMES: &str = "times";
/// Memory of one key, lease and place: estimates from the sizes of the strings and their entries, not measured.
const BYTES: (u64, u64, u64) = (400, 500, 650);

fn read<T: FromRedisValue>(value: Value) -> Result<T, GatesError> {
    redis::from_redis_value(value).map_err(|e| GatesError::Corrupt(e.to_string()))
}

/// Records as they are written, by gate.
type Texts = BTreeMap<String, String>;
/// When words were said, by what they are about: `switches GATE`, `orders GATE`.
type Times = BTreeMap<String, Micros>;

impl Records {
    /// Reads them, as far as their gates still exist.
    fn read(off: Texts, orders: Texts, mut times: Times, plan: &Plan) -> Result<Self, GatesError> {
        fn each<T: DeserializeOwned>(
            texts: Texts,
            is_there: impl Fn(&str) -> bool,
        ) -> Result<BTreeMap<String, T>, GatesError> {
            let texts = texts.into_iter().filter(|(gate, _)| is_there(gate));
            let read =
                |text: &str| serde_json::from_str(text).map_err(|e| GatesError::Corrupt(e.to_string()));
            texts.map(|(gate, text)| Ok((gate, read(&text)?))).collect()
        }
        let is_gate = |gate: &str| plan.id_of(gate).is_some();
        let is_breaker = |gate: &str| plan.compiled.is_breaker(gate);
        times.retain(|word, _| match word.split_once(' ') {
            Some((SWITCHES, gate)) => is_gate(gate),
            Some((_, gate)) => is_breaker(gate),
            None => false,
        });
        Ok(Self { off: each(off, is_gate)?, orders: each(orders, is_breaker)?, times })
    }

    /// The record that a word has left; empty if it was taken back.
    fn text(&self, word: &str) -> Result<String, GatesError> {
        let text = match word.split_once(' ') {
            Some((SWITCHES, gate)) => self.off.get(gate).map(written),
            Some((_, gate)) => self.orders.get(gate).map(written),
            None => None,
        };
        Ok(text.transpose()?.unwrap_or_default())
    }

    /// Whether a word stops or lets pass anything now: it was not taken back, and is not over.
    fn stands(&self, word: &str, now: Micros) -> bool {
        match word.split_once(' ') {
            Some((SWITCHES, gate)) => self.off.contains_key(gate),
            Some((_, gate)) => self.orders.get(gate).is_some_and(|order| order.until > now),
            None => false,
        }
    }
}

/// What is said: a word, its text (empty: taken back), and when (none: now).
type Word = (String, String, Option<Micros>);

fn written<T: serde::Serialize>(value: &T) -> Result<String, GatesError> {
    serde_json::to_string(value).map_err(|e| GatesError::Corrupt(e.to_string()))
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
    async fn texts_of(&self, name: &str, kind: &str) -> Result<Texts, GatesError> {
        let (key, mut ask) = (self.record_key(name, kind), redis::cmd("HGETALL"));
        read(self.link.ask(&key, ask.arg(&key)).await.map_err(unreachable)?)
    }

    async fn switches_of(&self, name: &str, plan: &Plan) -> Result<BTreeMap<String, Switch>, GatesError> {
        let texts = self.texts_of(name, SWITCHES).await?;
        Ok(Records::read(texts, Texts::new(), Times::new(), plan)?.off)
    }

    async fn orders_of(&self, name: &str, plan: &Plan) -> Result<BTreeMap<String, Order>, GatesError> {
        let texts = self.texts_of(name, ORDERS).await?;
        Ok(Records::read(Texts::new(), texts, Times::new(), plan)?.orders)
    }

    /// Writes or takes back records of a domain, by gate. What is said about it now.
    async fn say<T: serde::Serialize>(
        &self,
        domain: &str,
        kind: &str,
        records: Vec<(String, Option<T>)>,
    ) -> Result<Records, GatesError> {
        let mut words = Vec::new();
        for (gate, record) in records {
            let text = record.as_ref().map(written).transpose()?;
            words.push((format!("{kind} {gate}"), text.unwrap_or_default(), None));
        }
        let _hearing = self.hearing.lock().await;
        let known = self.known(domain)?;
        let said = self.say_words(domain, &known.plan, &known.said, words).await;
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
        self.say_words(name, plan, heard, Vec::new()).await
    }

    /// Says what was heard about a domain, and then these words.
    async fn say_words(
        &self,
        name: &str,
        plan: &Plan,
        heard: &Records,
        words: Vec<Word>,
    ) -> Result<Records, GatesError> {
        let now = self.clock();
        let keys = [SWITCHES, ORDERS, TIMES, "changes"].map(|what| self.record_key(name, what));
        let note = Note { who: "tidegate".into(), why: "the server had lost it".into() };
        let record = Change { at: now, what: "switches and orders said again".into(), note };
        let mut say = redis::cmd("EVAL");
        say.arg(SAY).arg(keys.len()).arg(&keys);
        say.arg(RECORDS_LAST).arg(self.changes_channel()).arg(name).arg(written(&record)?).arg(CHANGES_KEPT);
        for (word, at) in &heard.times {
            say.arg(word).arg(heard.text(word)?).arg(at).arg(flag(heard.stands(word, now)));
        }
        for (word, text, at) in words {
            say.arg(word).arg(text).arg(at.map(|at| at.to_string()).unwrap_or_default()).arg("");
        }
        let answer = self.link.ask(&keys[0], &say).await.map_err(unreachable)?;
        let (again, off, orders, times): (Vec<String>, Texts, Texts, Times) = read(answer)?;
        for gate in again.iter().filter_map(|word| word.strip_prefix(ORDERS)?.strip_prefix(' ')) {
            self.ordered.add((name.into(), gate.into()));
        }
        if again.iter().any(|word| heard.stands(word, now)) {
            tracing::warn!(domain = %name, "gates: the server has lost what operators have said; it is said again");
        }
        Records::read(off, orders, times, plan)
    }

    fn adopt(&self, name: &str, said: Records) -> Result<(), GatesError> {
        let changed =
            |known: &Domain| (known.said != said).then(|| known.with(&known.plan, said, known.lost));
        self.change(name, changed).map(drop)
    }

    /// Tells all partitions of an order to a breaker, or to one key of it. How many have changed.
    async fn tell_partitions(
        &self,
        domain: &Arc<Domain>,
        now: Option<Micros>,
        (gate, key): (&str, Option<&str>),
        order: BreakerOrder,
    ) -> Result<u32, GatesError> {
        // A gate that is gone has nothing to be told.
        let Some(id) = domain.plan.id_of(gate).map(|id| id.to_string()) else { return Ok(0) };
        let lasts = match order {
            BreakerOrder::Reset => String::new(),
            BreakerOrder::Trip { lasts } => lasts.to_string(),
        };
        let mut arguments: Vec<&[u8]> = vec![id.as_bytes(), lasts.as_bytes()];
        arguments.extend(key.map(str::as_bytes));
        let mut changed = 0;
        for (partition, name) in self.partitions(domain).await? {
            let told = self.operate(domain, (&partition, &name), now, "breaker", &arguments).await?;
            changed += reply::count(told)?;
        }
        Ok(changed)
    }

    /// All partitions have been told of the order that was said at this time: its time is a moment later from now on. So a server that
    /// comes back as it was before has lost that word, and it is said and carried out again. False if there is a newer word: it may have
    /// been overtaken.
    async fn was_carried_out(
        &self,
        domain: &str,
        gate: &str,
        at: Option<Micros>,
    ) -> Result<bool, GatesError> {
        let word = format!("{ORDERS} {gate}");
        // The gate is gone, or a version without times has said it.
        let Some(at) = at else { return Ok(true) };
        let _hearing = self.hearing.lock().await;
        let known = self.known(domain)?;
        if known.said.times.get(&word) != Some(&at) {
            return Ok(!known.said.times.contains_key(&word));
        }
        let carried_out = (word.clone(), known.said.text(&word)?, Some(at + 1));
        let said = self.say_words(domain, &known.plan, &known.said, vec![carried_out]).await?;
        let newest = said.times.get(&word) == Some(&(at + 1));
        self.adopt(domain, said)?;
        Ok(newest)
    }

    /// Carries out what was said again about breakers: partitions may have come back as they were before it was said first.
    pub(super) async fn carry_out_again(
        &self,
        ordered: BTreeSet<(Box<str>, String)>,
    ) -> Result<(), GatesError> {
        let mut all = Ok(());
        for (name, gate) in ordered {
            let Ok(domain) = self.known(&name) else { continue };
            let at = domain.said.times.get(&format!("{ORDERS} {gate}")).copied();
            let left = domain.said.orders.get(&gate).map(|order| order.until - self.clock());
            let order = left.filter(|left| *left > 0);
            let order = order.map_or(BreakerOrder::Reset, |lasts| BreakerOrder::Trip { lasts });
            let told = self.tell_partitions(&domain, None, (&gate, None), order).await;
            let newest = match told {
                Ok(_) => self.was_carried_out(&name, &gate, at).await,
                Err(e) => Err(e),
            };
            if !matches!(newest, Ok(true)) {
                self.ordered.add((name, gate));
            }
            all = all.and(newest.map(drop));
        }
        all
    }

    async fn record(&self, domain: &str, what: String, note: Note) -> Result<(), GatesError> {
        let key = self.record_key(domain, "changes");
        let text = written(&Change { at: self.clock(), what, note })?;
        let mut push = redis::cmd("RPUSH");
        push.arg(&key).arg(text);
        let mut trim = redis::cmd("LTRIM");
        trim.arg(&key).arg(-CHANGES_KEPT).arg(-1);
        let mut keep = redis::cmd("EXPIRE");
        keep.arg(&key).arg(RECORDS_LAST);
        for command in [push, trim, keep] {
            self.link.ask(&key, &command).await.map_err(unreachable)?;
        }
        Ok(())
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
            let left = most.saturating_sub(views.len()).to_string();
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
            let left = most.saturating_sub(views.len()).to_string();
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
        if known.plan.id_of(gate).is_none() {
            return Err(GatesError::UnknownGate { domain: domain.into(), gate: gate.into() });
        }
        refuse_order(domain, gate, known.plan.compiled.is_breaker(gate), order)?;
        let at = now.unwrap_or_else(|| inner.clock());
        let orders = inner.orders_of(domain, &known.plan).await?;
        refuse_under(orders.get(gate), key, order, at)?;
        let mut said = None;
        if key.is_none() {
            // Before it is told to the partitions that are there: it goes with every call, also to those that are made meanwhile.
            // One that is over stays until the next one to its breaker: who takes it away could take a new one.
            let word = (gate.to_owned(), Order::of(gate, order, at, &note));
            inner.record(domain, order_text(gate, key, order), note.clone()).await?;
            said =
                inner.say(domain, ORDERS, vec![word]).await?.times.get(&format!("{ORDERS} {gate}")).copied();
        }
        let changed = inner.tell_partitions(&known, now, (gate, key), order).await?;
        if key.is_none() && !inner.was_carried_out(domain, gate, said).await? {
            inner.ordered.add((domain.into(), gate.into()));
        }
        if key.is_some() && changed > 0 {
            inner.record(domain, order_text(gate, key, order), note).await?;
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
        inner.record(domain, format!("{verb} {}", gate.unwrap_or("all gates")), note.clone()).await?;
        let at = inner.clock();
        let switches = names.into_iter().map(|gate| {
            let switch = Switch { gate: gate.clone(), at, note: note.clone() };
            (gate, off.then_some(switch))
        });
        Ok(inner.say(domain, SWITCHES, switches.collect()).await?.off.into_values().collect())
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
