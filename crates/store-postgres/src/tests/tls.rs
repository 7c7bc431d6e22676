//! Encrypted connections, to a server with a certificate of its own. Its key is known to everybody and good for nothing
//! but this.

use tidegate_core::codes;
use tidegate_testbed::postgres::Server;

use super::*;

const CERTIFICATE: &str = include_str!("tls/server.pem");
const ROOT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/src/tests/tls/ca.pem");
const KEY: &str = include_str!("tls/server.key");

async fn connects(url: &str) -> Result<bool, tidegate_core::codes::Code> {
    let options = PgOptions::new().schema("tls").unwrap().application_name("encrypted?");
    let store = PgStore::connect(url, options, NOW).await.map_err(|e| e.code)?;
    enqueue_any(&store).await;
    store.close().await.unwrap();
    Ok(true)
}

async fn enqueue_any(store: &PgStore) {
    register(store).await;
    enqueue(store, job("1")).await;
}

#[tokio::test]
async fn the_modes_of_libpq_mean_what_they_mean_there() {
    let server = Server::start_encrypted(CERTIFICATE, KEY).unwrap();
    let at = |host: &str, query: &str| format!("postgres://tester@{host}:{}/tests?{query}", server.port());
    let root = format!("sslrootcert={ROOT}");
    assert_eq!(connects(&at("localhost", "sslmode=require")).await, Ok(true));
    assert_eq!(connects(&at("localhost", &format!("sslmode=verify-full&{root}"))).await, Ok(true));
    assert_eq!(
        connects(&at("127.0.0.1", &format!("sslmode=verify-ca&{root}"))).await,
        Ok(true),
        "another name"
    );
    let refused = connects(&at("127.0.0.1", &format!("sslmode=verify-full&{root}"))).await;
    assert_eq!(refused, Err(codes::STORE_UNREACHABLE), "the certificate is for another name");
    let strangers = "sslmode=verify-full&sslrootcert=system";
    let refused = connects(&at("localhost", strangers)).await;
    assert!(
        matches!(refused, Err(codes::STORE_UNREACHABLE | codes::INVALID_REQUEST)),
        "nobody signed it: {refused:?}"
    );
    // The server lets nobody in without encryption.
    let refused = connects(&at("127.0.0.1", "sslmode=disable")).await;
    assert_eq!(refused, Err(codes::STORE_UNREACHABLE));
    assert_eq!(connects(&at("127.0.0.1", "sslmode=maybe")).await, Err(codes::INVALID_REQUEST));
    assert_eq!(
        server.sql("SELECT count(*) FROM pg_stat_ssl WHERE NOT ssl").unwrap().trim(),
        "1",
        "only psql's own"
    );
}
