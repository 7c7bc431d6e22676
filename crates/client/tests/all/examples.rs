//! The examples in other languages, against a real server. They need `python3`, `node` and `psql`, and fail without.

use std::path::{Path, PathBuf};
use std::process::{Output, Stdio};
use std::sync::Arc;
use std::time::Duration;

use crate::common::Running;
use tidegate::store::params::NewJob;
use tidegate::{Category, JobId, JobView, Payload, State, Tidegate, presence};
use tidegate_core::ids::{KindName, QueueName};
use tidegate_core::registry::KindSettings;
use tidegate_store::{MemoryStore, Registry};
use tokio::io::AsyncWriteExt;
use tokio::process::Command;

/// Longest time for a script to start and do its work on a busy machine.
const PATIENCE: Duration = Duration::from_mins(1);

fn example(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples").join(path)
}

async fn output(command: &mut Command) -> Output {
    let command = command.kill_on_drop(true);
    let run = tokio::time::timeout(PATIENCE, command.output());
    run.await.expect("the script ends").unwrap_or_else(|e| panic!("{command:?} must be installed: {e}"))
}

async fn state(tide: &Tidegate, id: JobId) -> JobView {
    tide.wait(id, PATIENCE).await.expect("the job exists")
}

/// Lets a worker of another language greet and fail; it ends by itself when nothing is left.
async fn greets(program: &str, script: &str, invalid_code: &str) {
    let store = Arc::new(MemoryStore::new());
    let server = Running::serve(store.clone()).await;
    let tide = Tidegate::with_store(store.clone());
    store.ensure_queue(QueueName::new("greetings").unwrap(), tide.now()).await.unwrap();
    store
        .put_kind(KindName::new("greet").unwrap(), KindSettings::new(QueueName::new("greetings").unwrap()))
        .await
        .unwrap();
    let mut ids = vec![];
    for n in 0..30 {
        ids.push(tide.enqueue_json("greet", format!(r#"{{"name":"caller {n}"}}"#)).await.unwrap().id);
    }
    let nameless = tide.enqueue_json("greet", "{}").await.unwrap().id;
    let worker = async {
        let mut command = Command::new(program);
        command.arg(example(script)).args(["--idle", "1"]).env("TIDEGATE_STORE", server.url());
        output(command.env_remove("TIDEGATE_KEY")).await
    };
    // One comes while the worker waits.
    let late = async {
        state(&tide, ids[29]).await;
        state(&tide, tide.enqueue_json("greet", r#"{"name":"latecomer"}"#).await.unwrap().id).await
    };
    let (worker, late) = tokio::join!(worker, late);
    let said = String::from_utf8_lossy(&worker.stdout);
    assert!(worker.status.success(), "{said}{}", String::from_utf8_lossy(&worker.stderr));
    assert_eq!(late.result.unwrap().as_str().replace(' ', ""), r#"{"greeting":"hellolatecomer"}"#);
    for id in ids {
        assert_eq!(state(&tide, id).await.state, State::Completed);
    }
    assert_eq!(said.lines().filter(|l| l.starts_with("hello ")).count(), 31, "{said}");
    let letter = state(&tide, nameless).await.dead.expect("a payload that is wrong stays wrong");
    assert_eq!((letter.category, letter.code.as_str()), (Category::InvalidInput, invalid_code));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_python_worker_processes_jobs_with_the_standard_library_alone() {
    greets("python3", "python/worker.py", "NO_NAME").await;
    let source = std::fs::read_to_string(example("python/worker.py")).unwrap();
    let allowed = "argparse http.client json os signal socket sys threading time urllib.parse";
    for line in source.lines().filter(|l| l.starts_with("import ") || l.starts_with("from ")) {
        let module = line.split_whitespace().nth(1).unwrap();
        assert!(allowed.split(' ').any(|m| m == module), "{module} is not of the standard library");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_node_worker_processes_jobs_with_fetch_alone() {
    greets("node", "node/worker.mjs", "TypeError").await;
    let source = std::fs::read_to_string(example("node/worker.mjs")).unwrap();
    for line in source.lines().filter(|l| l.starts_with("import ")) {
        assert!(line.contains("from 'node:"), "{line}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn workers_of_other_languages_say_that_they_are_alive_and_end_when_they_are_asked_to() {
    for (program, script) in [("python3", "python/worker.py"), ("node", "node/worker.mjs")] {
        let store = Arc::new(MemoryStore::new());
        let server = Running::serve(store.clone()).await;
        let now = || Tidegate::with_store(store.clone()).now();
        let mut command = Command::new(program);
        command.arg(example(script)).env("TIDEGATE_STORE", server.url()).env_remove("TIDEGATE_KEY");
        let alive = async {
            loop {
                let seen = presence::list(&*store, now()).await.unwrap();
                if let Some(worker) = seen.into_iter().find(|seen| seen.presence.role == "worker") {
                    break worker;
                }
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        };
        let asked = async {
            let worker = tokio::time::timeout(PATIENCE, alive).await.expect("it says that it is alive");
            assert_eq!(
                (worker.presence.queues, worker.presence.kinds),
                (vec!["greetings".to_owned()], vec!["greet".into()])
            );
            presence::ask_to_drain(&*store, &worker.name, "ada", now()).await.unwrap();
        };
        let (ended, ()) = tokio::join!(output(&mut command), asked);
        assert!(ended.status.success(), "{}", String::from_utf8_lossy(&ended.stderr));
        assert_eq!(presence::list(&*store, now()).await.unwrap().len(), 0, "it has taken leave");
    }
}

/// Runs the shell handler as `tidegate work` does: payload on standard input, the job in the environment, nothing else.
async fn hello(payload: &str) -> Output {
    let mut command = Command::new(example("shell/hello.sh"));
    command.env_clear().env("PATH", std::env::var_os("PATH").unwrap_or_default());
    command.env("TIDEGATE_JOB_ID", "job_01JCQ5V9N0E4T8GQ6W2Y3K7MZB").env("TIDEGATE_ATTEMPT", "2");
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).kill_on_drop(true);
    let mut child = command.spawn().expect("the script can be run");
    let mut input = child.stdin.take().unwrap();
    input.write_all(payload.as_bytes()).await.unwrap();
    drop(input);
    tokio::time::timeout(PATIENCE, child.wait_with_output()).await.expect("the script ends").unwrap()
}

#[tokio::test]
async fn a_shell_handler_prints_its_result_logs_to_standard_error_and_says_by_its_code_what_is_wrong() {
    for payload in [r#"{"name":"Ada"}"#, r#"{ "age": 7, "name" : "Ada", "city": "London" }"#] {
        let done = hello(payload).await;
        let (out, err) = (String::from_utf8_lossy(&done.stdout), String::from_utf8_lossy(&done.stderr));
        assert!(done.status.success(), "{out}{err}");
        let result: serde_json::Value = serde_json::from_str(out.lines().last().unwrap()).unwrap();
        assert_eq!(result, serde_json::json!({"greeting": "hello Ada"}));
        assert_eq!(err, "job job_01JCQ5V9N0E4T8GQ6W2Y3K7MZB, attempt 2\n");
    }
    for payload in ["{}", "null", r#"{"name":""}"#] {
        let nameless = hello(payload).await;
        assert_eq!(nameless.status.code(), Some(65), "{payload}: the input is wrong, and stays wrong");
        assert_eq!(String::from_utf8_lossy(&nameless.stderr), "the payload has no name\n");
        assert!(nameless.stdout.is_empty());
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn workers_of_other_languages_say_why_a_key_is_refused() {
    let store = Arc::new(MemoryStore::new());
    let server = Running::serve(store.clone()).await;
    let open = server.client().await;
    let new = tidegate_wire::keys::NewKey {
        name: "ops".into(),
        role: tidegate_wire::keys::Role::Admin,
        tenant: None,
    };
    open.create_key(&new).await.unwrap();
    for (program, script) in [("python3", "python/worker.py"), ("node", "node/worker.mjs")] {
        let mut command = Command::new(program);
        command.arg(example(script)).env("TIDEGATE_STORE", server.url()).env("TIDEGATE_KEY", "tg_0_0");
        let ended = output(&mut command).await;
        assert_eq!(ended.status.code(), Some(1));
        let said = String::from_utf8_lossy(&ended.stderr);
        assert!(said.contains("TG2015"), "{said}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_job_enqueued_in_a_transaction_exists_exactly_if_it_commits() {
    let postgres = tidegate_testbed::postgres::Server::start(&[]).expect("Postgres starts");
    let tide = Tidegate::connect(postgres.url()).await.unwrap();
    let store = tide.store();
    store.ensure_queue(QueueName::new("billing").unwrap(), tide.now()).await.unwrap();
    let kind = KindSettings::new(QueueName::new("billing").unwrap());
    store.put_kind(KindName::new("invoice.send").unwrap(), kind).await.unwrap();
    let ready = async |n: u64| {
        let deadline = tokio::time::Instant::now() + PATIENCE;
        while store.totals().await.unwrap().ready != n {
            assert!(tokio::time::Instant::now() < deadline, "{n} jobs are ready in the end");
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };

    let mut psql = Command::new("psql");
    psql.arg(postgres.url()).args(["--no-psqlrc", "-v", "customer=acme", "-f"]);
    let by_psql = output(psql.arg(example("sql/transactional.sql"))).await;
    assert!(by_psql.status.success(), "{}", String::from_utf8_lossy(&by_psql.stderr));
    ready(1).await;

    let script = example("sql/transactional.py");
    let mut python = Command::new("python3");
    let by_python = output(python.arg(&script).arg(postgres.url()).arg("obrien")).await;
    assert!(by_python.status.success(), "{}", String::from_utf8_lossy(&by_python.stderr));
    ready(2).await;

    let mut failing = Command::new("python3");
    let failed = output(failing.arg(&script).arg(postgres.url()).args(["acme", "--fail"])).await;
    assert_eq!(failed.status.code(), Some(1));
    // What commits after it is seen, so what it wrote would have been.
    let marker = NewJob::new(
        JobId::from_parts(1, 1),
        KindName::new("invoice.send").unwrap(),
        Payload::from_json_text("{}", 100).unwrap(),
    );
    store.enqueue(vec![marker], tide.now()).await.unwrap();
    assert_eq!(store.totals().await.unwrap().ready, 3, "two by SQL and the marker");
    tide.close().await.unwrap();
}
