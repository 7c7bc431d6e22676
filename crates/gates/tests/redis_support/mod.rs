//! A Redis server, and ways to it.

use std::sync::{Arc, LazyLock};

use tidegate_core::gates::{Call, Holder, Target};
use tidegate_gates::{Note, RedisGates, RedisOptions};
use tidegate_testbed::redis::Server;

pub(crate) static SERVER: LazyLock<Server> =
    LazyLock::new(|| Server::start(&[]).expect("a Redis server starts"));

pub(crate) async fn connected(prefix: &str) -> RedisGates {
    let options = RedisOptions { prefix: prefix.into(), ..RedisOptions::default() };
    RedisGates::connect(&SERVER.url(), options).await.expect("the server answers")
}

pub(crate) fn target(domain: &str) -> Arc<Target> {
    Arc::new(Target::new(domain).expect("a name"))
}

pub(crate) fn call(domain: &str, n: u64) -> Call {
    Call::new(target(domain), Holder::number(n))
}

pub(crate) fn note() -> Note {
    Note { who: "ana".into(), why: "test".into() }
}

pub(crate) async fn raw(server: &Server) -> redis::aio::MultiplexedConnection {
    let client = redis::Client::open(server.url()).expect("an address");
    client.get_multiplexed_async_connection().await.expect("the server answers")
}

/// Returns when so many processes hear the channels of this prefix.
pub(crate) async fn hear(server: &Server, prefix: &str, processes: i64) {
    let mut redis = raw(server).await;
    let mut ask = redis::cmd("PUBSUB");
    ask.arg("NUMSUB").arg(format!("{prefix}:changes"));
    while ask.query_async::<(String, i64)>(&mut redis).await.expect("Redis answers").1 < processes {
        tokio::task::yield_now().await;
    }
}
