//! One event stream: what was missed from the store's buffer, then what happens from the hub.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use hyper::body::Frame;
use tidegate_store::feed::{Delivery, EventId, Subscription};
use tidegate_wire::events::GAP;
use tokio::sync::broadcast::error::RecvError;
use tokio::sync::{OwnedSemaphorePermit, mpsc};
use tokio::time::{Instant, Sleep};

use crate::app::App;
use crate::audience::{Filter, Piece};
use crate::hub::Listening;

/// Time between two looks whether a stream said anything: a quiet one says that it lives within twice this time.
const KEEP_ALIVE: Duration = Duration::from_secs(10);
/// Pieces that may wait for the connection to take them.
const PIECES: usize = 4;
/// Catching up costs more than listening, as nobody shares what is written: a stream has this part of its share for it.
const CATCH_UP_SHARE: f64 = 0.25;
/// Longest pause of a stream that has used up its share.
const LONGEST_PAUSE: Duration = Duration::from_secs(5);

/// The body of a stream. What it sends is found out where it is sent, by the task of its connection: one wake-up for each
/// write, and no work for a client that does not read.
pub(crate) struct Body {
    running: Option<Pin<Box<dyn Future<Output = ()> + Send>>>,
    pieces: mpsc::Receiver<Bytes>,
}

impl hyper::body::Body for Body {
    type Data = Bytes;
    type Error = std::convert::Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Self::Error>>> {
        loop {
            // What it has sent comes out before it goes on. It alone sends, so it alone need be waited for.
            if let Ok(piece) = self.pieces.try_recv() {
                return Poll::Ready(Some(Ok(Frame::data(piece))));
            }
            let Some(running) = &mut self.running else { return Poll::Ready(None) };
            if running.as_mut().poll(cx).is_ready() {
                self.running = None;
            } else if self.pieces.is_empty() {
                return Poll::Pending;
            }
        }
    }
}

/// Starts a stream after this event, or from now on, for whoever has this key.
pub(crate) fn start(
    app: &Arc<App>,
    filter: Filter,
    key: Option<String>,
    after: Option<EventId>,
    place: OwnedSemaphorePermit,
) -> Body {
    let (send, pieces) = mpsc::channel(PIECES);
    let alive = Box::pin(tokio::time::sleep(KEEP_ALIVE));
    let stream = Stream { app: app.clone(), filter, last: after, send, alive, said: false };
    let running = async move {
        stream.run(key).await;
        drop(place);
    };
    Body { running: Some(Box::pin(running)), pieces }
}

struct Stream {
    app: Arc<App>,
    filter: Filter,
    /// The newest event that was looked at.
    last: Option<EventId>,
    send: mpsc::Sender<Bytes>,
    /// When to look whether anything was said; set again when it ends and not with each piece.
    alive: Pin<Box<Sleep>>,
    said: bool,
}

/// The server is about to go, or events have ended.
struct Over;

impl Stream {
    async fn run(mut self, key: Option<String>) {
        let app = self.app.clone();
        let _following = app.hub.follow();
        // Listening begins before looking back, so nothing falls between.
        let live = app.hub.listen(&self.filter);
        tokio::select! {
            Over = self.follow(live) => {}
            () = app.draining() => {}
            // A revocation counts for what has begun, too.
            () = app.keys.refused(key.as_deref()) => {}
        }
    }

    async fn follow(&mut self, mut live: Listening) -> Over {
        let mut missed = self.app.hub.feed().subscribe(self.last);
        let first = self.send(Bytes::from_static(b"retry: 1000\n\n")).await;
        if let Err(over) = first {
            return over;
        }
        loop {
            if let Err(over) = self.catch_up(&mut missed).await {
                return over;
            }
            if let Err(over) = self.listen(&mut live).await {
                return over;
            }
            missed = self.app.hub.feed().subscribe(self.last);
            if self.last.is_none()
                && let Err(over) = self.gap().await
            {
                // It fell behind before it saw anything that it could go on from.
                return over;
            }
        }
    }

    /// Sends what the store's buffer has.
    async fn catch_up(&mut self, missed: &mut Subscription) -> Result<(), Over> {
        while let Some(delivery) = missed.ready() {
            let events = match delivery {
                Delivery::Gap => {
                    self.gap().await?;
                    continue;
                }
                Delivery::Events(events) => events,
            };
            let newest = events.last().map(|(id, _)| *id);
            let these: Vec<_> = events.into_iter().filter(|(_, e)| self.filter.matches(e)).collect();
            let sent = self.piece(&Piece::write(these.iter(), newest, false)).await?;
            let share = self.app.hub.share() * CATCH_UP_SHARE;
            let pause = Duration::from_secs_f64(sent as f64 / share).min(LONGEST_PAUSE);
            if pause >= Duration::from_millis(1) {
                tokio::time::sleep(pause).await;
            }
        }
        Ok(())
    }

    /// Sends what happens, until it is too far behind.
    async fn listen(&mut self, live: &mut Listening) -> Result<(), Over> {
        loop {
            tokio::select! {
                piece = live.recv() => match piece {
                    Ok(piece) => { self.piece(&piece).await?; }
                    Err(RecvError::Lagged(_)) => return Ok(()),
                    Err(RecvError::Closed) => return Err(Over),
                },
                () = &mut self.alive => {
                    self.alive.as_mut().reset(Instant::now() + KEEP_ALIVE);
                    if std::mem::take(&mut self.said) {
                        continue;
                    }
                    let told = self.app.hub.told();
                    if live.is_empty() {
                        self.saw(told);
                    }
                    self.sign_of_life().await?;
                }
            }
        }
    }

    /// Sends a piece and returns how many events of it were new.
    async fn piece(&mut self, piece: &Piece) -> Result<usize, Over> {
        let (text, count) = piece.after(self.last);
        self.saw(piece.newest);
        if piece.gap {
            self.gap().await?;
        }
        if count > 0 {
            self.send(text).await?;
        }
        Ok(count)
    }

    /// Events up to this one were looked at. What the hub told last may be older than what was caught up with.
    fn saw(&mut self, newest: Option<EventId>) {
        let newer = |a: EventId, b: EventId| if a.origin == b.origin { a.max(b) } else { b };
        self.last = match (self.last, newest) {
            (Some(last), Some(newest)) => Some(newer(last, newest)),
            (last, newest) => newest.or(last),
        };
    }

    async fn gap(&mut self) -> Result<(), Over> {
        self.send(Bytes::from(format!("event: {GAP}\ndata: {{}}\n\n"))).await
    }

    /// A comment keeps proxies from closing the stream. With it goes the newest id: a client whose filter let nothing
    /// through for long comes back with a recent one.
    async fn sign_of_life(&mut self) -> Result<(), Over> {
        let id = self.last.map_or(String::new(), |id| format!("id: {id}\n"));
        self.send(Bytes::from(format!(": alive\n{id}\n"))).await
    }

    async fn send(&mut self, piece: Bytes) -> Result<(), Over> {
        self.said = true;
        self.send.send(piece).await.map_err(|_| Over)
    }
}
