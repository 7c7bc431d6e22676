//! What a type must say to be the payload of a kind of job.

use serde::Serialize;
use serde::de::DeserializeOwned;
use tidegate_core::registry::KindSettings;

use crate::Result;

/// The payload of a kind of job. Derive it:
///
/// ```
/// use tidegate::{Job, Priority};
///
/// #[derive(serde::Serialize, serde::Deserialize, Job)]
/// #[job(kind = "invoice.send", queue = "billing", timeout = "45s", priority = "high", max_attempts = 5)]
/// #[job(retry = "webhook", connector = "shopify", description = "Sends one invoice")]
/// struct SendInvoice {
///     order: u64,
/// }
///
/// assert_eq!(SendInvoice::KIND, "invoice.send");
/// let settings = SendInvoice::settings().unwrap();
/// assert_eq!((settings.timeout_ms, settings.priority), (45_000, Priority::High));
/// ```
///
/// Everything can be left out: the kind is then the type's name (`send-invoice`), the queue `default`, the timeout
/// 30 s. What cannot be right is an error while the program compiles:
///
/// ```compile_fail
/// #[derive(serde::Serialize, serde::Deserialize, tidegate::Job)]
/// #[job(timeout = "soon")]
/// struct SendInvoice;
/// ```
pub trait Job: Serialize + DeserializeOwned + Send + 'static {
    /// Name of the kind.
    const KIND: &'static str;

    /// Settings of the kind; a worker or the first enqueue registers them.
    fn settings() -> Result<KindSettings>;
}
