//! The way to the servers: one, or those of a cluster, each key at the server that has its slot; and one connection that hears
//! wake-ups.
//!
//! Every operation may be sent twice: a time-out does not mean that the function did not run, and functions give the same
//! answer again. So what failed because a connection broke is tried once more on a new one, and what a cluster sends elsewhere
//! goes there.

use std::collections::HashMap;
use std::pin::pin;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, PoisonError, RwLock};
use std::time::{Duration, Instant};

use futures_core::Stream as _;
use redis::aio::{PubSubSink, PubSubStream};
use redis::{
    Client, Cmd, ConnectionAddr, ConnectionInfo, ErrorKind, IntoConnectionInfo as _, RedisError,
    ServerErrorKind, Value,
};
use tidegate_core::gates::Holder;

use super::due::Due;
use super::node::{Node, Parcel};
use super::plan::Plan;
use super::scripts::{LIBRARY, Operation};
use super::slots::{Range, ranges, slot_of};
use crate::{GatesError, Turns};

/// How long to wait before hearing again after the connection for wake-ups broke. Timers cover the time between.
const HEAR_AGAIN: Duration = Duration::from_millis(500);
/// After how many times the patience of silence it is looked whether wake-ups would come at all.
const SILENCE: u32 = 5;
/// Answers until one listens: the connection, two for its encryption, the user and the subscription. The patience is for each of them.
const STEPS: u32 = 5;
/// After how many failures in a row to listen this is said aloud.
const DEAF: u32 = 5;
/// How long to wait before asking a cluster again that is busy moving slots or choosing a server.
const ASK_AGAIN: Duration = Duration::from_millis(20);
/// Most servers of a cluster.
const MAX_NODES: usize = 1_000;

/// An operation on a partition.
#[derive(Debug, Clone, Copy)]
pub(super) struct Asked<'a> {
    pub(super) operation: Operation,
    pub(super) key: &'a str,
    pub(super) arguments: &'a [&'a [u8]],
    pub(super) plan: &'a Plan,
}

/// The way to the servers.
pub(super) struct Link {
    /// The servers that the address names; all others have the same user, password and encryption.
    seeds: Vec<ConnectionInfo>,
    first: Arc<Node>,
    connections: usize,
    patience: Duration,
    known: RwLock<Known>,
    /// How many connections were made.
    made: AtomicUsize,
}

/// What is known of the servers.
#[derive(Default)]
struct Known {
    nodes: HashMap<String, Arc<Node>>,
    /// Runs of slots with their servers. Empty: it is no cluster.
    ranges: Vec<(Range, Arc<Node>)>,
}

impl std::fmt::Debug for Link {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        // The address may contain a password.
        f.debug_struct("Link").field("connections", &self.connections).finish_non_exhaustive()
    }
}

pub(super) fn unreachable(e: RedisError) -> GatesError {
    GatesError::Unreachable(Box::new(e))
}

/// Reads an address with one or several servers: `redis://USER:PASSWORD@HOST:PORT,HOST:PORT/0`.
fn seeds(url: &str) -> Result<Vec<ConnectionInfo>, GatesError> {
    if url.contains('#') {
        let hint = "leave out what begins with `#`: the certificate behind rediss:// is always checked; in a password write %23";
        return Err(GatesError::address("an address of Redis ends before `#`", hint));
    }
    let (scheme, rest) = url.split_once("://").unwrap_or((url, ""));
    let (place, path) = rest.find(['/', '?']).map_or((rest, ""), |at| rest.split_at(at));
    let (user, hosts) = place.rsplit_once('@').map_or(("", place), |(user, hosts)| (user, hosts));
    let at = if user.is_empty() { "" } else { "@" };
    let read = |host: &str| {
        let info = format!("{scheme}://{user}{at}{host}{path}").into_connection_info();
        info.map_err(|e| {
            let hint = "write redis://[USER:PASSWORD@]HOST[:PORT][/DATABASE], several servers of a cluster with commas between";
            GatesError::address(e, hint)
        })
    };
    hosts.split(',').map(read).collect()
}

