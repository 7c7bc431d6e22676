//! A wire that can be cut: passes bytes between clients and a server, and loses them when it is told to.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicUsize, Ordering};

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::JoinSet;

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
    /// Answers to a request with this beginning that are still to be lost.
    lose: AtomicU32,
    /// Requests seen with the beginning that is counted.
    counted: AtomicUsize,
    needle: std::sync::Mutex<String>,
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
        request.clone_into(&mut self.shared.needle.lock().expect("nobody panicked"));
        self.shared.counted.store(0, Ordering::SeqCst);
        self.shared.lose.store(lose, Ordering::SeqCst);
    }

    /// Requests seen since [`Proxy::watch`].
    pub(crate) fn seen(&self) -> usize {
        self.shared.counted.load(Ordering::SeqCst)
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
    loop {
        tokio::select! {
            () = cut(&mut wire) => return,
            read = client.read(&mut up) => {
                let Ok(n @ 1..) = read else { return };
                let needle = shared.needle.lock().expect("nobody panicked").clone();
                if !needle.is_empty() && up[..n].starts_with(needle.as_bytes()) {
                    shared.counted.fetch_add(1, Ordering::SeqCst);
                    let due = |left: u32| left.checked_sub(1);
                    lose = shared.lose.fetch_update(Ordering::SeqCst, Ordering::SeqCst, due).is_ok();
                }
                if server.write_all(&up[..n]).await.is_err() { return }
            }
            read = server.read(&mut down) => {
                let Ok(n @ 1..) = read else { return };
                if lose || client.write_all(&down[..n]).await.is_err() { return }
            }
        }
    }
}

async fn cut(wire: &mut watch::Receiver<Wire>) {
    let _ = wire.wait_for(|w| *w == Wire::Cut).await;
}
