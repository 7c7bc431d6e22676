//! Calls: JSON out, JSON in, problems as errors, and what is lost on the way is sent again.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use bytes::Bytes;
use hyper::{Method, StatusCode};
use serde::Serialize;
use serde::de::DeserializeOwned;
use tidegate_core::codes;
use tidegate_store::{Error, Result};
use tidegate_wire::Problem;
use tokio::sync::watch;
use tokio::time::Instant;

use crate::backoff::Backoff;
use crate::transport::{Answer, Message, Transport};
use crate::{RemoteOptions, Timeouts};

/// Longest wait for the stream of events to open.
const HELD_BACK: Duration = Duration::from_secs(2);

/// One call of the API.
#[derive(Debug)]
pub(crate) struct Call {
    message: Message,
    /// How long it is sent again; none: the engine repeats it by its own rules.
    patience: Option<Duration>,
    within: Option<Duration>,
}

impl Call {
    fn new(method: Method, path: impl Into<String>) -> Self {
        let message = Message { method, path: path.into(), body: Bytes::new() };
        Self { message, patience: None, within: None }
    }

    pub(crate) fn get(path: impl Into<String>) -> Self {
        Self::new(Method::GET, path)
    }

    pub(crate) fn delete(path: impl Into<String>) -> Self {
        Self::new(Method::DELETE, path)
    }

    /// A request that says everything by its path.
    pub(crate) fn tell(path: impl Into<String>) -> Self {
        Self::new(Method::POST, path)
    }

    pub(crate) fn post(path: impl Into<String>, body: &impl Serialize) -> Result<Self> {
        Self::new(Method::POST, path).with(body)
    }

    pub(crate) fn put(path: impl Into<String>, body: &impl Serialize) -> Result<Self> {
        Self::new(Method::PUT, path).with(body)
    }

    fn with(mut self, body: &impl Serialize) -> Result<Self> {
        let body = serde_json::to_vec(body)
            .map_err(|e| Error::new(codes::INVALID_REQUEST, format!("this cannot be sent as JSON: {e}")))?;
        self.message.body = Bytes::from(body);
        Ok(self)
    }

    /// Sends it again for this long while the server is out of reach.
    #[must_use]
    pub(crate) fn patient(mut self, patience: Duration) -> Self {
        self.patience = Some(patience);
        self
    }

    /// Waits this long for an answer.
    #[must_use]
    pub(crate) fn within(mut self, within: Duration) -> Self {
        self.within = Some(within);
        self
    }
}

/// A reply, and whether the request was sent more than once: the server may then have done it before.
#[derive(Debug)]
pub(crate) struct Reply<T> {
    pub(crate) value: T,
    pub(crate) repeated: bool,
}

/// Calls one server.
pub(crate) struct Caller {
    transport: Transport,
    timeouts: Timeouts,
    closed: AtomicBool,
    /// Whether calls have to wait for the stream of events.
    held_back: watch::Sender<bool>,
}

impl Caller {
    pub(crate) fn new(transport: Transport, options: &RemoteOptions) -> Self {
        Self {
            transport,
            timeouts: options.timeouts.clone(),
            closed: AtomicBool::new(false),
            held_back: watch::Sender::new(false),
        }
    }

    pub(crate) fn transport(&self) -> &Transport {
        &self.transport
    }

    pub(crate) fn timeouts(&self) -> &Timeouts {
        &self.timeouts
    }

    /// Refuses everything from now on.
    pub(crate) fn close(&self) {
        self.closed.store(true, Ordering::Release);
    }

    /// Has calls wait for the stream of events to open.
    pub(crate) fn hold_back(&self) {
        self.held_back.send_replace(true);
    }

    /// Lets calls go on.
    pub(crate) fn go_on(&self) {
        self.held_back.send_if_modified(|held| std::mem::replace(held, false));
    }

    /// Calls, and reads the reply.
    pub(crate) async fn read<T: DeserializeOwned>(&self, call: Call) -> Result<T> {
        Ok(self.ask(call).await?.value)
    }

    /// Calls something that replies with nothing.
    pub(crate) async fn done(&self, call: Call) -> Result<()> {
        self.answer(call).await.map(drop)
    }