pub(super) fn host_and_port(info: &ConnectionInfo) -> Option<(String, u16)> {
    match info.addr() {
        ConnectionAddr::Tcp(host, port) | ConnectionAddr::TcpTls { host, port, .. } => {
            Some((host.clone(), *port))
        }
        _ => None,
    }
}

/// The client takes the process's cryptography, and panics where none was chosen and a program contains two. A choice that the
/// program has made stands, also one that it makes just now; one that it makes later is refused (`Tidegate::gates_at` says so).
fn choose_cryptography() {
    if rustls::crypto::CryptoProvider::get_default().is_none() {
        let _ = rustls::crypto::ring::default_provider().install_default();
    }
}

impl Link {
    pub(super) fn new(url: &str, connections: usize, patience: Duration) -> Result<Self, GatesError> {
        let (seeds, known, made) = (seeds(url)?, RwLock::default(), AtomicUsize::new(0));
        if matches!(seeds[0].addr(), ConnectionAddr::TcpTls { .. }) {
            choose_cryptography();
        }
        let first = Arc::new(Node::new(seeds[0].clone(), connections, patience).map_err(unreachable)?);
        Ok(Self { seeds, first, connections, patience, known, made })
    }

    /// The next connection in turn, of those to the server that has this key.
    pub(super) fn turn(&self, key: &str) -> usize {
        self.node_of(key).turn()
    }

    /// How many connections were made so far: a higher number means that the server may be another one.
    pub(super) fn made(&self) -> usize {
        self.made.load(Ordering::Acquire)
    }

    /// Which run of which server is asked. In a cluster every process asks servers of its own choice, so there it is
    /// always the same number: that one of them lost its state is seen by the markers of domains alone.
    pub(super) fn generation(&self) -> u64 {
        if self.is_cluster() { 0 } else { self.first.run() }
    }

    /// Commands sent so far.
    pub(super) fn round_trips(&self) -> u64 {
        let known = self.known.read().unwrap_or_else(PoisonError::into_inner);
        self.first.sent() + known.nodes.values().map(|node| node.sent()).sum::<u64>()
    }

    fn is_cluster(&self) -> bool {
        !self.known.read().unwrap_or_else(PoisonError::into_inner).ranges.is_empty()
    }

    /// The server at an address, `HOST:PORT`; made if it is new.
    fn node_at(&self, host: &str, port: u16) -> Result<Arc<Node>, RedisError> {
        let name = format!("{host}:{port}");
        let mut known = self.known.write().unwrap_or_else(PoisonError::into_inner);
        if let Some(there) = known.nodes.get(&name) {
            return Ok(there.clone());
        }
        if known.nodes.len() >= MAX_NODES {
            known.nodes.clear();
        }
        let addr = match self.seeds[0].addr() {
            ConnectionAddr::TcpTls { insecure, tls_params, .. } => ConnectionAddr::TcpTls {
                host: host.to_owned(),
                port,
                insecure: *insecure,
                tls_params: tls_params.clone(),
            },
            _ => ConnectionAddr::Tcp(host.to_owned(), port),
        };
        let new = Arc::new(Node::new(self.seeds[0].clone().set_addr(addr), self.connections, self.patience)?);
        known.nodes.insert(name, new.clone());
        Ok(new)
    }

    /// The server that has this key.
    fn node_of(&self, key: &str) -> Arc<Node> {
        let known = self.known.read().unwrap_or_else(PoisonError::into_inner);
        if known.ranges.is_empty() {
            return self.first.clone();
        }
        let slot = slot_of(key);
        let range = known.ranges.iter().find(|(r, _)| r.first <= slot && slot <= r.last);
        range.or(known.ranges.first()).map_or_else(|| self.first.clone(), |(_, node)| node.clone())
    }

