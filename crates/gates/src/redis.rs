//! The rules as functions of a Redis server (7 or later), for processes that share limits.
//!
//! - One function per operation, one round trip per call: the whole state of a partition has one hash tag, the server's clock
//!   decides (`lua/prelude.lua` has the layout). The library is named by its contents and loaded when a server does not have it;
//!   so are the sets of gates.
//! - Every key begins with the prefix and has an expiry; the server must not evict (`maxmemory-policy noeviction`). Keys of state
//!   have the number of their layout behind it (`marker.rs`): versions of the program that lay it out differently do not read
//!   each other's.
//! - The address names one server, or some of a cluster (`redis://a:7000,b:7000`): partitions are spread over it by their hash
//!   tags, and follow their slots. There a loss of state is noticed by the server that has the domain's marker; a domain that is
//!   split has partitions on others, too.
//! - Wake-ups come over one channel per process; those that are missed are covered by the time each waiter was told.
//! - State that was lost as a whole (an emptied server) is noticed by a marker: rates then start without credit.
//!
//! Every process configures its domains itself, alike. Gates are found in state by scope, name and kind: new settings take
//! effect at once, what is held and learned stays; a gate that is new counts the calls that are admitted from then on.

mod due;
mod link;
mod marker;
mod node;
mod noticeboard;
mod operations;
mod plan;
mod reply;
mod scripts;
mod slots;
mod words;

use std::borrow::Cow;
use std::collections::HashMap;
use std::hash::{BuildHasher as _, RandomState};
use std::sync::atomic::{AtomicI64, AtomicUsize, Ordering};
use std::sync::{Arc, PoisonError, RwLock};
use std::time::{Duration, Instant};

use async_trait::async_trait;
use redis::Value;
use tidegate_core::gates::{
    Admission, Call, Compiled, End, Failure, Freed, GateSet, Holder, InvalidGates, Micros, Outcome,
    PERMIT_LEASE, Permit, Points, Renewal, SECOND, Settled, Target,
};

use self::due::Due;
use self::link::{Asked, Link, unreachable};
use self::plan::Plan;
use self::scripts::Operation;
use self::words::Records;
use crate::operations::Said;
use crate::{Gates, GatesError, Turn, Turns};

/// How often an operation is tried where every try found a new connection.
const ATTEMPTS: usize = 8;
/// When to read again what operators have said, if that failed.
const SAID_AGAIN: Duration = Duration::from_secs(1);

/// How to reach the server.
#[derive(Debug, Clone)]
pub struct RedisOptions {
    /// What all keys and channels begin with.
    pub prefix: String,
    /// Connections that all tasks share.
    pub connections: usize,
    /// Longest time for a connection or an answer.
    pub patience: Duration,
}

impl Default for RedisOptions {
    fn default() -> Self {
        Self { prefix: "tg".into(), connections: 2, patience: Duration::from_secs(2) }
    }
}

/// Gates on a Redis server.
#[derive(Debug)]
pub struct RedisGates {
    inner: Arc<Inner>,
    /// Hears wake-ups and changes; ends with this.
    _tasks: tokio::task::JoinSet<()>,
}

#[derive(Debug)]
struct Inner {
    link: Link,
    prefix: String,
    /// The number of the layout of state, and what keys of state begin with.
    layout: u32,
    state: String,
    /// This process's channel.
    channel: String,
    domains: RwLock<HashMap<Box<str>, Arc<Domain>>>,
    turns: Turns,
    started: Instant,
    /// Server's clock when this started, in microseconds.
    epoch: AtomicI64,
    /// Held from reading what operators have said until that is known: what was read earlier must not come later.
    hearing: tokio::sync::Mutex<()>,
    /// Domains about which operators have said something, or may have, or the server may have lost it; none: all of them.
    unread: Due<Option<Box<str>>>,
}

