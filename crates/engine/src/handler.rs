//! Handlers without their types, so that one worker can hold many.

use std::borrow::Cow;
use std::pin::Pin;

use tidegate_core::failure::Category;
use tidegate_core::registry::KindSettings;

use crate::{Context, Failure, IntoOutcome, Job, Outcome, Result};

/// A handler at work.
pub(crate) type Work = Pin<Box<dyn Future<Output = Outcome> + Send>>;

/// Where the settings of a handler's kind come from.
pub(crate) enum Settings {
    /// Its type; registered once per handle.
    Typed(fn() -> Result<KindSettings>),
    /// Given with the handler.
    Given(Box<KindSettings>),
    /// It must be registered already, and stays as it is.
    Registered,
}

type Start = Box<dyn Fn(&str, Context) -> Result<Work, Failure> + Send + Sync>;

/// A handler of one kind.
pub(crate) struct Handler {
    pub(crate) kind: Cow<'static, str>,
    pub(crate) settings: Settings,
    start: Start,
}

impl Handler {
    pub(crate) fn new<J, F, Fut>(f: F) -> Self
    where
        J: Job,
        F: Fn(J, Context) -> Fut + Send + Sync + 'static,
        Fut: Future + Send + 'static,
        Fut::Output: IntoOutcome,
    {
        let start: Start = Box::new(move |payload, cx| {
            let payload: J = serde_json::from_str(payload)
                .map_err(|e| Failure::new(Category::InvalidInput, "INVALID_PAYLOAD", e.to_string()))?;
            let work = f(payload, cx);
            Ok(Box::pin(async move { work.await.into_outcome() }))
        });
        Self { kind: Cow::Borrowed(J::KIND), settings: Settings::Typed(J::settings), start }
    }

    /// A handler that reads the payload itself.
    pub(crate) fn untyped<F, Fut>(kind: &str, settings: Option<KindSettings>, f: F) -> Self
    where
        F: Fn(Context) -> Fut + Send + Sync + 'static,
        Fut: Future + Send + 'static,
        Fut::Output: IntoOutcome,
    {
        let start: Start = Box::new(move |_, cx| {
            let work = f(cx);
            Ok(Box::pin(async move { work.await.into_outcome() }))
        });
        let settings = settings.map_or(Settings::Registered, |s| Settings::Given(Box::new(s)));
        Self { kind: Cow::Owned(kind.to_owned()), settings, start }
    }

    /// Parses the payload and calls the handler. Nothing of it has run yet.
    pub(crate) fn start(&self, cx: Context) -> Result<Work, Failure> {
        let payload = cx.job().payload.clone();
        (self.start)(payload.as_str(), cx)
    }
}
