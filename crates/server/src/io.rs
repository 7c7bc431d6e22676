//! A connection's bytes, with every movement noted on its place.
//!
//! The HTTP parser notices that a client has left only while it has nothing of that client's to read. One that sent its
//! next request ahead and then left would go unnoticed, and jobs would be claimed for it. So who waits for a claim is
//! looked after here. (Who sends ahead more than the sockets hold is out of sight behind it; a lease takes care of that.)

use std::io;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use tokio::io::{AsyncRead, AsyncWrite, Interest, ReadBuf};
use tokio::net::TcpStream;
use tokio_rustls::server::TlsStream;

use crate::places::{Place, Places};

/// Something over a socket.
pub(crate) trait Wire {
    fn socket(&self) -> &TcpStream;
}

impl Wire for TcpStream {
    fn socket(&self) -> &TcpStream {
        self
    }
}

impl Wire for TlsStream<TcpStream> {
    fn socket(&self) -> &TcpStream {
        self.get_ref().0
    }
}

/// Whether the other side will send nothing more. If not, and nothing of it waits to be read, the task is woken when that
/// changes. (A socket counts as readable until a read finds nothing: to ask whether it is ready would wake nobody.)
fn has_left(socket: &TcpStream, cx: &mut Context<'_>) -> bool {
    let mut one = [0];
    match socket.poll_peek(cx, &mut ReadBuf::new(&mut one)) {
        Poll::Pending => false,
        Poll::Ready(Ok(0) | Err(_)) => true,
        Poll::Ready(Ok(_)) => {
            let ready = pin!(socket.ready(Interest::READABLE)).poll(&mut Context::from_waker(Waker::noop()));
            matches!(ready, Poll::Ready(Ok(ready)) if ready.is_read_closed())
        }
    }
}

pub(crate) struct Watched<S> {
    inner: S,
    place: Arc<Place>,
    places: Arc<Places>,
}

impl<S> Watched<S> {
    pub(crate) fn new(inner: S, place: Arc<Place>, places: Arc<Places>) -> Self {
        Self { inner, place, places }
    }

    fn wrote(&self, poll: Poll<io::Result<usize>>) -> Poll<io::Result<usize>> {
        match &poll {
            Poll::Ready(Ok(_)) => self.place.wrote(self.places.now()),
            Poll::Ready(Err(_)) => {}
            Poll::Pending => self.place.stuck(self.places.now()),
        }
        poll
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Watched<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buf.filled().len();
        let poll = Pin::new(&mut self.inner).poll_read(cx, buf);
        if poll.is_ready() && buf.filled().len() > before {
            self.place.read(self.places.now());
        }
        poll
    }
}

impl<S: AsyncWrite + Wire + Unpin> AsyncWrite for Watched<S> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        let poll = Pin::new(&mut self.inner).poll_write(cx, buf);
        self.wrote(poll)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let poll = Pin::new(&mut self.inner).poll_write_vectored(cx, bufs);
        self.wrote(poll)
    }

    fn is_write_vectored(&self) -> bool {
        self.inner.is_write_vectored()
    }

    /// Called whenever the connection's task is woken, and before jobs count as delivered.
    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        if self.place.is_attended() && has_left(self.inner.socket(), cx) {
            return Poll::Ready(Err(io::ErrorKind::ConnectionAborted.into()));
        }
        let poll = Pin::new(&mut self.inner).poll_flush(cx);
        if let Poll::Ready(Ok(())) = &poll {
            self.place.flushed();
        }
        poll
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.inner).poll_shutdown(cx)
    }
}

#[cfg(test)]
mod tests {
    use std::future::poll_fn;
    use std::net::Ipv4Addr;

    use tokio::io::AsyncWriteExt;
    use tokio::net::TcpListener;

    use super::*;
    use crate::Limits;

    /// A connection whose claim is being answered, and whose client has left, as far as the system knows.
    async fn left(write_first: bool) -> Watched<TcpStream> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
        let client = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
        let (server, peer) = listener.accept().await.unwrap();
        let places = Arc::new(Places::new(Limits::default(), 1));
        let place = places.take(1, peer).unwrap();
        let mut watched = Watched::new(server, place, places);
        watched.place.begin();
        watched.place.attend();
        if write_first {
            watched.write_all(b"the answer").await.unwrap();
        }
        drop(client);
        let seen = |cx: &mut Context<'_>| {
            if has_left(&watched.inner, cx) { Poll::Ready(()) } else { Poll::Pending }
        };
        poll_fn(seen).await;
        watched
    }

    #[tokio::test]
    async fn a_client_that_leaves_before_its_answer_ends_the_connection() {
        let error = left(false).await.flush().await.unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::ConnectionAborted);
    }

    #[tokio::test]
    async fn a_client_that_leaves_with_its_answer_has_got_it() {
        left(true).await.flush().await.unwrap();
    }
}