/// A domain, as this process knows it. Replaced when something changes.
#[derive(Debug)]
struct Domain {
    name: Box<str>,
    plan: Arc<Plan>,
    said: Records,
    /// The same for others.
    heard: Arc<Said>,
    /// When all of its state was lost, if it was.
    lost: Option<Micros>,
    /// Number of the connection on which its marker was seen last.
    checked: AtomicUsize,
    /// When state was lost, which gates are switched off and what was said of breakers, for the functions; none if that is as usual.
    circumstances: Option<String>,
    /// The same without breakers, and when the last order to them is over, also of those that were taken back.
    afterwards: (Micros, Option<String>),
}

impl Domain {
    fn new(name: &str, plan: Arc<Plan>, said: Records, lost: Option<Micros>) -> Self {
        let set = plan.compiled.set();
        let off = |gate: &str| said.off.contains_key(gate);
        let circumstances = plan::circumstances(set, &off, &|gate| said.order_to(gate), lost);
        let last = said.ends.values().max().copied().unwrap_or(Micros::MAX);
        let afterwards = (last, plan::circumstances(set, &off, &|_| None, lost));
        let (off, orders) = (said.off.values().cloned().collect(), said.orders.values().cloned().collect());
        let (heard, checked) = (Arc::new(Said { off, orders }), AtomicUsize::new(0));
        Self { name: name.into(), plan, said, heard, lost, checked, circumstances, afterwards }
    }

    /// The same domain, of which something else is known; its marker was seen all the same.
    fn with(&self, plan: &Arc<Plan>, said: Records, lost: Option<Micros>) -> Self {
        let new = Self::new(&self.name, plan.clone(), said, lost);
        new.checked.store(self.checked.load(Ordering::Acquire), Ordering::Release);
        new
    }

    fn set(&self) -> &GateSet {
        self.plan.compiled.set()
    }

    /// How the functions are told which set to use, and what is unusual.
    fn set_at(&self, now: Option<Micros>, clock: Micros) -> Cow<'_, str> {
        let (name, (end, afterwards)) = (&self.plan.name, &self.afterwards);
        let circumstances = if now.unwrap_or(clock) < *end { &self.circumstances } else { afterwards };
        if now.is_none() && circumstances.is_none() {
            return Cow::Borrowed(name);
        }
        let circumstances = circumstances.as_deref().unwrap_or("-1;;");
        let now = now.map(|n| n.to_string()).unwrap_or_default();
        Cow::Owned(format!("{name};{circumstances};{now}"))
    }

    /// The key of the partition of this target.
    fn partition(&self, state: &str, target: &Target) -> String {
        let mut key = String::new();
        self.plan.compiled.partition_into(target, &mut key);
        self.partition_named(state, &key)
    }

    fn partition_named(&self, state: &str, key: &str) -> String {
        if self.plan.compiled.is_split() {
            format!("{state}:{{{}/{key}}}", self.name)
        } else {
            format!("{state}:{{{}}}", self.name)
        }
    }
}

impl RedisGates {
    /// Commands sent so far, to see that an admission takes one.
    pub fn round_trips(&self) -> u64 {
        self.inner.link.round_trips()
    }

    /// Runs a script that does nothing, by the way that operations go: what they are measured against.
    #[doc(hidden)]
    pub async fn do_nothing(&self) -> Result<(), GatesError> {
        // Its SHA1, by which servers know it.
        const HASH: &str = "e0e1f9fabfc9d4800c877a703b823ac0578ff8db";
        let key = format!("{}:{{nothing}}", self.inner.prefix);
        let mut run = redis::cmd("EVALSHA");
        run.arg(HASH).arg(1).arg(&key);
        if self.inner.link.ask(&key, &run).await.is_err() {
            let mut load = redis::cmd("SCRIPT");
            load.arg("LOAD").arg("return 1");
            self.inner.link.ask(&key, &load).await.map_err(unreachable)?;
            self.inner.link.ask(&key, &run).await.map_err(unreachable)?;
        }
        Ok(())
    }

