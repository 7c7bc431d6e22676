//! Gates that processes share through Postgres: one row per partition holds the state, locked and run through the same
//! core as in process.
//!
//! - One transaction of two round trips does all operations of a partition that wait in this process: what comes while
//!   the lock or an answer is waited for goes along, or into the next one. So a hot key costs a commit per batch.
//! - Time is the server's clock, read after the lock was taken, unless `now` is given.
//! - A commit that wakes somebody says so (`NOTIFY`, one channel per schema); every process listens. Whoever hears nothing
//!   asks at the time it was told.
//! - Connections are made again by themselves. An operation is tried again until its patience is over; whether a commit
//!   that was not answered was done is read from the row, so nothing is done twice.
//! - Settings are shared: those given last, by whatever process, are in force for all, from the next transaction on.
//! - A partition that was lost (emptied tables, damaged state) starts without credit. One that nobody has ever used starts full.
//! - What is answered is on the server's disk.

mod domains;
mod ear;
mod janitor;
mod job;
mod lanes;
mod link;
mod noticeboard;
mod operations;
mod options;
mod schema;
mod state;
mod statements;
mod worker;

use std::hash::{BuildHasher as _, RandomState};
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use async_trait::async_trait;
use tidegate_core::gates::{
    Admission, Call, Compiled, Freed, Holder, Micros, Outcome, Partition, Permit, Renewal, Settled, Target,
};
use tidegate_pg::Address;
use tokio::task::JoinHandle;

use domains::{Domains, Known, unknown};
use job::{Answer, Failed, Wakes, job};
use lanes::{LaneKey, Lanes};
use link::Link;
pub use options::PgGatesOptions;

use crate::{Gates, GatesError, Turn, Turns};

/// How often an operation looks for its partition again, when settings change under it.
const MOVES: usize = 8;
/// Partitions of a domain that are worked on at the same time.
const PAGE: i64 = 200;

/// What the tasks of a backend share.
pub(crate) struct Shared {
    address: Address,
    options: PgGatesOptions,
    domains: Domains,
    lanes: Lanes,
    turns: Turns,
    channel: String,
    /// Names this backend in notifications.
    speaker: String,
    listening: tokio::sync::watch::Sender<bool>,
    random: RandomState,
    transactions: AtomicU64,
    started: Instant,
    /// The server's clock when this backend started, as far as it knows.
    epoch: AtomicI64,
    /// A connection for what is not an operation on a partition.
    desk: Mutex<Option<Link>>,
}

impl Shared {
    /// A number for a transaction that no other has, in all likelihood; never 0.
    fn new_mark(&self) -> i64 {
        let count = self.transactions.fetch_add(1, Ordering::Relaxed);
        (self.random.hash_one(count) as i64) | 1
    }

    fn set_clock(&self, server: Micros) {
        let elapsed = self.started.elapsed().as_micros() as Micros;
        self.epoch.store(server - elapsed, Ordering::Relaxed);
    }

    fn clock(&self) -> Micros {
        self.epoch.load(Ordering::Relaxed) + self.started.elapsed().as_micros() as Micros
    }

    /// The connection for what is not an operation on a partition. To be given back unless something failed.
    async fn desk(&self) -> Result<Link, GatesError> {
        let at_hand = self.desk.lock().unwrap_or_else(PoisonError::into_inner).take();
        match at_hand.filter(|link| !link.is_closed()) {
            Some(link) => Ok(link),
            None => Link::open(&self.address, &self.options).await,
        }
    }

    fn give_back(&self, link: Link) {
        *self.desk.lock().unwrap_or_else(PoisonError::into_inner) = Some(link);
    }

    async fn known(&self, domain: &str) -> Result<Arc<Known>, GatesError> {
        if let Some(known) = self.domains.get(domain) {
            return Ok(known);
        }
        let link = self.desk().await?;
        let known = self.domains.load(&link, domain).await?;
        self.give_back(link);
        known.ok_or_else(|| unknown(domain))
    }
}

/// The gates of one process, shared with others through a database.
pub struct PgGates {
    shared: Arc<Shared>,
    tasks: Vec<JoinHandle<()>>,
}

impl std::fmt::Debug for PgGates {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("PgGates").field("schema", &self.shared.options.schema.name()).finish_non_exhaustive()
    }
}

