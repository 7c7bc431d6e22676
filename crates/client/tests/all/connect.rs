//! Connecting: what can be wrong is said with a code of its own.

use std::sync::Arc;

use crate::common::Running;
use tidegate_client::{RemoteOptions, RemoteStore};
use tidegate_core::codes;
use tidegate_core::time::Timestamp;
use tidegate_store::{MemoryStore, Records, Registry, Upkeep};
use tidegate_wire::keys::{NewKey, Role};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;

async fn refused(url: &str, options: RemoteOptions) -> tidegate_store::Error {
    RemoteStore::connect(url, options).await.expect_err("this is no way to connect")
}

fn key(key: &str) -> RemoteOptions {
    RemoteOptions { key: Some(key.into()), ..RemoteOptions::default() }
}

/// Something that answers every request like this.
async fn something(answer: &'static str) -> (String, tokio::task::JoinHandle<()>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let task = tokio::spawn(async move {
        loop {
            let (mut stream, _) = listener.accept().await.unwrap();
            let mut request = [0; 4096];
            let _ = stream.read(&mut request).await;
            let _ = stream.write_all(answer.as_bytes()).await;
        }
    });
    (url, task)
}

#[tokio::test]
async fn a_server_that_is_not_there_is_said_to_be_out_of_reach() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    drop(listener);
    let error = refused(&url, RemoteOptions::default()).await;
    assert_eq!(error.code, codes::SERVER_UNREACHABLE);
    assert!(error.detail.contains(&url), "{error}");
}

#[tokio::test]
async fn what_is_no_server_or_one_of_another_version_is_not_talked_to() {
    for answer in [
        "HTTP/1.1 200 OK\r\ncontent-length: 13\r\n\r\n<html></html>",
        "HTTP/1.1 404 Not Found\r\ncontent-length: 0\r\n\r\n",
        "HTTP/1.1 200 OK\r\ncontent-length: 65\r\n\r\n{\"version\":\"99.0.0\",\"now\":\"2026-11-15T07:30:00.000Z\",\"key\":null   }",
    ] {
        let (url, task) = something(answer).await;
        let error = refused(&url, RemoteOptions::default()).await;
        assert_eq!(error.code, codes::SERVER_MISMATCH, "{error}");
        task.abort();
    }
    let (url, task) = something("HTTP/1.1 502 Bad Gateway\r\ncontent-length: 0\r\n\r\n").await;
    assert_eq!(refused(&url, RemoteOptions::default()).await.code, codes::SERVER_UNREACHABLE);
    task.abort();
}

#[tokio::test]
async fn an_address_that_is_none_is_refused_before_anything_is_sent() {
    for url in ["postgres://db/x", "http://", "127.0.0.1:7433", "http://ada:secret@127.0.0.1"] {
        assert_eq!(refused(url, RemoteOptions::default()).await.code, codes::INVALID_STORE_URL, "{url}");
    }
}

#[tokio::test]
async fn a_certificate_file_that_is_none_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("ca.pem");
    for content in [None, Some("hello")] {
        if let Some(content) = content {
            std::fs::write(&file, content).unwrap();
        }
        let options = RemoteOptions { ca: Some(file.clone()), ..RemoteOptions::default() };
        let error = refused("https://127.0.0.1:1", options).await;
        assert_eq!(error.code, codes::INVALID_TLS);
        assert!(error.detail.contains("ca.pem"), "{error}");
    }
}

#[tokio::test]
async fn a_server_with_keys_wants_one_and_says_what_it_allows() {
    let behind = Arc::new(MemoryStore::new());
    let server = Running::serve(behind.clone()).await;
    let open = server.client().await;
    let new = NewKey { name: "ops".into(), role: Role::Admin, tenant: None };
    let admin = open.create_key(&new).await.unwrap();
    assert_eq!(open.totals().await.unwrap_err().code, codes::NO_KEY, "there is a key now");

    let url = server.url();
    assert_eq!(refused(&url, RemoteOptions::default()).await.code, codes::NO_KEY);
    assert_eq!(refused(&url, key("tg_000000000000_0000")).await.code, codes::NO_KEY);
    assert_eq!(refused(&url, key("line\nbreak")).await.code, codes::NO_KEY);

    let store = RemoteStore::connect(&url, key(&admin.secret)).await.unwrap();
    assert_eq!(store.about().await.unwrap().key.unwrap().name, "ops");
    let new = NewKey { name: "mailer".into(), role: Role::Worker, tenant: None };
    let worker = store.create_key(&new).await.unwrap();
    let mailer = RemoteStore::connect(&url, key(&worker.secret)).await.unwrap();
    assert!(mailer.kinds().await.is_ok());
    assert_eq!(mailer.totals().await.unwrap_err().code, codes::NOT_ALLOWED);
    let shown = format!("{:?} {mailer:?}", key(&worker.secret));
    assert!(!shown.contains(&worker.secret), "{shown}");

    store.revoke_key(&worker.key.id).await.unwrap();
    assert_eq!(mailer.kinds().await.unwrap_err().code, codes::NO_KEY);
    assert_eq!(store.revoke_key("nobody").await.unwrap_err().code, codes::KEY_NOT_FOUND);
    let listed = store.keys().await.unwrap();
    assert_eq!(listed.iter().map(|k| k.revoked_at.is_some()).collect::<Vec<_>>(), [false, true]);
    let shelf = tidegate_store::params::Shelf::Keys;
    assert_eq!(store.records(shelf, Timestamp(0)).await.unwrap_err().code, codes::NOT_ALLOWED);
}

/// Files of the server's own tests: an authority, and a certificate that it signed for 127.0.0.1 and localhost.
fn pem(name: &str) -> std::path::PathBuf {
    std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../server/tests/all/data").join(name)
}

#[tokio::test]
async fn an_encrypted_server_is_trusted_by_its_authority_and_by_nothing_less() {
    let files = tidegate_server::TlsFiles {
        certificates: pem("certificate.pem"),
        private_key: pem("private_key.pem"),
    };
    let server = Running::with(Arc::new(MemoryStore::new()), |options| options.tls = Some(files)).await;
    let url = format!("https://{}", server.addr);
    let trusting = RemoteOptions { ca: Some(pem("authority.pem")), ..RemoteOptions::default() };
    let store = RemoteStore::connect(&url, trusting).await.expect("its authority is known");
    assert_eq!(store.totals().await.unwrap().ready, 0);
    // On a system without any authorities there is nothing to begin with.
    let error = refused(&url, RemoteOptions::default()).await;
    assert!([codes::SERVER_UNREACHABLE, codes::INVALID_TLS].contains(&error.code), "{error}");
    assert!(error.detail.contains("certificate"), "{error}");
    assert_eq!(refused(&server.url(), RemoteOptions::default()).await.code, codes::SERVER_UNREACHABLE);
}