    /// Connects, and checks that the server is one that keeps what it is given.
    pub async fn connect(url: &str, options: RedisOptions) -> Result<Self, GatesError> {
        Self::connect_as(marker::LAYOUT, url, options).await
    }

    /// The same, for a program whose state is laid out like this.
    async fn connect_as(layout: u32, url: &str, options: RedisOptions) -> Result<Self, GatesError> {
        let link = Link::new(url, options.connections, options.patience)?;
        let random = RandomState::new().hash_one(std::process::id());
        let inner = Arc::new(Inner {
            link,
            channel: format!("{}:wake:{random:016x}", options.prefix),
            state: format!("{}:{layout}", options.prefix),
            layout,
            prefix: options.prefix,
            domains: RwLock::default(),
            turns: Turns::default(),
            started: Instant::now(),
            epoch: AtomicI64::new(0),
            hearing: tokio::sync::Mutex::default(),
            unread: Due::default(),
        });
        inner.check_servers().await?;
        inner.set_clock("").await?;
        let mut tasks = tokio::task::JoinSet::new();
        let hearing = inner.clone();
        tasks.spawn(async move {
            let channel = hearing.changes_channel();
            hearing.link.hear(&hearing.channel, &channel, &hearing.turns, &hearing.unread).await;
        });
        let reading = inner.clone();
        tasks.spawn(async move {
            loop {
                let unread = reading.unread.take().await;
                if let Err(e) = reading.read_words(unread).await {
                    tracing::warn!(error = %e, "gates: what operators have said could not be read");
                    tokio::time::sleep(SAID_AGAIN).await;
                }
            }
        });
        Ok(Self { inner, _tasks: tasks })
    }

    /// Those who wait in this process.
    pub fn turns(&self) -> &Turns {
        &self.inner.turns
    }
}

fn refuse(path: &str, problem: String, hint: &str) -> GatesError {
    GatesError::Invalid(InvalidGates { path: path.into(), problem, hint: hint.into() })
}

/// A line `name:value` of the server's INFO.
fn info<'a>(text: &'a str, name: &str) -> Option<&'a str> {
    text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':')).map(str::trim)
}

/// Whether a server is new enough and keeps what it is given, by its INFO.
fn check_server(text: &str) -> Result<(), GatesError> {
    let version = info(text, "redis_version").unwrap_or("unknown");
    let major: u32 = version.split('.').next().and_then(|n| n.parse().ok()).unwrap_or(0);
    if major < 7 {
        let problem = format!("the server's version is {version}");
        return Err(refuse("gates.redis", problem, "use Redis 7 or later"));
    }
    let policy = info(text, "maxmemory_policy").unwrap_or("unknown");
    if policy != "noeviction" {
        let problem = format!("the server evicts keys ({policy}), so limits would be forgotten");
        return Err(refuse("gates.redis", problem, "set `maxmemory-policy noeviction`"));
    }
    Ok(())
}

impl Inner {
    fn changes_channel(&self) -> String {
        format!("{}:changes", self.prefix)
    }

    /// The key of the list of a domain's partitions.
    fn list_key(&self, domain: &str) -> String {
        format!("{}:{{{domain}}}!parts", self.state)
    }

    /// A key of a domain that is the same in every layout of state.
    fn record_key(&self, domain: &str, what: &str) -> String {
        format!("{}:{{{domain}}}!{what}", self.prefix)
    }

    /// Looks at every server that has keys.
    async fn check_servers(&self) -> Result<(), GatesError> {
        self.link.survey().await.map_err(unreachable)?;
        let mut ask = redis::cmd("INFO");
        ask.arg("server").arg("memory");
        for node in self.link.owners() {
            let answer = self.link.ask_at(&node, &ask).await.map_err(unreachable)?;
            let text: String =
                redis::from_redis_value(answer).map_err(|e| GatesError::Corrupt(e.to_string()))?;
            check_server(&text)?;
        }
        Ok(())
    }

