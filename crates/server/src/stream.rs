//! One event stream: what was missed from the store's buffer, then what happens from the hub.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use hyper::body::Frame;
use tidegate_core::ids::{JobId, KindName, QueueName, TenantId};
use tidegate_store::feed::{Delivery, EventId, JobEvent, Subscription};
use tidegate_wire::events::GAP;
use tokio::sync::broadcast::error::RecvError;
use tokio::sync::{OwnedSemaphorePermit, broadcast, mpsc};
use tokio::time::Instant;

use crate::app::App;
use crate::hub::{self, Batch, Written};

/// Time between two signs of life on a quiet stream.
const KEEP_ALIVE: Duration = Duration::from_secs(15);
/// Pieces that may wait for a client that reads slowly.
const PIECES: usize = 4;
/// Longest pause of a stream that has used up its share.
const LONGEST_PAUSE: Duration = Duration::from_secs(5);

/// Which events a stream is about. Empty fields do not restrict.
#[derive(Debug, Clone, Default)]
pub(crate) struct Filter {
    pub(crate) queue: Option<QueueName>,
    pub(crate) kind: Option<KindName>,
    pub(crate) tenant: Option<TenantId>,
    pub(crate) job: Option<JobId>,
}

impl Filter {
    fn is_empty(&self) -> bool {
        self.queue.is_none() && self.kind.is_none() && self.tenant.is_none() && self.job.is_none()
    }

    fn matches(&self, event: &JobEvent) -> bool {
        self.job.is_none_or(|id| id == event.id)
            && self.queue.as_ref().is_none_or(|q| *q == event.queue)
            && self.kind.as_ref().is_none_or(|k| *k == event.kind)
            && self.tenant.as_ref().is_none_or(|t| event.tenant.as_ref() == Some(t))
    }
}

/// The body of a stream.
pub(crate) struct Body(mpsc::Receiver<Bytes>);

impl hyper::body::Body for Body {
    type Data = Bytes;
    type Error = std::convert::Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Self::Error>>> {
        self.0.poll_recv(cx).map(|piece| piece.map(|p| Ok(Frame::data(p))))
    }
}

/// Starts a stream after this event, or from now on.
pub(crate) fn start(
    app: &Arc<App>,
    filter: Filter,
    after: Option<EventId>,
    place: OwnedSemaphorePermit,
) -> Body {
    let (send, receive) = mpsc::channel(PIECES);
    let stream = Stream { app: app.clone(), filter, last: after, send, _place: place };
    app.tasks.spawn(stream.run());
    Body(receive)
}

struct Stream {
    app: Arc<App>,
    filter: Filter,
    /// The newest event that was looked at.
    last: Option<EventId>,
    send: mpsc::Sender<Bytes>,
    _place: OwnedSemaphorePermit,
}

/// The client is gone, or the server is about to go.
struct Over;

impl Stream {
    async fn run(mut self) {
        let app = self.app.clone();
        let send = self.send.clone();
        tokio::select! {
            // Ends by one of the others.
            Err(Over) | Ok(()) = self.follow() => {}
            () = app.draining() => {}
            () = send.closed() => {}
        }
    }

    async fn follow(&mut self) -> Result<(), Over> {
        // Listening begins before looking back, so nothing falls between.
        let (_following, mut live) = self.app.hub.follow();
        let mut missed = self.app.hub.feed().subscribe(self.last);
        self.piece(Bytes::from_static(b"retry: 1000\n\n")).await?;
        loop {
            self.catch_up(&mut missed).await?;
            self.listen(&mut live).await?;
            missed = self.app.hub.feed().subscribe(self.last);
            if self.last.is_none() {
                // It fell behind before it saw anything that it could go on from.
                self.gap().await?;
            }
        }
    }

    /// Sends what the store's buffer has.
    async fn catch_up(&mut self, missed: &mut Subscription) -> Result<(), Over> {
        while let Some(delivery) = missed.ready() {
            match delivery {
                Delivery::Gap => self.gap().await?,
                Delivery::Events(events) => self.batch(&hub::write(events)).await?,
            }
        }
        Ok(())
    }

    /// Sends what happens, until it is too far behind.
    async fn listen(&mut self, live: &mut broadcast::Receiver<Arc<Batch>>) -> Result<(), Over> {
        loop {
            tokio::select! {
                batch = live.recv() => match batch {
                    Ok(batch) => self.batch(&batch).await?,
                    Err(RecvError::Lagged(_)) => return Ok(()),
                    Err(RecvError::Closed) => return Err(Over),
                },
                () = tokio::time::sleep(KEEP_ALIVE) => self.sign_of_life().await?,
            }
        }
    }

    async fn batch(&mut self, batch: &Batch) -> Result<(), Over> {
        let (events, text) = match batch {
            Batch::Gap => return self.gap().await,
            Batch::Events { events, text } => (events, text),
        };
        let seen = |e: &Written| self.last.is_some_and(|last| e.id.origin == last.origin && e.id <= last);
        let (first, newest) = match (events.first(), events.last()) {
            (Some(first), Some(newest)) => (first, newest.id),
            _ => return Ok(()),
        };
        let (piece, count) = if self.filter.is_empty() && !seen(first) {
            (text.clone(), events.len())
        } else {
            let mut piece = BytesMut::new();
            let mut count = 0;
            for event in events.iter().filter(|e| !seen(e) && self.filter.matches(&e.event)) {
                piece.extend_from_slice(&event.text);
                count += 1;
            }
            (piece.freeze(), count)
        };
        self.last =
            Some(self.last.filter(|last| last.origin == newest.origin).map_or(newest, |l| l.max(newest)));
        if count == 0 {
            return Ok(());
        }
        self.piece(piece).await?;
        self.pace(count).await;
        Ok(())
    }

    /// Leaves the rest of the machine to the engine: all streams together send so many events per second.
    async fn pace(&self, sent: usize) {
        let all = sent as f64 * self.app.hub.listeners() as f64;
        let pause = Duration::from_secs_f64(all / f64::from(self.app.limits.events_per_second.max(1)));
        if pause >= Duration::from_millis(1) {
            tokio::time::sleep_until(Instant::now() + pause.min(LONGEST_PAUSE)).await;
        }
    }

    async fn gap(&mut self) -> Result<(), Over> {
        self.piece(Bytes::from(format!("event: {GAP}\ndata: {{}}\n\n"))).await
    }

    /// A comment keeps proxies from closing the stream. With it goes the newest id: a client whose filter let nothing
    /// through for long comes back with a recent one.
    async fn sign_of_life(&mut self) -> Result<(), Over> {
        let id = self.last.map_or(String::new(), |id| format!("id: {id}\n"));
        self.piece(Bytes::from(format!(": alive\n{id}\n"))).await
    }

    async fn piece(&self, piece: Bytes) -> Result<(), Over> {
        self.send.send(piece).await.map_err(|_| Over)
    }
}
