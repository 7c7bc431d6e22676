//! Places for connections: how many there are, which of them are idle, and which have to go.
//!
//! No connection has a timer of its own. Each notes on its place what it does; one sweeper looks at all places now and
//! then and closes those that took too long. With ten thousand idle connections that is one short loop per tick.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use tokio::sync::Notify;

use crate::Limits;
use crate::delivery::Delivery;

/// Time between two looks of the sweeper, and so how exact its times are.
pub(crate) const TICK: Duration = Duration::from_millis(250);

/// All places of a server.
#[derive(Debug)]
pub(crate) struct Places {
    started: Instant,
    /// Milliseconds since the start, as of the last tick: a connection reads it without asking the system.
    coarse: AtomicU64,
    taken: Mutex<HashMap<u64, Arc<Place>>>,
    most: usize,
    limits: Limits,
}

/// The place of one connection.
#[derive(Debug)]
pub(crate) struct Place {
    number: u64,
    pub(crate) peer: SocketAddr,
    /// A request is being answered.
    busy: AtomicBool,
    /// Last time anything was read, written or answered.
    active_at: AtomicU64,
    /// Since when part of a header is there; 0 if none is.
    header_since: AtomicU64,
    /// Since when the client does not read its answer; 0 if it does.
    write_since: AtomicU64,
    /// What is being done is done for the client alone, and ends when it leaves.
    attended: AtomicBool,
    close: Notify,
    /// Claimed jobs on their way to the client.
    delivery: Mutex<Option<Delivery>>,
    has_delivery: AtomicBool,
}

impl Places {
    pub(crate) fn new(limits: Limits, most: usize) -> Self {
        // Ticks start at 1: 0 means never.
        Self { started: Instant::now(), coarse: AtomicU64::new(1), taken: Mutex::default(), most, limits }
    }

    /// Takes a place; if all are taken, the connection that has been idle longest has to go. `None` if all are busy.
    pub(crate) fn take(&self, number: u64, peer: SocketAddr) -> Option<Arc<Place>> {
        let mut taken = self.lock();
        if taken.len() >= self.most {
            let idle = taken.values().filter(|p| !p.busy.load(Ordering::Relaxed));
            let oldest = idle.min_by_key(|p| p.active_at.load(Ordering::Relaxed))?.number;
            if let Some(place) = taken.remove(&oldest) {
                place.close.notify_one();
            }
        }
        let place = Arc::new(Place {
            number,
            peer,
            busy: AtomicBool::new(false),
            active_at: AtomicU64::new(self.now()),
            header_since: AtomicU64::new(0),
            write_since: AtomicU64::new(0),
            attended: AtomicBool::new(false),
            close: Notify::new(),
            delivery: Mutex::default(),
            has_delivery: AtomicBool::new(false),
        });
        taken.insert(number, place.clone());
        Some(place)
    }

    pub(crate) fn leave(&self, place: &Place) {
        self.lock().remove(&place.number);
    }

    /// Time passes; connections that took too long are closed.
    pub(crate) fn sweep(&self) {
        let now = (self.started.elapsed().as_millis() as u64).max(1);
        self.coarse.store(now, Ordering::Relaxed);
        let over =
            |since: u64, limit: Duration| since != 0 && now.saturating_sub(since) >= limit.as_millis() as u64;
        for place in self.lock().values() {
            let idle = !place.busy.load(Ordering::Relaxed);
            let at = |field: &AtomicU64| field.load(Ordering::Relaxed);
            if over(at(&place.write_since), self.limits.write_timeout)
                || idle && over(at(&place.header_since), self.limits.header_timeout)
                || idle && over(at(&place.active_at), self.limits.idle_timeout)
            {
                place.close.notify_one();
            }
        }
    }

    pub(crate) fn now(&self) -> u64 {
        self.coarse.load(Ordering::Relaxed)
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<u64, Arc<Place>>> {
        self.taken.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Place {
    /// A request begins.
    pub(crate) fn begin(&self) {
        self.busy.store(true, Ordering::Relaxed);
        self.header_since.store(0, Ordering::Relaxed);
        self.attended.store(false, Ordering::Relaxed);
    }

    /// Its answer is ready.
    pub(crate) fn end(&self, now: u64) {
        self.active_at.store(now, Ordering::Relaxed);
        self.busy.store(false, Ordering::Relaxed);
    }

    /// What is being done from now on is for the client alone: if it leaves before its answer is sent, the connection
    /// ends.
    pub(crate) fn attend(&self) {
        self.attended.store(true, Ordering::Relaxed);
    }

    pub(crate) fn is_attended(&self) -> bool {
        self.attended.load(Ordering::Relaxed)
    }

    /// Bytes came.
    pub(crate) fn read(&self, now: u64) {
        self.active_at.store(now, Ordering::Relaxed);
        if !self.busy.load(Ordering::Relaxed) {
            let _ = self.header_since.compare_exchange(0, now, Ordering::Relaxed, Ordering::Relaxed);
        }
    }

    /// Bytes went. A client that leaves once its answer is on the way has got it: most do.
    pub(crate) fn wrote(&self, now: u64) {
        self.attended.store(false, Ordering::Relaxed);
        self.active_at.store(now, Ordering::Relaxed);
        self.write_since.store(0, Ordering::Relaxed);
    }

    /// Bytes could not go: the client does not read.
    pub(crate) fn stuck(&self, now: u64) {
        let _ = self.write_since.compare_exchange(0, now, Ordering::Relaxed, Ordering::Relaxed);
    }

    /// Everything written so far is with the system.
    pub(crate) fn flushed(&self) {
        if self.has_delivery.swap(false, Ordering::Relaxed)
            && let Some(delivery) = self.take_delivery()
        {
            delivery.arrived();
        }
    }

    /// Claimed jobs are on their way by this connection. If it ends before they are sent, they are given back.
    pub(crate) fn deliver(&self, delivery: Delivery) {
        *self.delivery.lock().unwrap_or_else(PoisonError::into_inner) = Some(delivery);
        self.has_delivery.store(true, Ordering::Relaxed);
    }

    /// What was to be delivered and was not.
    pub(crate) fn take_delivery(&self) -> Option<Delivery> {
        self.delivery.lock().unwrap_or_else(PoisonError::into_inner).take()
    }

    /// Waits until the connection has to go.
    pub(crate) async fn closed(&self) {
        self.close.notified().await;
    }
}
