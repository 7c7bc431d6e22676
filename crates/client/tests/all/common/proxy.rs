//! A wire that can be cut: passes bytes between clients and a server, and loses them when it is told to.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::JoinSet;

/// Longer than anything that is waited for takes.
const PATIENCE: Duration = Duration::from_secs(30);

/// What the wire does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Wire {
    Whole,
    /// Connections are cut and new ones refused.
    Cut,
}

pub(crate) struct Proxy {
    pub(crate) addr: SocketAddr,
    wire: watch::Sender<Wire>,
    shared: Arc<Shared>,
    _tasks: JoinSet<()>,
}

#[derive(Default)]
struct Shared {
    /// Answers to requests that are watched which are still to be lost.
    lose: AtomicU32,
    /// Which requests are watched: their beginning, and something in them.
    needle: Mutex<(String, String)>,
    seen: watch::Sender<Seen>,
}

/// What passed.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
struct Seen {
    /// Watched requests.
    requests: usize,
    /// Those of them that have no answer yet.
    under_way: usize,
    /// Connections that were refused.
    refused: usize,
}

impl Shared {
    fn note(&self, change: impl FnOnce(&mut Seen)) {
        self.seen.send_modify(change);
    }

    fn watches(&self, request: &[u8]) -> bool {
        let (begins, has) = &*self.needle.lock().expect("nobody panicked");
        !begins.is_empty()
            && request.starts_with(begins.as_bytes())
            && (has.is_empty() || request.windows(has.len()).any(|w| w == has.as_bytes()))
    }
}

/// A watched request without an answer.
struct UnderWay(Arc<Shared>);

impl Drop for UnderWay {
    fn drop(&mut self) {
        self.0.note(|seen| seen.under_way -= 1);
    }
}

impl Proxy {
    /// A whole wire to this server.
    pub(crate) async fn to(server: SocketAddr) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port is free");
        let addr = listener.local_addr().expect("it has an address");
        let (wire, shared) = (watch::Sender::new(Wire::Whole), Arc::new(Shared::default()));
        let mut tasks = JoinSet::new();
        let (state, seen) = (wire.clone(), shared.clone());
        tasks.spawn(async move {
            let mut connections = JoinSet::new();
            loop {
                let (client, _) = listener.accept().await.expect("somebody comes");
                if *state.borrow() == Wire::Cut {
                    seen.note(|seen| seen.refused += 1);
                    continue;
                }
                connections.spawn(pass(client, server, state.subscribe(), seen.clone()));
            }
        });
        Self { addr, wire, shared, _tasks: tasks }
    }

    pub(crate) fn url(&self) -> String {
        format!("http://{}", self.addr)
    }

    /// Cuts every connection and accepts no more.
    pub(crate) fn cut(&self) {
        self.wire.send_replace(Wire::Cut);
    }

    /// Lets connections through again.
    pub(crate) fn mend(&self) {
        self.wire.send_replace(Wire::Whole);
    }

    /// Counts requests that begin like this from now on, and loses the answers to the first `lose` of them: the server
    /// does what is asked, the client never hears of it.
    pub(crate) fn watch(&self, request: &str, lose: u32) {
        self.watch_for(request, "", lose);
    }

    /// The same for requests that have something in them, too.
    pub(crate) fn watch_for(&self, begins: &str, has: &str, lose: u32) {
        *self.shared.needle.lock().expect("nobody panicked") = (begins.to_owned(), has.to_owned());
        self.shared.note(|seen| seen.requests = 0);
        self.shared.lose.store(lose, Ordering::SeqCst);
    }

    /// Requests seen since [`Proxy::watch`].
    pub(crate) fn seen(&self) -> usize {
        self.shared.seen.borrow().requests
    }

    /// Waits until so many watched requests were seen.
    pub(crate) async fn until_seen(&self, requests: usize) {
        self.until(|seen| seen.requests >= requests).await;
    }

    /// Waits until a watched request is under way: seen and not answered.
    pub(crate) async fn until_under_way(&self) {
        self.until(|seen| seen.under_way > 0).await;
    }

    /// Waits until somebody has come in vain while the wire is cut.
    pub(crate) async fn until_refused(&self) {
        let before = self.shared.seen.borrow().refused;
        self.until(|seen| seen.refused > before).await;
    }

    async fn until(&self, is_so: impl Fn(&Seen) -> bool) {
        let mut seen = self.shared.seen.subscribe();
        let waiting = tokio::time::timeout(PATIENCE, seen.wait_for(|seen| is_so(seen)));
        waiting.await.expect("it is seen in time").expect("the wire is there");
    }
}

async fn pass(
    mut client: TcpStream,
    server: SocketAddr,
    mut wire: watch::Receiver<Wire>,
    shared: Arc<Shared>,
) {
    let Ok(mut server) = TcpStream::connect(server).await else { return };
    let _ = (client.set_nodelay(true), server.set_nodelay(true));
    let (mut up, mut down) = (vec![0; 1 << 16], vec![0; 1 << 16]);
    // Whether the answer to the request under way is lost.
    let mut lose = false;
    let mut under_way = None;
    loop {
        tokio::select! {
            () = cut(&mut wire) => return,
            read = client.read(&mut up) => {
                let Ok(n @ 1..) = read else { return };
                if shared.watches(&up[..n]) {
                    shared.note(|seen| { seen.requests += 1; seen.under_way += 1 });
                    under_way = Some(UnderWay(shared.clone()));
                    let due = |left: u32| left.checked_sub(1);
                    lose = shared.lose.fetch_update(Ordering::SeqCst, Ordering::SeqCst, due).is_ok();
                }
                if server.write_all(&up[..n]).await.is_err() { return }
            }
            read = server.read(&mut down) => {
                let Ok(n @ 1..) = read else { return };
                drop(under_way.take());
                if lose || client.write_all(&down[..n]).await.is_err() { return }
            }
        }
    }
}

async fn cut(wire: &mut watch::Receiver<Wire>) {
    let _ = wire.wait_for(|w| *w == Wire::Cut).await;
}