    /// The clock of the server that has this key.
    async fn set_clock(&self, key: &str) -> Result<Micros, GatesError> {
        let reply = self.link.ask(key, &redis::cmd("TIME")).await.map_err(unreachable)?;
        let (seconds, micros): (i64, i64) =
            redis::from_redis_value(reply).map_err(|e| GatesError::Corrupt(e.to_string()))?;
        let now = seconds * SECOND + micros;
        self.epoch.store(now - self.started.elapsed().as_micros() as Micros, Ordering::Release);
        Ok(now)
    }

    /// The server's clock was there at least, before now: an answer that took long when the clock was set leaves it behind, and
    /// a call would start after its `use_by` and stop after its lease.
    fn has_been(&self, at: Micros) {
        self.epoch.fetch_max(at - self.started.elapsed().as_micros() as Micros, Ordering::AcqRel);
    }

    fn clock(&self) -> Micros {
        self.epoch.load(Ordering::Acquire) + self.started.elapsed().as_micros() as Micros
    }

    fn known(&self, domain: &str) -> Result<Arc<Domain>, GatesError> {
        let domains = self.domains.read().unwrap_or_else(PoisonError::into_inner);
        domains.get(domain).cloned().ok_or_else(|| GatesError::UnknownDomain { domain: domain.into() })
    }

    fn replace(&self, new: Domain) -> Arc<Domain> {
        let new = Arc::new(new);
        let mut domains = self.domains.write().unwrap_or_else(PoisonError::into_inner);
        domains.insert(new.name.clone(), new.clone());
        new
    }

    /// Replaces a domain by what `change` makes of it as it is now, if anything.
    fn change(
        &self,
        name: &str,
        change: impl FnOnce(&Domain) -> Option<Domain>,
    ) -> Result<Arc<Domain>, GatesError> {
        let mut domains = self.domains.write().unwrap_or_else(PoisonError::into_inner);
        let known = domains.get_mut(name);
        let known = known.ok_or_else(|| GatesError::UnknownDomain { domain: name.into() })?;
        if let Some(new) = change(known) {
            *known = Arc::new(new);
        }
        Ok(known.clone())
    }

    /// Runs an operation on a partition. On a new connection the domain's marker is looked at first: it may be another server.
    async fn run(
        &self,
        operation: Operation,
        domain: &Arc<Domain>,
        partition: &str,
        now: Option<Micros>,
        arguments: &[&[u8]],
    ) -> Result<Value, GatesError> {
        let mut domain = domain.clone();
        // The connection that was new when the marker was looked at is not new any more; the next one may be.
        let turn = self.link.turn(partition);
        for _ in 0..ATTEMPTS {
            let mut all: Vec<&[u8]> = Vec::with_capacity(arguments.len() + 2);
            let set = domain.set_at(now, self.clock());
            all.extend([set.as_bytes(), self.channel.as_bytes()]);
            all.extend(arguments);
            let checked = domain.checked.load(Ordering::Acquire);
            let asked = Asked { operation, key: partition, arguments: &all, plan: &domain.plan };
            if let Some(value) = self.link.run(asked, turn, checked).await.map_err(unreachable)? {
                return Ok(value);
            }
            domain = self.check_marker(&domain, false).await?;
        }
        Err(GatesError::Unreachable("connections break faster than they are made".into()))
    }

    /// A partition was made, or has been in use for long: puts it on its domain's list, and sees to the marker.
    async fn note_partition(&self, domain: &Arc<Domain>, target: &Target) -> Result<(), GatesError> {
        if domain.plan.compiled.is_split() {
            let mut key = String::new();
            domain.plan.compiled.partition_into(target, &mut key);
            let list = self.list_key(&domain.name);
            let mut add = redis::cmd("ZADD");
            add.arg(&list).arg(self.clock() / SECOND).arg(key);
            self.link.ask(&list, &add).await.map_err(unreachable)?;
            let mut keep = redis::cmd("EXPIRE");
            keep.arg(&list).arg(domain.plan.ttl * 2);
            self.link.ask(&list, &keep).await.map_err(unreachable)?;
        }
        self.check_marker(domain, false).await.map(drop)
    }

