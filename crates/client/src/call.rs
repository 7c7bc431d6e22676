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

use crate::address::Address;
use crate::backoff::Backoff;
use crate::transport::{Answer, How, Lost, Message, Transport};
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
    /// Done twice is not the same as done once: never sent again if it may have been done.
    once: bool,
}

impl Call {
    fn new(method: Method, path: impl Into<String>) -> Self {
        let message = Message { method, path: path.into(), body: Bytes::new(), idempotency_key: None };
        Self { message, patience: None, within: None, once: false }
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

    /// Is not sent again if the server may have done it.
    #[must_use]
    pub(crate) fn once(mut self) -> Self {
        self.once = true;
        self
    }

    /// The server does it once, however often it is sent.
    #[must_use]
    pub(crate) fn known_as(mut self, key: String) -> Self {
        self.message.idempotency_key = Some(key);
        self
    }

    /// Waits this long for an answer.
    #[must_use]
    pub(crate) fn within(mut self, within: Duration) -> Self {
        self.within = Some(within);
        self
    }
}

/// A reply, and whether the request was sent before and may have been done then.
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
        self.answer(call).await.value.map(drop)
    }

    /// Calls something that replies with nothing, and says whether it may have been done before.
    pub(crate) async fn done_or_repeated(&self, call: Call) -> Reply<Result<()>> {
        let answer = self.answer(call).await;
        Reply { value: answer.value.map(drop), repeated: answer.repeated }
    }

    /// Calls something that ends the existence of something, and says with this code that it did not exist. False if it
    /// said so, unless that was the work of a request whose reply was lost.
    pub(crate) async fn done_if_found(&self, call: Call, missing: codes::Code) -> Result<bool> {
        let answer = self.answer(call).await;
        match answer.value {
            Ok(_) => Ok(true),
            Err(e) if e.code == missing => Ok(answer.repeated),
            Err(e) => Err(e),
        }
    }

    pub(crate) async fn ask<T: DeserializeOwned>(&self, call: Call) -> Result<Reply<T>> {
        let answer = self.answer(call).await;
        let value = serde_json::from_slice(&answer.value?).map_err(|e| {
            Error::new(codes::SERVER_MISMATCH, format!("the server's reply cannot be read: {e}"))
        })?;
        Ok(Reply { value, repeated: answer.repeated })
    }

    /// Sends until there is an answer that is not about being out of reach, or patience ends.
    async fn answer(&self, call: Call) -> Reply<Result<Bytes>> {
        let mut repeated = false;
        let value = self.answer_or_repeat(call, &mut repeated).await;
        Reply { value, repeated }
    }

    async fn answer_or_repeat(&self, call: Call, repeated: &mut bool) -> Result<Bytes> {
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
                Ok(answer) if answer.status.is_success() => return Ok(answer.body),
                Ok(answer) => Refusal::read(&answer),
                Err(lost) => Refusal::lost(self.transport.address(), &lost, tries == 0),
            };
            tries += 1;
            let pause = match refused.again {
                Again::No => return Err(refused.error),
                _ if call.once && refused.may_be_done => return Err(refused.error),
                Again::AtOnce => Duration::ZERO,
                Again::In(pause) => pause,
                Again::Later => backoff.pause(),
            };
            let patient = end.is_some_and(|end| Instant::now() + pause < end);
            if !patient && refused.again != Again::AtOnce {
                return Err(refused.error);
            }
            *repeated |= refused.may_be_done;
            tracing::debug!(code = %refused.error.code, tries, "a request is sent again: {}", refused.error);
            tokio::time::sleep(pause).await;
        }
    }
}

/// Why a request was not done.
struct Refusal {
    error: Error,
    again: Again,
    /// The server may have done it all the same.
    may_be_done: bool,
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
    /// It was refused, and nothing was done.
    fn not_done(error: Error, again: Again) -> Self {
        Self { error, again, may_be_done: false }
    }

    /// There was no answer.
    fn lost(address: &Address, lost: &Lost, first: bool) -> Self {
        let error = Error::new(codes::SERVER_UNREACHABLE, format!("{address} did not answer: {}", lost.why));
        let again = if first && lost.how == How::Broke { Again::AtOnce } else { Again::Later };
        Self { error, again, may_be_done: lost.how != How::NotSent }
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
                Self { error: Error::new(codes::SERVER_STOPPING, error.detail), again, may_be_done: true }
            }
            // The server is there and its store is not: the same to a client as neither. A commit whose end the server
            // did not hear of may have been one.
            codes::STORE_UNREACHABLE | codes::STORE_FAILED => Self { error, again, may_be_done: true },
            // A worker must not take this for a verdict on its outcomes.
            codes::TOO_MANY_REQUESTS | codes::TOO_MANY_WAITING | codes::SERVER_BUSY => {
                let detail = format!("the server asks to slow down: {}", error.detail);
                Self::not_done(Error::new(codes::SERVER_UNREACHABLE, detail), again)
            }
            _ => Self::not_done(error, Again::No),
        }
    }

    /// The answer of something that is no Tidegate server: a proxy in front of one, or something else altogether.
    fn foreign(status: StatusCode) -> Self {
        let text = format!("the answer was HTTP {status} without an explanation");
        match status.as_u16() {
            // A proxy that did not hear from the server does not know what the server did.
            408 | 429 | 500..=599 => {
                let error = Error::new(codes::SERVER_UNREACHABLE, text);
                Self { error, again: Again::Later, may_be_done: status != StatusCode::TOO_MANY_REQUESTS }
            }
            _ => Self::not_done(Error::new(codes::SERVER_MISMATCH, text), Again::No),
        }
    }
}
