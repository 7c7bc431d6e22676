//! One process of many that call through shared gates: `caller GATES DIR NAME PLAN`.
//!
//! GATES: `process`, a Redis or Postgres URL, or `fallback+` or `watched+` and a URL. PLAN: `over`, `outage`, `slots`, `budget`: calls
//! until it is killed, or told to end; `budget` forgets to settle some; `die:STEP`: kills itself at a step of the protocol.
//! Everything it does is written down for the referee.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

use anyhow::{Result, bail};
use rustix::process::{Signal, getpid, kill_process};
use tidegate_core::gates::{
    Admission, Call, End, Failure, Holder, LeaseEnd, Outcome, Part, Permit, Points, Renewal, Target,
};
use tidegate_core::seed::Seed;
use tidegate_gates::{
    Fallback, FallbackOptions, InProcess, Noticeboard, PgGates, PgGatesOptions, RedisGates, RedisOptions,
    Watched, admitted,
};
use tidegate_ordeal::gates::log::{Log, Seen, now};
use tidegate_ordeal::gates::worlds;
use tokio::signal::unix::{SignalKind, signal};

/// What is taken off the end of a lease, against clocks that are read one after the other.
const MARGIN: i64 = 5_000;
/// One of so many calls of `budget` is not settled. Prime: numbers are not given out one by one.
const FORGETS: i64 = 19;
/// Steps at which `die` ends.
const STEPS: u32 = 9;

#[tokio::main]
async fn main() -> Result<()> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let [gates, dir, name, plan] = args.as_slice() else { bail!("usage: caller GATES DIR NAME PLAN") };
    match gates.split_once("://").map_or(gates.as_str(), |(scheme, _)| scheme) {
        "process" => run(InProcess::new(), dir, name, plan).await,
        "redis" => run(RedisGates::connect(gates, RedisOptions::default()).await?, dir, name, plan).await,
        "watched+redis" => {
            let url = gates.replacen("watched+", "", 1);
            let backend = RedisGates::connect(&url, RedisOptions::default()).await?;
            run(Watched::around(backend), dir, name, plan).await
        }
        "fallback+redis" => {
            let url = gates.replacen("fallback+", "", 1);
            let backend = RedisGates::connect(&url, RedisOptions::default()).await?;
            let fallback = Fallback::around(backend, FallbackOptions::default()).await?;
            let (log, mut health) = (Log::open(Path::new(dir), name)?, fallback.watch());
            let telling = tokio::spawn(async move {
                let mut normal = None;
                loop {
                    let is = health.borrow_and_update().is_normal();
                    if normal.replace(is) != Some(is) && log.health(is).is_err() {
                        return;
                    }
                    if health.changed().await.is_err() {
                        return;
                    }
                }
            });
            let ran = run(fallback, dir, name, plan).await;
            telling.abort();
            ran
        }
        _ => {
            let options = PgGatesOptions::default();
            run(PgGates::connect(gates, options).await?, dir, name, plan).await
        }
    }
}

/// What a process shares between its tasks.
struct Caller<G> {
    gates: G,
    log: Log,
    name: String,
    next: AtomicI64,
    process: u64,
}

async fn run<G: Noticeboard + 'static>(gates: G, dir: &str, name: &str, plan: &str) -> Result<()> {
    let dir = Path::new(dir);
    let wanted: &[usize] = match plan {
        "over" => &[0, 1],
        "outage" => &[2],
        "slots" => &[3],
        "budget" => &[4],
        _ => &[0],
    };
    for domain in wanted {
        gates.configure(worlds::DOMAINS[*domain], worlds::set(*domain)).await?;
    }
    let pid = u64::try_from(getpid().as_raw_nonzero().get())?;
    let caller = Arc::new(Caller {
        gates,
        log: Log::open(dir, name)?,
        name: format!("{name}.{pid}"),
        next: AtomicI64::new(pid as i64 * 10_000_000),
        process: pid,
    });
    if let Some(step) = plan.strip_prefix("die:") {
        return die_at(caller, step.parse()?).await;
    }
    let tasks: u64 = std::env::var("TIDEGATE_TASKS").ok().map_or(Ok(50), |n| n.parse())?;
    let mut running = tokio::task::JoinSet::new();
    for task in 0..tasks {
        let (caller, domains) = (caller.clone(), wanted.to_vec());
        let mut random = Seed::new(pid << 16 | task);
        running.spawn(async move {
            loop {
                let domain = domains[random.below(domains.len() as u64) as usize];
                caller.call(domain, &mut random).await?;
            }
        });
    }
    let mut told = signal(SignalKind::terminate())?;
    tokio::select! {
        ended = running.join_next() => match ended {
            Some(ended) => ended?,
            None => bail!("there are no tasks"),
        },
        // Its calls end where they are; what was noted about them is not lost.
        _ = told.recv() => {
            running.shutdown().await;
            caller.gates.flush().await;
            Ok(())
        }
    }
}