impl Drop for PgGates {
    fn drop(&mut self) {
        self.tasks.iter().for_each(JoinHandle::abort);
    }
}

impl PgGates {
    /// Connects, and makes the tables where they are missing. The URL is the store's: `schema`, `pooled`, `sslmode` and
    /// `sslrootcert` are understood.
    pub async fn connect(url: &str, options: PgGatesOptions) -> Result<Self, GatesError> {
        let (address, options) = options.reach(url)?;
        schema::ensure(&address, &options).await?;
        let random = RandomState::new();
        let shared = Arc::new(Shared {
            domains: Domains::default(),
            lanes: Lanes::new(),
            turns: Turns::default(),
            channel: options.channel(),
            speaker: format!("{:016x}", random.hash_one(0xe11a)),
            listening: tokio::sync::watch::Sender::new(false),
            random,
            transactions: AtomicU64::new(1),
            started: Instant::now(),
            epoch: AtomicI64::new(0),
            desk: Mutex::default(),
            address,
            options,
        });
        let link = shared.desk().await?;
        shared.set_clock(domains::column(&link.one(statements::DOMAINS_CLOCK, &[]).await?, 0)?);
        shared.give_back(link);
        let mut tasks: Vec<_> =
            (0..shared.options.connections).map(|_| tokio::spawn(worker::work(shared.clone()))).collect();
        if !shared.options.pooled {
            tasks.push(tokio::spawn(ear::listen(shared.clone())));
        }
        tasks.push(tokio::spawn(janitor::keep(shared.clone())));
        Ok(Self { shared, tasks })
    }

    /// Those who wait in this process.
    pub fn turns(&self) -> &Turns {
        &self.shared.turns
    }

    /// Waits until this process hears what others say. Without it the first wake-ups may be missed, which costs the
    /// time until they ask again. Never, behind a pooler.
    pub async fn listening(&self) {
        let mut listening = self.shared.listening.subscribe();
        let _ = listening.wait_for(|yes| *yes).await;
    }

    /// Waits until this process has lost the connection that it listens on.
    pub async fn deaf(&self) {
        let mut listening = self.shared.listening.subscribe();
        let _ = listening.wait_for(|yes| !yes).await;
    }

    /// Forgets partitions that nobody has used for so long and that have nothing to remember; how many. Done by itself
    /// every few minutes.
    pub async fn forget_unused(&self, unused: Duration) -> Result<u32, GatesError> {
        janitor::sweep(&self.shared, unused).await
    }

    fn push<R, F>(&self, key: LaneKey, now: Option<Micros>, act: F) -> Answer<R>
    where
        R: Wakes + 'static,
        F: FnMut(&Compiled, &mut Partition, Micros) -> R + Send + 'static,
    {
        let (job, answer) = job(now, act);
        if let Err(job) = self.shared.lanes.push(key, job) {
            let why = "too many operations wait for the database";
            job.fail(Failed::Error(GatesError::Unreachable(why.into())));
        }
        answer
    }

    async fn answer<R>(&self, answer: Answer<R>) -> Result<R, Failed> {
        match tokio::time::timeout(self.shared.options.patience, answer).await {
            Ok(Ok(reply)) => reply,
            Ok(Err(ended)) => Err(Failed::Error(GatesError::Unreachable(Box::new(ended)))),
            Err(late) => Err(Failed::Error(GatesError::Unreachable(Box::new(late)))),
        }
    }

    /// Runs `act` on the partition of a target.
    async fn at<R, F>(&self, now: Option<Micros>, target: &Target, act: F) -> Result<R, GatesError>
    where
        R: Wakes + 'static,
        F: FnMut(&Compiled, &mut Partition, Micros) -> R + Clone + Send + 'static,
    {
        for _ in 0..MOVES {
            let key = self.shared.known(target.domain()).await?.lane(target);
            let answer = self.push(key, now, act.clone());
            match self.answer(answer).await {
                Ok(reply) => return Ok(reply),
                Err(Failed::Moved) => {}
                Err(Failed::Error(error)) => return Err(error),
            }
        }
        Err(GatesError::Unreachable("the settings change all the time".into()))
    }