    /// Calls something that says it did not exist with this code. False if it said so.
    pub(crate) async fn done_if_found(&self, call: Call, missing: codes::Code) -> Result<bool> {
        match self.answer(call).await {
            Ok(_) => Ok(true),
            Err(e) if e.code == missing => Ok(false),
            Err(e) => Err(e),
        }
    }

    pub(crate) async fn ask<T: DeserializeOwned>(&self, call: Call) -> Result<Reply<T>> {
        let answer = self.answer(call).await?;
        let value = serde_json::from_slice(&answer.value).map_err(|e| {
            Error::new(codes::SERVER_MISMATCH, format!("the server's reply cannot be read: {e}"))
        })?;
        Ok(Reply { value, repeated: answer.repeated })
    }

    /// Sends until there is an answer that is not about being out of reach, or patience ends.
    async fn answer(&self, call: Call) -> Result<Reply<Bytes>> {
        let uri = self.transport.uri(&call.message.path)?;
        let within = call.within.unwrap_or(self.timeouts.request);
        if *self.held_back.borrow() {
            let mut held = self.held_back.subscribe();
            let _ = tokio::time::timeout(HELD_BACK, held.wait_for(|held| !held)).await;
        }
        let end = call.patience.map(|p| Instant::now() + p);
        let (mut backoff, mut tries) = (Backoff::new(), 0_u32);
        loop {
            if self.closed.load(Ordering::Acquire) {
                return Err(Error::new(codes::STORE_CLOSED, "the store is closed"));
            }
            let refused = match self.transport.exchange(&uri, &call.message, within).await {
                Ok(answer) if answer.status.is_success() => {
                    return Ok(Reply { value: answer.body, repeated: tries > 0 });
                }
                Ok(answer) => Refusal::read(&answer),
                Err(lost) => {
                    let text = format!("{} did not answer: {}", self.transport.address(), lost.why);
                    let first = lost.broke && tries == 0;
                    Refusal::unreachable(text, if first { Again::AtOnce } else { Again::Later })
                }
            };
            tries += 1;
            let pause = match refused.again {
                Again::No => return Err(refused.error),
                Again::AtOnce => Duration::ZERO,
                Again::In(pause) => pause,
                Again::Later => backoff.pause(),
            };
            let patient = end.is_some_and(|end| Instant::now() + pause < end);
            if !patient && refused.again != Again::AtOnce {
                return Err(refused.error);
            }
            tracing::debug!(code = %refused.error.code, tries, "a request is sent again: {}", refused.error);
            tokio::time::sleep(pause).await;
        }
    }
}

/// Why a request was not done.
struct Refusal {
    error: Error,
    again: Again,
}

/// Whether to send a request again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Again {
    No,
    /// An idle connection had been closed: this costs no patience.
    AtOnce,
    /// When the server said.
    In(Duration),
    /// After the next pause.
    Later,
}

impl Again {
    fn in_ms(ms: Option<u64>) -> Self {
        ms.map_or(Self::Later, |ms| Self::In(Duration::from_millis(ms)))
    }
}

impl Refusal {
    fn unreachable(detail: String, again: Again) -> Self {
        Self { error: Error::new(codes::SERVER_UNREACHABLE, detail), again }
    }

    fn read(answer: &Answer) -> Self {
        let Ok(problem) = serde_json::from_slice::<Problem>(&answer.body) else {
            return Self::foreign(answer.status);
        };
        let again = Again::in_ms(problem.retry_after_ms);
        let error = Error::from(problem);
        match error.code {
            // A server that stops has closed its store; for its clients it is out of reach, not closed for good.
            codes::STORE_CLOSED | codes::SERVER_STOPPING => {
                let error = Error::new(codes::SERVER_STOPPING, error.detail);
                Self { error, again }
            }
            // A worker must not take this for a verdict on its outcomes.
            codes::TOO_MANY_REQUESTS | codes::TOO_MANY_WAITING => {
                let detail = format!("the server asks to slow down: {}", error.detail);
                Self::unreachable(detail, again)
            }
            _ => Self { error, again: Again::No },
        }
    }

    /// The answer of something that is no Tidegate server: a proxy in front of one, or something else altogether.
    fn foreign(status: StatusCode) -> Self {
        let text = format!("the answer was HTTP {status} without an explanation");
        match status.as_u16() {
            408 | 429 | 500..=599 => Self::unreachable(text, Again::Later),
            _ => Self { error: Error::new(codes::SERVER_MISMATCH, text), again: Again::No },
        }
    }
}
