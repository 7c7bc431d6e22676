//! Why an attempt did not end well, and how any error becomes that.

use std::borrow::Cow;
use std::error::Error as StdError;
use std::fmt;
use std::time::Duration;

use tidegate_core::failure::{Category, Failure as Record, cut};
use tidegate_core::ids::ConnectorName;
use tidegate_core::job::ParkScope;
use tidegate_core::limits;
use tidegate_core::time::Timestamp;

use crate::{Error, classify};

type Source = Box<dyn StdError + Send + Sync>;

/// A failed attempt, with the category that decides what follows. `?` makes one from any error.
///
/// ```
/// use tidegate::{Category, Failure};
///
/// let gone = Failure::from(std::io::Error::from(std::io::ErrorKind::ConnectionReset));
/// assert_eq!((gone.category(), gone.code()), (Some(Category::TransientNetwork), "ECONNRESET"));
///
/// let told = Failure::throttled("40 calls a second are allowed").retry_after(std::time::Duration::from_secs(30));
/// assert_eq!(told.category(), Some(Category::TransientRateLimit));
/// ```
///
/// Without a category of its own an error counts as a defect of the handler (`LOGIC_ERROR`, code `ERROR`), which the
/// kind's or queue's policy retries. Give it a better one with [`Classify::or_fail`], or for a whole type with
/// [`Worker::classify`](crate::Worker::classify).
pub struct Failure(Box<Inner>);

pub(crate) enum Inner {
    Failed(Failed),
    Snooze(Snooze),
    Unfit(Error),
    Unready(String),
}

pub(crate) struct Failed {
    pub(crate) category: Category,
    pub(crate) code: Cow<'static, str>,
    pub(crate) message: String,
    pub(crate) retry_after: Option<Duration>,
    /// The error it was made from, as long as nobody has said its category: the worker's classifiers may.
    pub(crate) source: Option<Source>,
}

#[derive(Debug)]
pub(crate) struct Snooze {
    pub(crate) until: Timestamp,
    pub(crate) reason: String,
    pub(crate) park: Option<ParkScope>,
    /// The domain whose gates refused.
    pub(crate) gate: Option<ConnectorName>,
}

