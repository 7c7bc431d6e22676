//! A way to a server that can be slowed, cut, blocked and led elsewhere.
//!
//! Bytes keep their order; a delay is latency, not a lower rate. A blocked way loses nothing: what was on it arrives when it
//! is free again, as with a network that was partitioned for a while.

use std::io::{Read as _, Write as _};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::Result;

/// How often a blocked way looks whether it is free.
const LOOK: Duration = Duration::from_millis(2);

/// What happens to bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Way {
    /// They pass.
    Open,
    /// They pass, each answer so much later.
    Slow(Duration),
    /// They wait.
    Blocked,
    /// Connections are closed, and new ones at once.
    Cut,
}

#[derive(Debug)]
struct State {
    way: Way,
    to: SocketAddr,
    streams: Vec<TcpStream>,
    over: bool,
}

/// The proxy. Its threads end with it.
#[derive(Debug)]
pub struct Proxy {
    state: Arc<Mutex<State>>,
    address: SocketAddr,
}

fn lock(state: &Mutex<State>) -> MutexGuard<'_, State> {
    state.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Proxy {
    /// A way to this port of 127.0.0.1.
    pub fn to(port: u16) -> Result<Self> {
        let listener = TcpListener::bind("127.0.0.1:0")?;
        let address = listener.local_addr()?;
        let to = ([127, 0, 0, 1], port).into();
        let state = Arc::new(Mutex::new(State { way: Way::Open, to, streams: Vec::new(), over: false }));
        let accepting = state.clone();
        thread::spawn(move || {
            for client in listener.incoming().flatten() {
                if lock(&accepting).over {
                    return;
                }
                // A connection that cannot be led on is closed, as by a server that is not there.
                let _ = connect(client, &accepting);
            }
        });
        Ok(Self { state, address })
    }

    /// Its port.
    pub fn port(&self) -> u16 {
        self.address.port()
    }

    /// Changes what happens to bytes.
    pub fn set(&self, way: Way) {
        let mut state = lock(&self.state);
        state.way = way;
        if way == Way::Cut {
            close(&mut state);
        }
    }

    /// Leads to another port from now on; old connections are closed.
    pub fn lead_to(&self, port: u16) {
        let mut state = lock(&self.state);
        state.to.set_port(port);
        close(&mut state);
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        let mut state = lock(&self.state);
        state.over = true;
        close(&mut state);
        drop(state);
        let _ = TcpStream::connect(self.address);
    }
}

fn close(state: &mut State) {
    for stream in state.streams.drain(..) {
        let _ = stream.shutdown(Shutdown::Both);
    }
}

fn connect(client: TcpStream, state: &Arc<Mutex<State>>) -> Result<()> {
    let to = {
        let state = lock(state);
        if state.way == Way::Cut {
            return Ok(());
        }
        state.to
    };
    let server = TcpStream::connect_timeout(&to, Duration::from_secs(1))?;
    client.set_nodelay(true)?;
    server.set_nodelay(true)?;
    {
        let mut state = lock(state);
        state.streams.extend([client.try_clone()?, server.try_clone()?]);
    }
    carry(client.try_clone()?, server.try_clone()?, state.clone(), false);
    carry(server, client, state.clone(), true);
    Ok(())
}

/// Carries bytes one way. `answers`: they are delayed.
fn carry(mut from: TcpStream, to: TcpStream, state: Arc<Mutex<State>>, answers: bool) {
    let (send, receive) = channel::<(Instant, Vec<u8>)>();
    let reading = state.clone();
    thread::spawn(move || {
        let mut buffer = vec![0; 64 * 1024];
        while let Ok(n) = from.read(&mut buffer) {
            if n == 0 {
                break;
            }
            let delay = match lock(&reading).way {
                Way::Slow(delay) if answers => delay,
                _ => Duration::ZERO,
            };
            if pass(&send, delay, &buffer[..n]).is_none() {
                break;
            }
        }
    });
    thread::spawn(move || deliver(to, &receive, &state));
}

fn pass(send: &Sender<(Instant, Vec<u8>)>, delay: Duration, bytes: &[u8]) -> Option<()> {
    send.send((Instant::now() + delay, bytes.to_vec())).ok()
}

fn deliver(mut to: TcpStream, receive: &Receiver<(Instant, Vec<u8>)>, state: &Mutex<State>) {
    while let Ok((due, bytes)) = receive.recv() {
        thread::sleep(due.saturating_duration_since(Instant::now()));
        loop {
            let (way, over) = {
                let state = lock(state);
                (state.way, state.over)
            };
            if over {
                return;
            }
            if way != Way::Blocked {
                break;
            }
            thread::sleep(LOOK);
        }
        if to.write_all(&bytes).is_err() {
            break;
        }
    }
    let _ = to.shutdown(Shutdown::Both);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::redis::Server;

    fn ping(port: u16) -> Result<String> {
        let mut stream = TcpStream::connect(("127.0.0.1", port))?;
        stream.set_read_timeout(Some(Duration::from_secs(5)))?;
        stream.write_all(b"PING\r\n")?;
        let mut answer = [0; 7];
        stream.read_exact(&mut answer)?;
        Ok(String::from_utf8_lossy(&answer).trim().to_owned())
    }

    #[test]
    fn a_way_can_be_open_slow_cut_and_led_elsewhere() {
        let (one, two) = (Server::start(&[]).unwrap(), Server::start(&[]).unwrap());
        let proxy = Proxy::to(one.port()).unwrap();
        assert_eq!(ping(proxy.port()).unwrap(), "+PONG");
        proxy.set(Way::Slow(Duration::from_millis(80)));
        let asked = Instant::now();
        ping(proxy.port()).unwrap();
        assert!(asked.elapsed() >= Duration::from_millis(80));
        proxy.set(Way::Cut);
        assert!(ping(proxy.port()).is_err());
        proxy.set(Way::Open);
        drop(one);
        assert!(ping(proxy.port()).is_err());
        proxy.lead_to(two.port());
        assert_eq!(ping(proxy.port()).unwrap(), "+PONG");
    }

    #[test]
    fn what_is_on_a_blocked_way_arrives_later() {
        let server = Server::start(&[]).unwrap();
        let proxy = Proxy::to(server.port()).unwrap();
        proxy.set(Way::Blocked);
        let port = proxy.port();
        let asking = thread::spawn(move || ping(port));
        while lock(&proxy.state).streams.is_empty() {
            thread::sleep(LOOK);
        }
        assert!(!asking.is_finished());
        proxy.set(Way::Open);
        assert_eq!(asking.join().unwrap().unwrap(), "+PONG");
    }
}