    /// All servers that have slots; the one of the address if it is no cluster.
    pub(super) fn owners(&self) -> Vec<Arc<Node>> {
        let known = self.known.read().unwrap_or_else(PoisonError::into_inner);
        let mut owners: Vec<Arc<Node>> = Vec::new();
        for (_, node) in &known.ranges {
            if !owners.iter().any(|known| Arc::ptr_eq(known, node)) {
                owners.push(node.clone());
            }
        }
        if owners.is_empty() {
            owners.push(self.first.clone());
        }
        owners
    }

    /// Learns which server has which slots, from the first that answers. One server alone says that it is no cluster.
    pub(super) async fn survey(&self) -> Result<(), RedisError> {
        let mut asked = self.owners();
        for (host, port) in self.seeds.iter().filter_map(host_and_port) {
            asked.push(self.node_at(&host, port)?);
        }
        let mut last = None;
        let mut slots = redis::cmd("CLUSTER");
        slots.arg("SLOTS");
        for node in asked {
            match node.send(Parcel::plain(&slots, node.turn()), &self.made).await {
                Ok(answer) => {
                    let found = answer.map(|answer| ranges(&answer, &node.host())).unwrap_or_default();
                    let with_node = |r: Range| self.node_at(&r.host, r.port).map(|node| (r, node));
                    let found = found.into_iter().map(with_node).collect::<Result<_, _>>()?;
                    self.known.write().unwrap_or_else(PoisonError::into_inner).ranges = found;
                    return Ok(());
                }
                // Redis without cluster support, or a user who may not ask.
                Err(e) if matches!(e.kind(), ErrorKind::Server(_)) && !self.is_cluster() => return Ok(()),
                Err(e) => last = Some(e),
            }
        }
        last.map_or(Ok(()), Err)
    }

    /// Sends a command to the server that has this key.
    pub(super) async fn ask(&self, key: &str, command: &Cmd) -> Result<Value, RedisError> {
        self.deliver(key, Parcel::plain(command, self.turn(key)))
            .await
            .map(|value| value.unwrap_or(Value::Nil))
    }

    /// Sends a command to one server.
    pub(super) async fn ask_at(&self, node: &Node, command: &Cmd) -> Result<Value, RedisError> {
        node.send(Parcel::plain(command, node.turn()), &self.made)
            .await
            .map(|value| value.unwrap_or(Value::Nil))
    }

    /// Runs an operation on connections up to this number; none if there are only newer ones.
    pub(super) async fn run(
        &self,
        asked: Asked<'_>,
        turn: usize,
        newest: usize,
    ) -> Result<Option<Value>, RedisError> {
        let mut command = redis::cmd("FCALL");
        command.arg(LIBRARY.function(asked.operation)).arg(1).arg(asked.key);
        for argument in asked.arguments {
            command.arg(*argument);
        }
        let plan = Some(asked.plan);
        self.deliver(asked.key, Parcel { command: &command, plan, turn, newest, asking: false }).await
    }

    /// Sends something to the server that has a key, wherever a cluster sends it.
    async fn deliver(&self, key: &str, mut parcel: Parcel<'_>) -> Result<Option<Value>, RedisError> {
        let began = Instant::now();
        let mut node = self.node_of(key);
        loop {
            let error = match node.send(parcel, &self.made).await {
                Err(error) if self.is_cluster() => error,
                decided => return decided,
            };
            parcel.asking = false;
            match error.redirect_node().and_then(|(address, _)| address.rsplit_once(':')) {
                Some((host, port)) if began.elapsed() < self.patience => {
                    let Ok(port) = port.parse() else { return Err(error) };
                    parcel.asking = error.kind() == ErrorKind::Server(ServerErrorKind::Ask);
                    let host = if host.is_empty() { node.host() } else { host.to_owned() };
                    node = self.node_at(&host, port)?;
                    if !parcel.asking {
                        self.survey().await?;
                    }
                }
                None if is_passing(&error) && began.elapsed() < self.patience => {
                    tokio::time::sleep(ASK_AGAIN).await;
                    self.survey().await?;
                    node = self.node_of(key);
                }
                _ => return Err(error),
            }
        }
    }