    /// The keys of a domain's partitions, with their names.
    async fn partitions(&self, domain: &Domain) -> Result<Vec<(String, String)>, GatesError> {
        if !domain.plan.compiled.is_split() {
            return Ok(vec![(domain.partition_named(&self.state, ""), String::new())]);
        }
        let list = self.list_key(&domain.name);
        let mut old = redis::cmd("ZREMRANGEBYSCORE");
        old.arg(&list).arg("-inf").arg(self.clock() / SECOND - domain.plan.ttl * 2);
        self.link.ask(&list, &old).await.map_err(unreachable)?;
        let mut ask = redis::cmd("ZRANGE");
        ask.arg(&list).arg(0).arg(-1);
        let names: Vec<String> =
            redis::from_redis_value(self.link.ask(&list, &ask).await.map_err(unreachable)?)
                .map_err(|e| GatesError::Corrupt(e.to_string()))?;
        Ok(names.into_iter().map(|name| (domain.partition_named(&self.state, &name), name)).collect())
    }

    async fn configure(&self, name: &str, set: GateSet) -> Result<(), GatesError> {
        let plan = Arc::new(Plan::new(Compiled::new(set)?));
        let before = self.known(name).ok();
        if let Some(before) = before.as_ref().filter(|d| d.plan.compiled.split() != plan.compiled.split()) {
            let usage = self.usage_of(before).await?;
            if usage.total.leases + usage.total.places > 0 {
                return Err(GatesError::InUse { domain: name.into() });
            }
        }
        let hearing = self.hearing.lock().await;
        // What this process has heard may be the only copy: it is not given up for what an emptied server says.
        let known = self.known(name).ok();
        let heard = known.as_ref().map(|d| d.said.clone()).unwrap_or_default();
        let said = self.hear(name, &plan, &heard).await?;
        let new = self.replace(Domain::new(name, plan, said, known.and_then(|d| d.lost)));
        drop(hearing);
        self.check_marker(&new, before.is_none()).await.map(drop)
    }
}

/// All parts of a target, as the functions know it by.
fn all_parts(target: &Target) -> String {
    let mut text = String::with_capacity(32);
    target.key_into(u8::MAX, &mut text);
    text
}

/// Numbers as the functions read them, without a text for each: doubles, and what is not a number where there is none.
fn packed<const N: usize>(numbers: [Option<i64>; N]) -> Vec<u8> {
    numbers.iter().flat_map(|n| n.map_or(f64::NAN, |n| n as f64).to_be_bytes()).collect()
}

#[async_trait]
impl Gates for RedisGates {
    async fn admit(&self, now: Option<Micros>, call: &Call) -> Result<Admission, GatesError> {
        let inner = &*self.inner;
        let domain = inner.known(call.target.domain())?;
        let partition = domain.partition(&inner.state, &call.target);
        let valid = (0..=Points::MAX.0).contains(&call.cost.0) && PERMIT_LEASE.contains(&call.lease);
        let numbers = packed([
            Some(call.ask as i64),
            Some(call.cost.0),
            Some(domain.plan.level(call.priority).into()),
            Some(call.lease),
            call.deadline,
            call.since,
            Some(call.place.into()),
            Some(call.process as i64),
            Some(valid.into()),
        ]);
        let parts = all_parts(&call.target);
        let arguments = [call.holder.as_str().as_bytes(), &numbers, parts.as_bytes()];
        let value = inner.run(Operation::Admit, &domain, &partition, now, &arguments).await?;
        let (reply, noteworthy) = reply::admission(value, call, &domain.set().gates)?;
        if noteworthy {
            inner.note_partition(&domain, &call.target).await?;
        }
        if let (Admission::Admitted(admitted), None) = (&reply, now) {
            inner.has_been(admitted.permit.admitted_at);
        }
        inner.turns.wake(reply.woken());
        Ok(reply)
    }