macro_rules! constructors {
    ($($(#[$doc:meta])* $name:ident => $category:ident;)*) => {
        $(
            $(#[$doc])*
            ///
            /// ```
            #[doc = concat!("let failure = tidegate::Failure::", stringify!($name), "(\"E_CODE\", \"what happened\");")]
            #[doc = concat!("assert_eq!(failure.category(), Some(tidegate::Category::", stringify!($category), "));")]
            /// ```
            pub fn $name(code: impl Into<Cow<'static, str>>, message: impl Into<String>) -> Self {
                Self::new(Category::$category, code, message)
            }
        )*
    };
}

impl Failure {
    /// A failure of this category. `code` is short and stable (`ETIMEDOUT`), for `retry_on` and `no_retry_on`; the
    /// message is for people and must hold no secret.
    ///
    /// ```
    /// use tidegate::{Category, Failure};
    /// let failure = Failure::new(Category::InvalidInput, "NO_SUCH_ORDER", "order 7 does not exist");
    /// assert_eq!(failure.to_string(), "INVALID_INPUT NO_SUCH_ORDER: order 7 does not exist");
    /// ```
    pub fn new(category: Category, code: impl Into<Cow<'static, str>>, message: impl Into<String>) -> Self {
        let (code, message) = (code.into(), message.into());
        Self(Box::new(Inner::Failed(Failed { category, code, message, retry_after: None, source: None })))
    }

    constructors! {
        /// The network failed; tried again with full jitter, six attempts.
        network => TransientNetwork;
        /// The other side failed (5xx); tried again, four attempts.
        server => TransientServer;
        /// A dependency is down; tried again, four attempts.
        unavailable => ResourceUnavailable;
        /// The grant is revoked or invalid: dead, a person must reauthorize.
        auth => PermanentAuth;
        /// Set up wrongly on our side: dead.
        config => PermanentConfig;
        /// Not allowed to do this: dead.
        permission => PermanentPermission;
        /// The payload or the request can never work: dead.
        invalid => InvalidInput;
        /// A defect of the handler; the kind's or queue's policy decides.
        logic => LogicError;
        /// A write whose effect is unknown: dead, for review.
        ambiguous => AmbiguousWrite;
    }

    /// The provider said: too many requests. Tried again, eleven attempts; name the delay with
    /// [`retry_after`](Self::retry_after) if the provider did.
    ///
    /// ```
    /// let failure = tidegate::Failure::throttled("slow down");
    /// assert_eq!(failure.code(), "RATE_LIMITED");
    /// ```
    pub fn throttled(message: impl Into<String>) -> Self {
        Self::new(Category::TransientRateLimit, "RATE_LIMITED", message)
    }

    /// From an error in a box, for errors that do not implement [`std::error::Error`] themselves.
    ///
    /// ```
    /// let failure = tidegate::Failure::from_boxed("just text".into());
    /// assert_eq!(failure.message(), "just text");
    /// ```
    pub fn from_boxed(source: Box<dyn StdError + Send + Sync>) -> Self {
        let (category, code) = classify::by_type(&*source);
        let message = sentence(&*source);
        Self(Box::new(Inner::Failed(Failed {
            category,
            code,
            message,
            retry_after: None,
            source: Some(source),
        })))
    }

    /// The server named a delay: the next attempt comes no sooner.
    ///
    /// ```
    /// use std::time::Duration;
    /// let failure = tidegate::Failure::server("HTTP_503", "down").retry_after(Duration::from_secs(90));
    /// assert_eq!(failure.code(), "HTTP_503");
    /// ```
    #[must_use]
    pub fn retry_after(mut self, delay: Duration) -> Self {
        if let Inner::Failed(failed) = &mut *self.0 {
            failed.retry_after = Some(delay);
        }
        self
    }

    /// Not the job's fault: this worker is set up so that it can do no job. The job goes back without spending an attempt, and
    /// the worker stops with this error, so that it does not bury one job after the other.
    ///
    /// ```
    /// use tidegate::{Error, Failure, codes};
    /// let failure = Failure::unfit(Error::new(codes::INVALID_SETTING, "there is no printer"));
    /// assert_eq!((failure.category(), failure.message()), (None, "there is no printer"));
    /// ```
    pub fn unfit(error: Error) -> Self {
        Self(Box::new(Inner::Unfit(error)))
    }

    /// Not the job's fault: this worker does not have now what jobs of this kind need, and has done nothing yet. The job goes back
    /// without spending an attempt, others may run it, and this worker claims nothing of its queue for a while: 100 ms at first, 5 s at most.
    /// Then it claims one job at a time, until an attempt of this kind that began later has succeeded or failed.
    ///
    /// The queue rests as a whole: kinds that need different things are better off in queues of their own. Each job that is claimed
    /// counts for the limiter of its queue, also the one that finds out every few seconds that nothing has changed.
    ///
    /// ```
    /// let failure = tidegate::Failure::unready("the printer is switched off");
    /// assert_eq!((failure.category(), failure.message()), (None, "the printer is switched off"));
    /// ```
    pub fn unready(reason: impl Into<String>) -> Self {
        Self(Box::new(Inner::Unready(reason.into())))
    }

    pub(crate) fn snoozed(until: Timestamp, reason: String, park: Option<ParkScope>) -> Self {
        Self(Box::new(Inner::Snooze(Snooze { until, reason, park, gate: None })))
    }

    /// Put off because gates refused.
    pub(crate) fn waiting(
        until: Timestamp,
        reason: String,
        park: Option<ParkScope>,
        gate: Option<ConnectorName>,
    ) -> Self {
        Self(Box::new(Inner::Snooze(Snooze { until, reason, park, gate })))
    }

    /// The category; `None` for a snooze and for a worker that is unfit or not ready, which are no failures of the job.
    ///
    /// ```
    /// use tidegate::{Category, Failure};
    /// assert_eq!(Failure::from(std::fmt::Error).category(), Some(Category::LogicError));
    /// ```
    pub fn category(&self) -> Option<Category> {
        match &*self.0 {
            Inner::Failed(failed) => Some(failed.category),
            Inner::Snooze(_) | Inner::Unfit(_) | Inner::Unready(_) => None,
        }
    }

    /// The short code; empty for a snooze.
    ///
    /// ```
    /// assert_eq!(tidegate::Failure::from(std::fmt::Error).code(), "ERROR");
    /// ```
    pub fn code(&self) -> &str {
        match &*self.0 {
            Inner::Failed(failed) => &failed.code,
            Inner::Snooze(_) | Inner::Unready(_) => "",
            Inner::Unfit(error) => error.code.id,
        }
    }

    /// What happened; for a snooze, its reason.
    ///
    /// ```
    /// assert_eq!(tidegate::Failure::logic("E", "no luck").message(), "no luck");
    /// ```
    pub fn message(&self) -> &str {
        match &*self.0 {
            Inner::Failed(failed) => &failed.message,
            Inner::Snooze(snooze) => &snooze.reason,
            Inner::Unfit(error) => &error.detail,
            Inner::Unready(reason) => reason,
        }
    }

    /// Whether this is a snooze on its way out of the handler.
    ///
    /// ```
    /// assert!(!tidegate::Failure::logic("E", "no luck").is_snooze());
    /// ```
    pub fn is_snooze(&self) -> bool {
        matches!(*self.0, Inner::Snooze(_))
    }

    /// Whether it is one because gates refused: such waits are counted apart from other snoozes.
    ///
    /// ```
    /// assert!(!tidegate::Failure::logic("E", "no luck").is_wait());
    /// ```
    pub fn is_wait(&self) -> bool {
        matches!(&*self.0, Inner::Snooze(snooze) if snooze.gate.is_some())
    }

    /// Whether the worker lacked something, and nothing was done.
    ///
    /// ```
    /// assert!(tidegate::Failure::unready("the printer is switched off").is_unready());
    /// ```
    pub fn is_unready(&self) -> bool {
        matches!(*self.0, Inner::Unready(_))
    }

    pub(crate) fn into_inner(self) -> Inner {
        *self.0
    }
}

impl Failed {
    /// As it is stored.
    pub(crate) fn into_record(self, now: Timestamp) -> Record {
        let mut record = Record::new(self.category, self.code, self.message);
        let delay = self.retry_after.map(|d| i64::try_from(d.as_millis()).unwrap_or(i64::MAX));
        record.retry_at = delay.map(|ms| now.plus_ms(ms));
        record
    }
}

impl<E: StdError + Send + Sync + 'static> From<E> for Failure {
    fn from(error: E) -> Self {
        Self::from_boxed(Box::new(error))
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &*self.0 {
            Inner::Failed(failed) => {
                write!(f, "{} {}: {}", failed.category.as_str(), failed.code, failed.message)
            }
            Inner::Snooze(snooze) => write!(f, "snoozed until {}: {}", snooze.until, snooze.reason),
            Inner::Unfit(error) => write!(f, "the worker is unfit: {error}"),
            Inner::Unready(reason) => write!(f, "the worker is not ready: {reason}"),
        }
    }
}

impl fmt::Debug for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// The error and its causes in one line, each said once.
fn sentence(error: &(dyn StdError + 'static)) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(next) = cause
        && text.len() < limits::MAX_ERROR_BYTES
    {
        let more = next.to_string();
        if !text.contains(&more) {
            text.push_str(": ");
            text.push_str(&more);
        }
        cause = next.source();
    }
    cut(text, limits::MAX_ERROR_BYTES)
}

/// Gives errors a category where they happen.
///
/// ```
/// use tidegate::{Category, Classify, Failure};
///
/// fn order(text: &str) -> Result<u64, Failure> {
///     Ok(text.parse::<u64>().or_fail(Category::InvalidInput, "NOT_A_NUMBER")?)
/// }
/// assert_eq!(order("seven").unwrap_err().category(), Some(Category::InvalidInput));
/// ```
pub trait Classify<T> {
    /// The value, or the error as a failure of this category.
    fn or_fail(self, category: Category, code: &'static str) -> Result<T, Failure>;
}

impl<T, E: Into<Box<dyn StdError + Send + Sync>>> Classify<T> for Result<T, E> {
    fn or_fail(self, category: Category, code: &'static str) -> Result<T, Failure> {
        self.map_err(|e| Failure::new(category, code, sentence(&*e.into())))
    }
}
