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
use tokio::sync::{OwnedSemaphorePermit, broadcast, mpsc};

use crate::app::App;
use crate::audience::{Filter, Piece};

/// Time between two signs of life on a quiet stream.
const KEEP_ALIVE: Duration = Duration::from_secs(15);
/// Pieces that may wait for a client that reads slowly.
const PIECES: usize = 4;
/// Catching up costs more than listening, as nobody shares what is written: a stream has this part of its share for it.
const CATCH_UP_SHARE: f64 = 0.25;
/// Longest pause of a stream that has used up its share.
const LONGEST_PAUSE: Duration = Duration::from_secs(5);

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
        let (app, send, filter) = (self.app.clone(), self.send.clone(), self.filter.clone());
        let _following = app.hub.follow();
        // Listening begins before looking back, so nothing falls between.
        let live = app.hub.listen(&filter);
        tokio::select! {
            Over = self.follow(live) => {}
            () = app.draining() => {}
            () = send.closed() => {}
        }
        app.hub.leave(&filter);
    }

    async fn follow(&mut self, mut live: broadcast::Receiver<Arc<Piece>>) -> Over {
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
    async fn listen(&mut self, live: &mut broadcast::Receiver<Arc<Piece>>) -> Result<(), Over> {
        loop {
            tokio::select! {
                piece = live.recv() => match piece {
                    Ok(piece) => { self.piece(&piece).await?; }
                    Err(RecvError::Lagged(_)) => return Ok(()),
                    Err(RecvError::Closed) => return Err(Over),
                },
                () = tokio::time::sleep(KEEP_ALIVE) => {
                    let told = self.app.hub.told();
                    if live.is_empty() {
                        self.last = told.or(self.last);
                    }
                    self.sign_of_life().await?;
                }
            }
        }
    }

    /// Sends a piece and returns how many events of it were new.
    async fn piece(&mut self, piece: &Piece) -> Result<usize, Over> {
        let (text, count) = piece.after(self.last);
        let newer = |a: EventId, b: EventId| if a.origin == b.origin { a.max(b) } else { b };
        self.last = match (self.last, piece.newest) {
            (Some(last), Some(newest)) => Some(newer(last, newest)),
            (last, newest) => newest.or(last),
        };
        if piece.gap {
            self.gap().await?;
        }
        if count > 0 {
            self.send(text).await?;
        }
        Ok(count)
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

    async fn send(&self, piece: Bytes) -> Result<(), Over> {
        self.send.send(piece).await.map_err(|_| Over)
    }
}
