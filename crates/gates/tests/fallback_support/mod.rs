//! A backend that goes away, and processes that share it.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use tidegate_core::gates::{
    Admission, BreakerOrder, Call, Freed, GateSet, Holder, HolderView, Micros, Outcome, Permit, Renewal,
    SECOND, ScopeView, Settled, Target, WaiterView,
};
use tidegate_gates::{
    BackendState, Change, DomainUsage, Fallback, FallbackOptions, GateOperations, Gates, GatesError,
    InProcess, Note, Order, Released, Said, Switch, Turn,
};
use tokio::time::{Instant, sleep, timeout};

/// How the backend behaves.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum Mood {
    Fine,
    Down,
    ReadOnly,
    Takes(Duration),
    /// Does what it is asked, and the answer is lost.
    Mute,
}

#[derive(Debug)]
pub(crate) struct Server {
    pub(crate) gates: Mutex<Arc<InProcess>>,
    sets: Mutex<BTreeMap<String, GateSet>>,
    pub(crate) mood: Mutex<Mood>,
    generation: AtomicU64,
    started: Instant,
    pub(crate) asked: AtomicU64,
    /// How many partitions there are, one round trip each for what goes through all of them.
    pub(crate) partitions: AtomicU64,
}

/// A connection of one process.
#[derive(Debug, Clone)]
pub(crate) struct Shaky {
    server: Arc<Server>,
    pub(crate) own: Arc<Mutex<Option<Mood>>>,
}

impl Server {
    fn new() -> Arc<Self> {
        Arc::new(Self {
            gates: Mutex::new(Arc::new(InProcess::new())),
            sets: Mutex::default(),
            mood: Mutex::new(Mood::Fine),
            generation: AtomicU64::new(1),
            started: Instant::now(),
            asked: AtomicU64::new(0),
            partitions: AtomicU64::new(1),
        })
    }

    pub(crate) fn is(&self, mood: Mood) {
        *self.mood.lock().unwrap() = mood;
    }

    pub(crate) fn lose_everything(&self) {
        let new = InProcess::new();
        for (domain, set) in &*self.sets.lock().unwrap() {
            new.configure_now(domain, set.clone()).unwrap();
        }
        *self.gates.lock().unwrap() = Arc::new(new);
        self.generation.fetch_add(1, Ordering::SeqCst);
    }

    pub(crate) fn connect(self: &Arc<Self>) -> Shaky {
        Shaky { server: self.clone(), own: Arc::default() }
    }
}

impl Shaky {
    fn mood(&self) -> Mood {
        self.own.lock().unwrap().unwrap_or(*self.server.mood.lock().unwrap())
    }

    pub(crate) fn now(&self) -> Micros {
        1_700_000_000 * SECOND + self.server.started.elapsed().as_micros() as Micros
    }

    async fn ask<R>(&self, act: impl FnOnce(&Arc<InProcess>, Micros) -> R) -> Result<R, GatesError> {
        self.server.asked.fetch_add(1, Ordering::SeqCst);
        match self.mood() {
            Mood::Fine => sleep(Duration::from_micros(200)).await,
            Mood::Takes(time) => sleep(time).await,
            Mood::Down => return Err(GatesError::Unreachable("connection refused".into())),
            Mood::ReadOnly => {
                return Err(GatesError::Unreachable(
                    "READONLY You can't write against a read only replica.".into(),
                ));
            }
            Mood::Mute => {
                let gates = self.server.gates.lock().unwrap().clone();
                act(&gates, self.now());
                std::future::pending::<()>().await;
                unreachable!("nothing comes")
            }
        }
        let gates = self.server.gates.lock().unwrap().clone();
        Ok(act(&gates, self.now()))
    }
}

#[async_trait]
impl Gates for Shaky {
    async fn admit(&self, _: Option<Micros>, call: &Call) -> Result<Admission, GatesError> {
        self.ask(|gates, now| gates.admit_now(Some(now), call)).await?
    }
    async fn settle(
        &self,
        _: Option<Micros>,
        permit: &Permit,
        outcome: &Outcome,
    ) -> Result<Settled, GatesError> {
        self.ask(|gates, now| gates.settle_now(Some(now), permit, outcome)).await?
    }
    async fn renew(&self, _: Option<Micros>, permit: &Permit) -> Result<Renewal, GatesError> {
        self.ask(|gates, now| gates.renew_now(Some(now), permit)).await?
    }
    async fn cancel_wait(
        &self,
        _: Option<Micros>,
        target: &Target,
        holder: &Holder,
    ) -> Result<Freed, GatesError> {
        self.ask(|gates, now| gates.cancel_wait_now(Some(now), target, holder)).await?
    }
    async fn expire(&self, _: Option<Micros>, domain: &str) -> Result<Freed, GatesError> {
        self.reached().await?.expire_now(Some(self.now()), domain)
    }
    fn clock(&self) -> Micros {
        self.now()
    }
    fn generation(&self) -> u64 {
        self.server.generation.load(Ordering::SeqCst)
    }
    fn turn(&self, holder: &Holder) -> Turn {
        self.server.gates.lock().unwrap().turn(holder)
    }
}