    /// Hears wake-ups on this channel, and adds to `unread` the domain of which an operator has said something, or all domains where
    /// that may have been missed, for as long as it runs.
    pub(super) async fn hear(
        &self,
        wakes: &str,
        changes: &str,
        turns: &Turns,
        unread: &Due<Option<Box<str>>>,
    ) {
        let mut failed = 0;
        for nth in 0.. {
            let error = match self.subscribed(nth, wakes, changes).await {
                Ok(way) => {
                    failed = 0;
                    self.listen(way, changes, turns, unread).await.err()
                }
                Err(e) => {
                    failed += 1;
                    Some(e)
                }
            };
            match error {
                Some(error) if failed == DEAF => {
                    tracing::warn!(%error, "gates: neither wake-ups nor what operators say is heard, timers go on");
                }
                Some(error) => tracing::debug!(%error, "gates: wake-ups are not heard, timers go on"),
                None => {}
            }
            tokio::time::sleep(HEAR_AGAIN).await;
        }
    }

    /// On any server: what is said at one is heard at all of a cluster.
    async fn subscribed(
        &self,
        nth: usize,
        wakes: &str,
        changes: &str,
    ) -> Result<(PubSubSink, PubSubStream), RedisError> {
        let owners = self.owners();
        let client: &Client = &owners[nth % owners.len()].client;
        let subscribed = async {
            let mut heard = client.get_async_pubsub().await?;
            heard.subscribe(&[wakes, changes][..]).await?;
            Ok(heard.split())
        };
        within(self.patience * STEPS, subscribed).await
    }

    /// Until the way breaks.
    async fn listen(
        &self,
        (mut says, hears): (PubSubSink, PubSubStream),
        changes: &str,
        turns: &Turns,
        unread: &Due<Option<Box<str>>>,
    ) -> Result<(), RedisError> {
        // Whatever was said before this was not heard.
        unread.add(None);
        turns.wake_all();
        let mut messages = pin!(hears);
        loop {
            let next = std::future::poll_fn(|cx| messages.as_mut().poll_next(cx));
            let Ok(message) = tokio::time::timeout(self.patience * SILENCE, next).await else {
                // A way that broke without a word is as silent as one on which nothing is said.
                within(self.patience, says.ping::<Value>()).await?;
                continue;
            };
            let Some(message) = message else { return Ok(()) };
            let names = std::str::from_utf8(message.get_payload_bytes()).unwrap_or_default();
            if message.get_channel_name() == changes {
                unread.add(Some(names.into()));
                continue;
            }
            let holders: Vec<Holder> = names.split(' ').filter_map(|name| Holder::new(name).ok()).collect();
            turns.wake(&holders);
        }
    }
}

/// An answer within this time.
async fn within<R>(
    patience: Duration,
    answer: impl Future<Output = Result<R, RedisError>>,
) -> Result<R, RedisError> {
    let late = || RedisError::from((ErrorKind::Io, "nothing came in time"));
    tokio::time::timeout(patience, answer).await.unwrap_or_else(|_| Err(late()))
}

/// Whether a cluster will answer otherwise in a moment: it moves a slot, or a server has gone and another takes its place.
fn is_passing(error: &RedisError) -> bool {
    match error.kind() {
        ErrorKind::Server(
            ServerErrorKind::TryAgain
            | ServerErrorKind::ClusterDown
            | ServerErrorKind::MasterDown
            | ServerErrorKind::ReadOnly,
        ) => true,
        ErrorKind::Server(_) => error.detail().is_some_and(|d| d.contains("non local key")),
        _ => error.is_io_error() || error.is_connection_dropped(),
    }
}

#[cfg(test)]
mod tests {
    use tidegate_testbed::proxy::{Proxy, Way};

    use super::*;