    /// Runs `act` on every partition of a domain, or (`due`) on those where something has lapsed by then.
    async fn each<R, F>(
        &self,
        now: Option<Micros>,
        domain: &str,
        due: Option<Micros>,
        act: F,
    ) -> Result<Vec<R>, GatesError>
    where
        R: Wakes + 'static,
        F: FnMut(&Compiled, &mut Partition, Micros) -> R + Clone + Send + 'static,
    {
        for _ in 0..MOVES {
            match self.each_once(now, domain, due, act.clone()).await {
                Ok(all) => return Ok(all),
                Err(Failed::Moved) => {}
                Err(Failed::Error(error)) => return Err(error),
            }
        }
        Err(GatesError::Unreachable("the settings change all the time".into()))
    }

    async fn each_once<R, F>(
        &self,
        now: Option<Micros>,
        domain: &str,
        due: Option<Micros>,
        act: F,
    ) -> Result<Vec<R>, Failed>
    where
        R: Wakes + 'static,
        F: FnMut(&Compiled, &mut Partition, Micros) -> R + Clone + Send + 'static,
    {
        let known = self.shared.known(domain).await.map_err(Failed::Error)?;
        let mut all = Vec::new();
        // A domain that is not split is one partition, whether it is there yet or not.
        if !known.set.is_split() {
            let answer = self.push(known.lane_of(domain, ""), now, act);
            all.push(self.answer(answer).await?);
            return Ok(all);
        }
        let mut after = None;
        loop {
            let parts = self.page(domain, after.as_deref(), due).await.map_err(Failed::Error)?;
            let asked: Vec<Answer<R>> =
                parts.iter().map(|part| self.push(known.lane_of(domain, part), now, act.clone())).collect();
            for answer in asked {
                all.push(self.answer(answer).await?);
            }
            match parts.into_iter().last() {
                Some(last) => after = Some(last),
                None => return Ok(all),
            }
        }
    }

    async fn page(
        &self,
        domain: &str,
        after: Option<&str>,
        due: Option<Micros>,
    ) -> Result<Vec<String>, GatesError> {
        let link = self.shared.desk().await?;
        let rows = link.query(statements::PARTITIONS_PAGE, &[&domain, &after, &PAGE, &due]).await?;
        self.shared.give_back(link);
        rows.iter().map(|row| domains::column(row, 0)).collect()
    }
}

#[async_trait]
impl Gates for PgGates {
    async fn admit(&self, now: Option<Micros>, call: &Call) -> Result<Admission, GatesError> {
        let call = Arc::new(call.clone());
        let target = call.target.clone();
        self.at(now, &target, move |set, state, now| state.admit(set, now, &call)).await
    }

    async fn settle(
        &self,
        now: Option<Micros>,
        permit: &Permit,
        outcome: &Outcome,
    ) -> Result<Settled, GatesError> {
        let (held, outcome) = (permit.clone(), outcome.clone());
        self.at(now, &permit.target, move |set, state, now| state.settle(set, now, &held, &outcome)).await
    }

    async fn renew(&self, now: Option<Micros>, permit: &Permit) -> Result<Renewal, GatesError> {
        let held = permit.clone();
        self.at(now, &permit.target, move |_, state, now| state.renew(now, &held)).await
    }

    async fn cancel_wait(
        &self,
        now: Option<Micros>,
        target: &Target,
        holder: &Holder,
    ) -> Result<Freed, GatesError> {
        let holder = *holder;
        self.at(now, target, move |set, state, now| state.cancel_wait(set, now, &holder)).await
    }

    async fn expire(&self, now: Option<Micros>, domain: &str) -> Result<Freed, GatesError> {
        // A time that is given is one that partitions have not seen: all are told. By the clock, only those with something due.
        let due = if now.is_none() { Some(self.shared.clock()) } else { None };
        let parts = self.each(now, domain, due, |set, state, now| state.expire(set, now)).await?;
        let mut all = Freed { gone: 0, more: false, woken: Vec::new() };
        for freed in parts {
            all.gone += freed.gone;
            all.more |= freed.more;
            all.woken.extend(freed.woken);
        }
        Ok(all)
    }

    fn clock(&self) -> Micros {
        self.shared.clock()
    }

    fn turn(&self, holder: &Holder) -> Turn {
        self.shared.turns.register(holder)
    }
}