impl<G: Noticeboard> Caller<G> {
    /// A call of a domain, as random wants it, and how long it takes in microseconds.
    fn pick(&self, domain: usize, random: &mut Seed) -> Result<(Call, Seen, u64)> {
        let (tenant, account) = (random.below(5) as i64, random.below(6) as i64);
        let bulk = matches!(domain, 0 | 2) && random.below(10) == 0;
        let subject = now() / 1_000_000;
        let mut target = Target::new(worlds::DOMAINS[domain])?
            .with(Part::Tenant, &format!("t{tenant}"))?
            .with(Part::Account, &format!("a{account}"))?
            .with(Part::Subject, &format!("e{subject}"))?;
        if bulk {
            target = target.with(Part::Endpoint, "bulk")?;
        }
        let cost = if domain == 0 { 500 + 250 * random.below(9) as i64 } else { 1_000 };
        let lasts = match domain {
            0 if random.below(100) == 0 => 1_300_000,
            2 if bulk && random.below(20) == 0 => 5_000_000,
            2 => 20_000 + random.below(80_000),
            3 => 150_000 + random.below(100_000),
            4 => 1_000,
            _ => 5_000 + random.below(35_000),
        };
        let holder = format!("{}-{}", self.name, self.next.fetch_add(1, Ordering::Relaxed));
        let mut call = Call::new(Arc::new(target), Holder::new(holder)?).cost(Points(cost));
        call.lease = if domain == 2 { 3_000_000 } else { 1_000_000 };
        call.process = self.process;
        let account = if domain == 1 { subject } else { account };
        let domain = domain as i64;
        let (admitted, start, end, leased, failed) = (0, 0, None, 0, None);
        Ok((call, Seen { domain, tenant, account, bulk, cost, admitted, start, end, leased, failed }, lasts))
    }

    /// Waits for an admission, and starts while its permit may be used.
    async fn enter(&self, mut call: Call, seen: &mut Seen) -> Result<Option<Permit>> {
        loop {
            let permit = match admitted(&self.gates, call.clone()).await {
                Ok(Admission::Admitted(admitted)) => admitted.permit,
                Ok(_) => return Ok(None),
                Err(_) => {
                    self.log.error()?;
                    tokio::time::sleep(Duration::from_millis(20)).await;
                    return Ok(None);
                }
            };
            seen.start = now();
            let clock = self.gates.clock();
            if clock <= permit.use_by {
                seen.admitted = permit.admitted_at;
                seen.leased = seen.start + (permit.expires_at - clock) - MARGIN;
                return Ok(Some(permit));
            }
            call.ask += 1;
        }
    }

    async fn call(&self, domain: usize, random: &mut Seed) -> Result<()> {
        let (call, mut seen, lasts) = self.pick(domain, random)?;
        let lease = call.lease;
        let Some(permit) = self.enter(call, &mut seen).await? else { return Ok(()) };
        let number = self.next.fetch_add(1, Ordering::Relaxed);
        self.log.start(number, &seen)?;
        self.work(number, &permit, (seen, lease), lasts as i64).await?;
        if domain == 4 && number % FORGETS == 0 {
            return Ok(());
        }
        let end = if domain == 1 { End::Failed(Failure::Server) } else { End::Ok };
        self.log.end(number, now())?;
        match self.gates.settle(None, &permit, &Outcome::of(end)).await {
            Err(_) => self.log.error()?,
            // What had lapsed before is no failure that the gates have heard of.
            Ok(settled) if domain == 1 && settled.state != LeaseEnd::Gone => {
                self.log.failed(number, now())?;
            }
            Ok(_) => {}
        }
        Ok(())
    }

