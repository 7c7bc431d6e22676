//! Who is to hear of an event.

use tidegate_core::codes;
use tidegate_core::ids::{EventName, KindName};
use tidegate_core::limits;
use tidegate_core::near::nearest;

use crate::{Error, Result, Store};

/// The kinds that subscribe to an event, by name: each of them gets a job. An event that nobody subscribes to is a mistake, for
/// it would be lost.
pub async fn subscribers(store: &dyn Store, event: &EventName) -> Result<Vec<KindName>> {
    let known = store.kinds().await?;
    let subscribed = known.iter().filter(|k| k.settings.on.contains(event));
    let subscribed: Vec<KindName> = subscribed.map(|k| k.name.clone()).collect();
    if subscribed.is_empty() {
        let events = known.iter().flat_map(|k| &k.settings.on).map(EventName::as_str);
        let near =
            nearest(event.as_str(), events).map_or(String::new(), |n| format!("; did you mean `{n}`?"));
        return Err(Error::new(codes::UNKNOWN_EVENT, format!("no kind subscribes to `{event}`{near}")));
    }
    if subscribed.len() > limits::MAX_SUBSCRIBERS {
        let (n, most) = (subscribed.len(), limits::MAX_SUBSCRIBERS);
        let detail = format!("{n} kinds subscribe to `{event}`; at most {most} may");
        return Err(Error::new(codes::INVALID_BATCH, detail));
    }
    Ok(subscribed)
}
