//! A schema of its own for every test, and two backends used in turn.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use async_trait::async_trait;
use tidegate_core::gates::{
    Admission, BreakerOrder, Call, Freed, GateSet, Holder, HolderView, Micros, Outcome, Permit, Renewal,
    ScopeView, Settled, Target, WaiterView,
};
use tidegate_gates::{
    Change, DomainUsage, GateOperations, Gates, GatesError, Note, Order, PgGates, PgGatesOptions, Released,
    Switch, Turn,
};
use tidegate_testbed::postgres;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::{JoinHandle, JoinSet};
use tokio_postgres::{Client, NoTls};

pub(crate) fn count(name: &str, default: u64) -> u64 {
    std::env::var(name).ok().and_then(|v| v.parse().ok()).unwrap_or(default)
}

pub(crate) fn note() -> Note {
    Note { who: "ana".into(), why: "test".into() }
}

pub(crate) fn call(n: u64) -> Call {
    Call::new(Arc::new(Target::new("d").expect("a name")), Holder::number(n))
}

pub(crate) fn permit(reply: Admission) -> Permit {
    match reply {
        Admission::Admitted(a) => a.permit,
        other => panic!("{other:?}"),
    }
}

/// A schema.
pub(crate) struct Fixture {
    url: String,
    schema: String,
}

impl Fixture {
    pub(crate) async fn new() -> Self {
        let url = postgres::url();
        let db = Self { url, schema: String::new() };
        let random = db
            .sql()
            .await
            .query_one("SELECT md5(random()::text)", &[])
            .await
            .expect("the database does as it is told");
        let schema = format!("gates_{}", &random.get::<_, String>(0)[..12]);
        Self { schema, ..db }
    }

    pub(crate) fn schema(&self) -> &str {
        &self.schema
    }

    pub(crate) async fn connect(&self, options: PgGatesOptions) -> PgGates {
        PgGates::connect(&self.url, options.schema(&self.schema).expect("the database does as it is told"))
            .await
            .expect("the database does as it is told")
    }

    /// A connection of the test's own.
    pub(crate) async fn sql(&self) -> Client {
        let (client, connection) =
            tokio_postgres::connect(&self.url, NoTls).await.expect("the database does as it is told");
        tokio::spawn(connection);
        client
    }

    /// Runs a statement that is written for the schema `tidegate`.
    pub(crate) async fn run(&self, text: &str) {
        let text = text.replace("tidegate.", &format!("\"{}\".", self.schema));
        self.sql().await.batch_execute(&text).await.expect("the database does as it is told");
    }

    /// Ends all sessions of this name; how many.
    pub(crate) async fn end_sessions(&self, name: &str) -> i64 {
        let text =
            "SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity WHERE application_name = $1";
        self.sql().await.query_one(text, &[&name]).await.expect("the database does as it is told").get(0)
    }

    pub(crate) async fn end(self) {
        let text = format!("DROP SCHEMA IF EXISTS \"{}\" CASCADE", self.schema);
        self.sql().await.batch_execute(&text).await.expect("the database does as it is told");
    }
}

/// A wire to the database that is cut at commits: in turn before the server has heard of it, and after it is done but
/// before its answer has come.
pub(crate) struct Wire {
    pub(crate) url: String,
    pub(crate) cuts: Arc<[AtomicU64; 2]>,
    /// Commits that go through between two cuts; none is cut while this is 0.
    pub(crate) every: Arc<AtomicU64>,
    accepts: JoinHandle<()>,
}

impl Drop for Wire {
    fn drop(&mut self) {
        self.accepts.abort();
    }
}

impl Wire {
    pub(crate) async fn new(db: &Fixture) -> Self {
        let to: tokio_postgres::Config = db.url.parse().expect("a URL");
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let own = listener.local_addr().expect("a port").port();
        let (user, name) = (to.get_user().expect("a user"), to.get_dbname().expect("a database"));
        let url = format!("postgres://{user}@127.0.0.1:{own}/{name}?sslmode=disable&schema={}", db.schema);
        let port = to.get_ports()[0];
        let (cuts, every) = (Arc::<[AtomicU64; 2]>::default(), Arc::<AtomicU64>::default());
        let (counted, spared, commits) = (cuts.clone(), every.clone(), Arc::<AtomicU64>::default());
        let accepts = tokio::spawn(async move {
            let mut wires = JoinSet::new();
            while let Ok((near, _)) = listener.accept().await {
                let far = TcpStream::connect(("127.0.0.1", port)).await.expect("the server");
                wires.spawn(carry(near, far, counted.clone(), spared.clone(), commits.clone()));
            }
        });
        Self { url, cuts, every, accepts }
    }
}