    /// Works for so long, renewing the permit; stops when that cannot be done.
    async fn work(&self, number: i64, permit: &Permit, (seen, lease): (Seen, i64), lasts: i64) -> Result<()> {
        let (mut leased, over) = (seen.leased, seen.start + lasts);
        loop {
            let next = (leased - lease * 2 / 3).max(now() + lease / 20);
            let until = over.min(next).min(leased);
            tokio::time::sleep(Duration::from_micros((until - now()).max(0) as u64)).await;
            let at = now();
            if at >= over || at >= leased {
                return Ok(());
            }
            let renewing = self.gates.renew(None, permit);
            let left = Duration::from_micros((leased - at) as u64);
            let Ok(renewed) = tokio::time::timeout(left, renewing).await else { return Ok(()) };
            match renewed {
                Ok(Renewal::Renewed { expires_at }) => {
                    leased = leased.max(now() + (expires_at - self.gates.clock()) - MARGIN);
                    self.log.renewed(number, leased)?;
                }
                Ok(Renewal::Gone) => return Ok(()),
                Err(_) => self.log.error()?,
            }
        }
    }
}

/// Ends this process as a crash does.
fn die() -> ! {
    let _ = kill_process(getpid(), Signal::KILL);
    unreachable!("dead")
}

/// Sends what `asking` sends, and dies before the answer can be used.
async fn die_asking<F: Future + Send + 'static>(asking: F)
where
    F::Output: Send,
{
    let sent = tokio::spawn(asking);
    // On some runs the answer has come by then, on others not: both are steps of the protocol.
    tokio::task::yield_now().await;
    tokio::time::sleep(Duration::from_micros(u64::from(std::process::id() % 700))).await;
    drop(sent);
    die()
}

/// Goes through the protocol with a slot, a lock and a place in line, and dies at this step.
async fn die_at<G: Noticeboard + 'static>(caller: Arc<Caller<G>>, step: u32) -> Result<()> {
    let lease = 400_000;
    let target = Target::new("shop")?.with(Part::Tenant, &format!("t{step}"))?;
    let bulk = Arc::new(target.with(Part::Account, &format!("a{step}"))?.with(Part::Endpoint, "bulk")?);
    let call = move |n: u32| -> Result<Call> {
        let mut call = Call::new(bulk.clone(), Holder::new(format!("{}-{n}", caller_name(n)))?);
        call.lease = lease;
        Ok(call)
    };
    let ask = |call: Call| {
        let caller = caller.clone();
        async move { admitted(&caller.gates, call).await }
    };
    if step == 0 {
        die_asking(ask(call(0)?)).await;
    }
    let Admission::Admitted(got) = ask(call(0)?).await? else { bail!("not admitted") };
    let (permit, other) = (got.permit, call(1)?);
    match step {
        1 => die(),
        // The lock is this process's own: the next one stands in line.
        2 => {
            let reply = caller.gates.admit(None, &other).await?;
            assert!(matches!(reply, Admission::Wait(_)), "{reply:?}");
            die()
        }
        3 => {
            tokio::time::sleep(Duration::from_millis(20)).await;
            die()
        }
        4 => {
            let caller = caller.clone();
            die_asking(async move { caller.gates.renew(None, &permit).await }).await;
        }
        5 => {
            caller.gates.renew(None, &permit).await?;
            die()
        }
        6 => {
            let caller = caller.clone();
            die_asking(async move { caller.gates.settle(None, &permit, &Outcome::of(End::Ok)).await }).await;
        }
        7 => {
            caller.gates.settle(None, &permit, &Outcome::of(End::Ok)).await?;
            die()
        }
        8 => {
            caller.gates.admit(None, &other).await?;
            let caller = caller.clone();
            die_asking(async move { caller.gates.cancel_wait(None, &other.target, &other.holder).await })
                .await;
        }
        _ => {}
    }
    bail!("there are {STEPS} steps")
}

fn caller_name(n: u32) -> String {
    format!("v{}.{n}", std::process::id())
}
