//! The README's program, embedded and over a server: one line differs, what it does is the same.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;

use tidegate::store::MemoryStore;
use tidegate_server::{Server, ServerOptions};

fn source(name: &str) -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("examples").join(name);
    std::fs::read_to_string(path).unwrap()
}

#[test]
fn the_program_moves_to_a_server_by_changing_one_line() {
    let (embedded, remote) = (source("quickstart.rs"), source("quickstart_remote.rs"));
    assert_eq!(embedded.lines().count(), remote.lines().count());
    let differing: Vec<(&str, &str)> = embedded.lines().zip(remote.lines()).filter(|(a, b)| a != b).collect();
    let [(open, connect)] = differing[..] else { panic!("{differing:#?}") };
    assert!(open.contains("Tidegate::open(") && connect.contains("Tidegate::connect("), "{open}\n{connect}");
}

/// The built example. `cargo test` builds examples beside the tests; where only this test was built, they are built here.
fn built(name: &str) -> PathBuf {
    let here = std::env::current_exe().unwrap();
    let path = here.ancestors().nth(2).unwrap().join("examples").join(name);
    if !path.is_file() {
        let built = Command::new(env!("CARGO"))
            .args(["build", "--quiet", "-p", "tidegate", "--example", name])
            .status()
            .expect("cargo runs");
        assert!(built.success());
    }
    path
}

async fn said(command: &mut tokio::process::Command) -> String {
    let output = command.kill_on_drop(true).output().await.unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn embedded_and_over_a_server_the_program_says_the_same() {
    let dir = tempfile::tempdir().unwrap();
    let options = ServerOptions { bind: ([127, 0, 0, 1], 0).into(), ..ServerOptions::default() };
    let server = Server::bind(Arc::new(MemoryStore::new()), options).await.unwrap();
    let url = format!("http://{}", server.addr());
    let (stop, stopped) = tokio::sync::oneshot::channel::<()>();
    let serving = tokio::spawn(server.run(async move {
        let _ = stopped.await;
    }));
    let (mut embedded, mut remote) = (
        tokio::process::Command::new(built("quickstart")),
        tokio::process::Command::new(built("quickstart_remote")),
    );
    embedded.current_dir(dir.path());
    remote.env("TIDEGATE_STORE", url).current_dir(dir.path());
    let (embedded, remote) = tokio::join!(said(&mut embedded), said(&mut remote));
    assert!(embedded.starts_with("invoice for 7\n1 completed\n"), "{embedded}");
    assert_eq!(embedded, remote);
    drop(stop);
    serving.await.unwrap();
}