    #[test]
    fn an_address_names_one_server_or_several() {
        let hosts = |url| seeds(url).unwrap().iter().filter_map(host_and_port).collect::<Vec<_>>();
        assert_eq!(hosts("redis://localhost"), [("localhost".to_owned(), 6_379)]);
        let two = hosts("redis://me:s%40cret@a:7000,b:7001/0");
        assert_eq!(two, [("a".to_owned(), 7_000), ("b".to_owned(), 7_001)]);
        assert!(
            seeds("redis://me:secret@a,b/0")
                .unwrap()
                .iter()
                .all(|s| s.redis_settings().username() == Some("me"))
        );
    }

    #[test]
    fn whoever_goes_to_an_encrypted_server_has_chosen_a_cryptography() {
        Link::new("rediss://localhost", 1, Duration::from_secs(1)).unwrap();
        assert!(rustls::crypto::CryptoProvider::get_default().is_some());
    }

    #[test]
    fn calls_in_turns_at_two_servers_use_all_connections_to_both() {
        let link = Link::new("redis://a:7000,b:7001", 2, Duration::from_secs(1)).unwrap();
        let half = |first, last, host: &str, port| {
            (Range { first, last, host: host.into(), port }, link.node_at(host, port).unwrap())
        };
        let halves = vec![half(0, 8_191, "a", 7_000), half(8_192, 16_383, "b", 7_001)];
        link.known.write().unwrap().ranges = halves;
        let (here, there) = ("", "foo");
        assert_ne!(link.node_of(here).host(), link.node_of(there).host());
        let turns: Vec<_> = (0..4).map(|_| (link.turn(here) % 2, link.turn(there) % 2)).collect();
        assert_eq!(turns, [(0, 0), (1, 1), (0, 0), (1, 1)]);
    }

    #[tokio::test]
    async fn a_way_on_which_nothing_comes_is_given_up_by_who_listens() {
        let server = tidegate_testbed::redis::Server::start(&[]).unwrap();
        let way = Proxy::to(server.port()).unwrap();
        let url = format!("redis://127.0.0.1:{}", way.port());
        let link = Link::new(&url, 1, Duration::from_millis(500)).unwrap();
        let (turns, unread) = (Turns::default(), Due::default());
        let connected = link.subscribed(0, "wakes", "changes").await.unwrap();
        server.command("CONFIG RESETSTAT").unwrap();
        let asked_in_silence = async {
            while !server.answer("INFO commandstats").unwrap().contains("cmdstat_ping") {
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
        };
        let proceeds = async {
            let mut listens = pin!(link.listen(connected, "changes", &turns, &unread));
            tokio::select! {
                given_up = &mut listens => panic!("silence alone is no reason: {given_up:?}"),
                () = asked_in_silence => way.set(Way::Blocked),
            }
            assert!(listens.await.is_err());
            // Nor is a connection waited for that is not made.
            assert!(link.subscribed(0, "wakes", "changes").await.is_err());
        };
        tokio::time::timeout(Duration::from_mins(1), proceeds).await.expect("it is given up");
    }

    #[tokio::test]
    async fn who_listens_is_patient_with_every_answer_and_not_with_all_together() {
        let server = tidegate_testbed::redis::Server::start(&[]).unwrap();
        let way = Proxy::to(server.port()).unwrap();
        way.set(Way::Slow(Duration::from_millis(900)));
        let url = format!("redis://127.0.0.1:{}", way.port());
        let link = Link::new(&url, 1, Duration::from_secs(1)).unwrap();
        link.subscribed(0, "wakes", "changes").await.unwrap();
    }

    #[test]
    fn a_bad_address_is_told_without_its_password() {
        let fragments = ["rediss://me:secret@host/#insecure", "rediss://me:secret@host#insecure"];
        let bad = ["localhost:6379", "redis://me:secret@host:port", "http://me:secret@host"];
        for bad in bad.into_iter().chain(fragments) {
            let error = seeds(bad).unwrap_err();
            assert_eq!(error.code().id, "TG2021");
            let text = error.to_string();
            let told = if bad.contains('#') { "leave out" } else { "write redis://" };
            assert!(text.contains(told) && !text.contains("secret"), "{text}");
        }
    }
}
