//! A flow that fans out and in is worked on by processes that are killed with SIGKILL, again and again, on both stores. Every
//! job of it is completed, none starts before what it waits for has ended, and what is added up along the way is right.

#![expect(clippy::unwrap_used, reason = "helpers of tests fail like tests")]

use std::collections::HashMap;
use std::process::{Child, Command};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use tidegate::store::params::{JobQuery, Recover, Recovered};
use tidegate::{State, Tidegate};
use tidegate_core::ids::JobId;
use tidegate_core::seed::Seed;
use tidegate_ordeal::flow::Shape;
use tidegate_ordeal::{Files, id_of, read};
use tidegate_testbed::postgres::Server;

fn count(name: &str, default: u64) -> u64 {
    std::env::var(name).ok().map_or(default, |n| n.parse().unwrap())
}

/// Processes on one store, each started again when it is killed.
struct Crew {
    store: String,
    dir: tempfile::TempDir,
    shape: Shape,
    members: Vec<Child>,
}

impl Drop for Crew {
    fn drop(&mut self) {
        self.stop();
    }
}

impl Crew {
    fn spawn(&self) -> Child {
        let args = [self.store.as_str(), self.dir.path().to_str().unwrap(), &self.shape.width.to_string()];
        Command::new(env!("CARGO_BIN_EXE_dag")).args(args).spawn().unwrap()
    }

    fn kill(&mut self, member: usize) {
        self.members[member].kill().unwrap();
        self.members[member].wait().unwrap();
        self.members[member] = self.spawn();
    }

    fn stop(&mut self) {
        for mut child in self.members.drain(..) {
            let _ = child.kill();
            let _ = child.wait();
        }
    }

    fn ended(&self) -> usize {
        let runs = read(&Files::under(self.dir.path()).runs).unwrap();
        runs.iter().filter(|words| words[0] == "end").count()
    }
}

/// Works on the flow with that many processes until it is done. Returns how often one was killed.
fn work(crew: &mut Crew, processes: usize, kills: u64, random: &mut Seed) -> u64 {
    crew.members = (0..processes).map(|_| crew.spawn()).collect();
    let (jobs, deadline) = (crew.shape.jobs() as usize, Instant::now() + Duration::from_mins(20));
    let mut killed = 0;
    loop {
        std::thread::sleep(Duration::from_millis(50 + random.below(250)));
        assert!(
            Instant::now() < deadline,
            "{} of {jobs} runs have ended, and it does not go on",
            crew.ended()
        );
        if crew.ended() >= jobs {
            // The last outcome may still be on its way.
            std::thread::sleep(Duration::from_secs(1));
            crew.stop();
            if judge_is_done(crew) {
                return killed;
            }
            crew.members = (0..processes).map(|_| crew.spawn()).collect();
        } else if killed < kills {
            crew.kill(random.below(processes as u64) as usize);
            killed += 1;
        } else if random.one_in(20) {
            // Whoever was buried because it was there at every kill is recovered by an operator.
            crew.stop();
            judge_is_done(crew);
            crew.members = (0..processes).map(|_| crew.spawn()).collect();
        }
    }
}

/// Whether the end of the flow is completed; dead letters are recovered.
fn judge_is_done(crew: &Crew) -> bool {
    let runtime = tokio::runtime::Runtime::new().unwrap();
    runtime.block_on(async {
        let tide = Tidegate::connect(&crew.store).await.unwrap();
        let query = JobQuery { states: vec![State::Dead], limit: 1_000, ..JobQuery::default() };
        let open = |job: &&tidegate::JobView| job.dead.as_ref().is_some_and(|d| d.recovered_as.is_none());
        let page = tide.store().search(query).await.unwrap();
        for job in page.jobs.iter().filter(open) {
            println!("{} is dead: {:?}", job.id, job.dead.as_ref().map(|d| &d.code));
            let new_id = JobId::from_parts(job.id.uuid().as_u128() as u64, 7);
            let reply =
                tide.store().recover(vec![Recover { dead: job.id, new_id }], tide.now()).await.unwrap();
            assert!(matches!(reply[0], Recovered::As(_)));
        }
        let totals = tide.store().totals().await.unwrap();
        tide.close().await.unwrap();
        totals.blocked + totals.ready + totals.running + totals.scheduled == 0
    })
}

fn check(crew: &Crew) {
    let shape = crew.shape;
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let (totals, end) = runtime.block_on(async {
        let tide = Tidegate::connect(&crew.store).await.unwrap();
        let totals = tide.store().totals().await.unwrap();
        let end = tide.job(id_of(shape.end())).await.unwrap().unwrap();
        tide.close().await.unwrap();
        (totals, end)
    });
    assert_eq!(totals.completed, shape.jobs(), "every job is completed, and each once");
    if end.state == State::Completed {
        assert_eq!(end.result.unwrap().as_str(), shape.sum().to_string(), "what was added up along the way");
    }
    // Whole lines in the order in which they were written, by all processes.
    let (mut first_start, mut first_end) = (HashMap::new(), HashMap::new());
    let runs = read(&Files::under(crew.dir.path()).runs).unwrap();
    for (line, words) in runs.iter().enumerate() {
        let number: u64 = words[1].parse().unwrap();
        let seen = if words[0] == "start" { &mut first_start } else { &mut first_end };
        seen.entry(number).or_insert(line);
    }
    for number in 0..shape.jobs() {
        for parent in shape.parents(number) {
            assert!(first_end[&parent] < first_start[&number], "{number} started before {parent} had ended");
        }
    }
}

fn ordeal(store: String, dir: tempfile::TempDir, processes: usize) {
    let shape = Shape { width: count("TIDEGATE_DAG_WIDTH", 40) };
    let kills = count("TIDEGATE_DAG_KILLS", 6);
    let seed = count("TIDEGATE_SEED", SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs());
    println!("seed {seed}: {kills} kills of {processes} processes over a flow of {} jobs", shape.jobs());
    let mut random = Seed::new(seed);
    let mut crew = Crew { store, dir, shape, members: vec![] };
    let began = Instant::now();
    let killed = work(&mut crew, processes, kills, &mut random);
    check(&crew);
    let runs = read(&Files::under(crew.dir.path()).runs).unwrap();
    let starts = runs.iter().filter(|words| words[0] == "start").count();
    println!(
        "{} jobs, {killed} kills, {starts} runs in {:.1} s: all completed, none too early, sum right",
        shape.jobs(),
        began.elapsed().as_secs_f64()
    );
    assert!(killed > 0, "it was over before anything was killed; raise TIDEGATE_DAG_WIDTH");
}

#[test]
fn a_flow_in_sqlite_is_completed_under_sigkill() {
    let dir = tempfile::tempdir().unwrap();
    let store = format!("sqlite:{}", Files::under(dir.path()).data.display());
    ordeal(store, dir, 1);
}

#[test]
fn a_flow_in_postgres_is_completed_under_sigkill() {
    let database = Server::start(&["max_connections=100"]).unwrap();
    ordeal(database.url(), tempfile::tempdir().unwrap(), 3);
}