async fn carry(
    mut near: TcpStream,
    mut far: TcpStream,
    cuts: Arc<[AtomicU64; 2]>,
    every: Arc<AtomicU64>,
    commits: Arc<AtomicU64>,
) -> std::io::Result<()> {
    const COMMIT: &[u8] = b"COMMIT\0";
    let has = |bytes: &[u8]| bytes.windows(COMMIT.len()).any(|w| w == COMMIT);
    let (mut there, mut back) = (vec![0; 65_536], vec![0; 65_536]);
    loop {
        tokio::select! {
            read = near.read(&mut there) => {
                let read = read?;
                let every = every.load(Ordering::SeqCst);
                let cut = if every > 0 && has(&there[..read]) {
                    let n = commits.fetch_add(1, Ordering::SeqCst);
                    n.is_multiple_of(every).then_some(n / every % 2)
                } else {
                    None
                };
                if read == 0 || cut == Some(0) {
                    cuts[0].fetch_add(u64::from(read > 0), Ordering::SeqCst);
                    return Ok(());
                }
                far.write_all(&there[..read]).await?;
                if cut == Some(1) {
                    let mut heard = Vec::new();
                    while !has(&heard) && far.read_buf(&mut heard).await? > 0 {}
                    cuts[1].fetch_add(1, Ordering::SeqCst);
                    return Ok(());
                }
            }
            read = far.read(&mut back) => {
                let read = read?;
                if read == 0 {
                    return Ok(());
                }
                near.write_all(&back[..read]).await?;
            }
        }
    }
}

/// Two backends: every operation goes to the other one than the last.
#[derive(Debug)]
pub(crate) struct Alternating {
    both: [PgGates; 2],
    turn: AtomicU64,
}

impl Alternating {
    pub(crate) fn new(one: PgGates, two: PgGates) -> Self {
        Self { both: [one, two], turn: AtomicU64::new(0) }
    }

    pub(crate) fn turns_taken(&self) -> u64 {
        self.turn.load(Ordering::Relaxed)
    }

    fn next(&self) -> &PgGates {
        &self.both[self.turn.fetch_add(1, Ordering::Relaxed) as usize % 2]
    }
}

#[async_trait]
impl Gates for Alternating {
    async fn admit(&self, now: Option<Micros>, call: &Call) -> Result<Admission, GatesError> {
        self.next().admit(now, call).await
    }
    async fn settle(
        &self,
        now: Option<Micros>,
        permit: &Permit,
        outcome: &Outcome,
    ) -> Result<Settled, GatesError> {
        self.next().settle(now, permit, outcome).await
    }
    async fn renew(&self, now: Option<Micros>, permit: &Permit) -> Result<Renewal, GatesError> {
        self.next().renew(now, permit).await
    }
    async fn cancel_wait(
        &self,
        now: Option<Micros>,
        target: &Target,
        holder: &Holder,
    ) -> Result<Freed, GatesError> {
        self.next().cancel_wait(now, target, holder).await
    }
    async fn expire(&self, now: Option<Micros>, domain: &str) -> Result<Freed, GatesError> {
        self.next().expire(now, domain).await
    }
    fn clock(&self) -> Micros {
        self.both[0].clock()
    }
    fn turn(&self, holder: &Holder) -> Turn {
        self.both[0].turn(holder)
    }
}

#[async_trait]
impl GateOperations for Alternating {
    async fn configure(&self, domain: &str, set: GateSet) -> Result<(), GatesError> {
        self.next().configure(domain, set).await
    }
    async fn inspect(
        &self,
        now: Option<Micros>,
        domain: &str,
        most: usize,
    ) -> Result<Vec<ScopeView>, GatesError> {
        self.next().inspect(now, domain, most).await
    }
    async fn holders(&self, domain: &str, most: usize) -> Result<Vec<HolderView>, GatesError> {
        self.next().holders(domain, most).await
    }
    async fn waiters(&self, domain: &str, most: usize) -> Result<Vec<WaiterView>, GatesError> {
        self.next().waiters(domain, most).await
    }
    async fn force_release(
        &self,
        now: Option<Micros>,
        domain: &str,
        holder: &Holder,
        dry_run: bool,
        note: Note,
    ) -> Result<Released, GatesError> {
        self.next().force_release(now, domain, holder, dry_run, note).await
    }
    async fn promote(
        &self,
        now: Option<Micros>,
        domain: &str,
        holder: &Holder,
        note: Note,
    ) -> Result<bool, GatesError> {
        self.next().promote(now, domain, holder, note).await
    }
    async fn order_breaker(
        &self,
        now: Option<Micros>,
        domain: &str,
        breaker: (&str, Option<&str>),
        order: BreakerOrder,
        note: Note,
    ) -> Result<u32, GatesError> {
        self.next().order_breaker(now, domain, breaker, order, note).await
    }
    async fn switch(
        &self,
        domain: &str,
        gate: Option<&str>,
        off: bool,
        note: Note,
    ) -> Result<Vec<Switch>, GatesError> {
        self.next().switch(domain, gate, off, note).await
    }
    async fn switches(&self, domain: &str) -> Result<Vec<Switch>, GatesError> {
        self.next().switches(domain).await
    }
    async fn orders(&self, domain: &str) -> Result<Vec<Order>, GatesError> {
        self.next().orders(domain).await
    }
    async fn changes(&self, domain: &str) -> Result<Vec<Change>, GatesError> {
        self.next().changes(domain).await
    }
    async fn usage(&self) -> Result<Vec<DomainUsage>, GatesError> {
        self.next().usage().await
    }
    async fn clear(&self, domain: &str, dry_run: bool, note: Note) -> Result<DomainUsage, GatesError> {
        self.next().clear(domain, dry_run, note).await
    }
}