impl Shaky {
    /// The server's gates, if all partitions can be reached.
    async fn reached(&self) -> Result<Arc<InProcess>, GatesError> {
        for _ in 0..self.server.partitions.load(Ordering::SeqCst) {
            self.ask(|_, _| ()).await?;
        }
        Ok(self.server.gates.lock().unwrap().clone())
    }
}

#[async_trait]
impl GateOperations for Shaky {
    async fn configure(&self, domain: &str, set: GateSet) -> Result<(), GatesError> {
        self.server.sets.lock().unwrap().insert(domain.into(), set.clone());
        self.ask(|gates, _| gates.configure_now(domain, set)).await?
    }
    async fn inspect(&self, _: Option<Micros>, d: &str, most: usize) -> Result<Vec<ScopeView>, GatesError> {
        self.reached().await?.inspect(Some(self.now()), d, most).await
    }
    async fn holders(&self, domain: &str, most: usize) -> Result<Vec<HolderView>, GatesError> {
        // Beats look at the registry, which is one partition.
        self.ask(|gates, _| gates.clone()).await?.holders(domain, most).await
    }
    async fn waiters(&self, domain: &str, most: usize) -> Result<Vec<WaiterView>, GatesError> {
        self.reached().await?.waiters(domain, most).await
    }
    async fn force_release(
        &self,
        _: Option<Micros>,
        domain: &str,
        holder: &Holder,
        dry_run: bool,
        note: Note,
    ) -> Result<Released, GatesError> {
        self.reached().await?.force_release(Some(self.now()), domain, holder, dry_run, note).await
    }
    async fn promote(
        &self,
        _: Option<Micros>,
        d: &str,
        holder: &Holder,
        n: Note,
    ) -> Result<bool, GatesError> {
        self.reached().await?.promote(Some(self.now()), d, holder, n).await
    }
    async fn order_breaker(
        &self,
        _: Option<Micros>,
        domain: &str,
        which: (&str, Option<&str>),
        order: BreakerOrder,
        note: Note,
    ) -> Result<u32, GatesError> {
        self.reached().await?.order_breaker(Some(self.now()), domain, which, order, note).await
    }
    async fn switch(
        &self,
        d: &str,
        gate: Option<&str>,
        off: bool,
        n: Note,
    ) -> Result<Vec<Switch>, GatesError> {
        self.reached().await?.switch(d, gate, off, n).await
    }
    async fn orders(&self, domain: &str) -> Result<Vec<Order>, GatesError> {
        self.reached().await?.orders(domain).await
    }
    fn heard(&self, domain: &str) -> Arc<Said> {
        self.server.gates.lock().unwrap().heard(domain)
    }
    async fn changes(&self, domain: &str) -> Result<Vec<Change>, GatesError> {
        self.reached().await?.changes(domain).await
    }
    async fn switches(&self, domain: &str) -> Result<Vec<Switch>, GatesError> {
        self.reached().await?.switches(domain).await
    }
    async fn usage(&self) -> Result<Vec<DomainUsage>, GatesError> {
        self.reached().await?.usage().await
    }
    async fn clear(&self, domain: &str, dry_run: bool, note: Note) -> Result<DomainUsage, GatesError> {
        self.reached().await?.clear(domain, dry_run, note).await
    }
}

pub(crate) struct Fleet {
    pub(crate) server: Arc<Server>,
    pub(crate) links: Vec<Shaky>,
    pub(crate) members: Vec<Arc<Fallback<Shaky>>>,
}

pub(crate) async fn fleet(size: usize, set: GateSet) -> Fleet {
    let server = Server::new();
    let (mut links, mut members) = (vec![], vec![]);
    for _ in 0..size {
        let link = server.connect();
        let member = Fallback::around(link.clone(), FallbackOptions::default()).await.unwrap();
        member.configure("d", set.clone()).await.unwrap();
        links.push(link);
        members.push(Arc::new(member));
    }
    // Everybody has counted everybody, and is no newcomer.
    sleep(Duration::from_secs(3)).await;
    for member in &members {
        assert_eq!(member.health().processes as usize, size);
        assert!(member.health().is_normal());
    }
    Fleet { server, links, members }
}

impl Fleet {
    pub(crate) async fn all_are(&self, state: BackendState) {
        for member in &self.members {
            let mut health = member.watch();
            let seen = timeout(Duration::from_mins(1), health.wait_for(|h| h.state == state)).await;
            assert!(seen.is_ok(), "{:?} is not {state:?}", member.health());
        }
    }

    pub(crate) async fn all_are_normal(&self) {
        for member in &self.members {
            member.watch().wait_for(tidegate_gates::Health::is_normal).await.unwrap();
        }
    }
}
