//! Handlers without their types, so that one worker can hold many.

use std::pin::Pin;

use tidegate_core::failure::Category;
use tidegate_core::registry::KindSettings;

use crate::{Context, Failure, IntoOutcome, Job, Outcome, Result};

/// A handler at work.
pub(crate) type Work = Pin<Box<dyn Future<Output = Outcome> + Send>>;

type Start = Box<dyn Fn(&str, Context) -> Result<Work, Failure> + Send + Sync>;

/// A handler of one kind.
pub(crate) struct Handler {
    pub(crate) kind: &'static str,
    pub(crate) settings: fn() -> Result<KindSettings>,
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
        Self { kind: J::KIND, settings: J::settings, start }
    }

    /// Parses the payload and calls the handler. Nothing of it has run yet.
    pub(crate) fn start(&self, cx: Context) -> Result<Work, Failure> {
        let payload = cx.job().payload.clone();
        (self.start)(payload.as_str(), cx)
    }
}