    async fn settle(
        &self,
        now: Option<Micros>,
        permit: &Permit,
        outcome: &Outcome,
    ) -> Result<Settled, GatesError> {
        let inner = &*self.inner;
        let domain = inner.known(permit.target.domain())?;
        let partition = domain.partition(&inner.state, &permit.target);
        let (end, retry_after) = match outcome.end {
            End::Ok => ("ok", None),
            End::Throttled { retry_after } => ("throttled", retry_after),
            End::Failed(Failure::Network | Failure::Server) => ("failed", None),
            End::Failed(Failure::TimedOut) => ("timed_out", None),
            End::Failed(Failure::Request) => ("request", None),
            End::Abandoned => ("abandoned", None),
            End::Unused => ("unused", None),
        };
        let observed = outcome.observed.unwrap_or_default();
        let milli = |p: Option<Points>| p.map(|p| p.0);
        let numbers = packed([
            Some(permit.fence),
            retry_after,
            outcome.actual.map(|p| p.0.clamp(0, Points::MAX.0)),
            Some(outcome.observed.is_some().into()),
            milli(observed.level),
            milli(observed.capacity),
            milli(observed.restore_per_s),
            Some(permit.admitted_at),
        ]);
        let parts = all_parts(&permit.target);
        let arguments = [permit.holder.as_str().as_bytes(), &numbers, end.as_bytes(), parts.as_bytes()];
        let value = inner.run(Operation::Settle, &domain, &partition, now, &arguments).await?;
        let reply = reply::settled(value, &domain.set().gates)?;
        inner.turns.wake(&reply.woken);
        Ok(reply)
    }

    async fn renew(&self, now: Option<Micros>, permit: &Permit) -> Result<Renewal, GatesError> {
        let inner = &*self.inner;
        let domain = inner.known(permit.target.domain())?;
        let partition = domain.partition(&inner.state, &permit.target);
        let fence = permit.fence.to_string();
        let arguments = [permit.holder.as_str().as_bytes(), fence.as_bytes()];
        let value = inner.run(Operation::Renew, &domain, &partition, now, &arguments).await?;
        Ok(reply::renewed(value)?.map_or(Renewal::Gone, |expires_at| Renewal::Renewed { expires_at }))
    }

    async fn cancel_wait(
        &self,
        now: Option<Micros>,
        target: &Target,
        holder: &Holder,
    ) -> Result<Freed, GatesError> {
        let inner = &*self.inner;
        let domain = inner.known(target.domain())?;
        let partition = domain.partition(&inner.state, target);
        let arguments = [holder.as_str().as_bytes()];
        let value = inner.run(Operation::CancelWait, &domain, &partition, now, &arguments).await?;
        let reply = reply::freed(value)?;
        inner.turns.wake(&reply.woken);
        Ok(reply)
    }

    async fn expire(&self, now: Option<Micros>, domain: &str) -> Result<Freed, GatesError> {
        let inner = &*self.inner;
        let domain = inner.known(domain)?;
        let mut all = Freed { gone: 0, more: false, woken: Vec::new() };
        for (partition, _) in inner.partitions(&domain).await? {
            let freed = reply::freed(inner.run(Operation::Expire, &domain, &partition, now, &[]).await?)?;
            all.gone += freed.gone;
            all.more |= freed.more;
            all.woken.extend(freed.woken);
        }
        inner.turns.wake(&all.woken);
        Ok(all)
    }

    fn clock(&self) -> Micros {
        self.inner.clock()
    }

    fn generation(&self) -> u64 {
        self.inner.link.generation()
    }

    fn turn(&self, holder: &Holder) -> Turn {
        self.inner.turns.register(holder)
    }
}

fn flag(is: bool) -> &'static [u8] {
    if is { b"1" } else { b"0" }
}
