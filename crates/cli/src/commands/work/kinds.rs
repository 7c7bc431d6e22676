//! Which kinds a worker handles. One that nobody has registered is registered by working on it, unless it looks like a slip.

use tidegate::KindSettings;
use tidegate_core::codes;
use tidegate_core::ids::{ConnectorName, KindName, QueueName};
use tidegate_core::job::State;
use tidegate_core::near::{is_slip, nearest};
use tidegate_store::Store;
use tidegate_store::params::{JobQuery, KindView};

use crate::error::{Failure, Result};

/// Queue of a kind that is registered here.
const DEFAULT_QUEUE: &str = "default";

/// The kinds to handle.
pub(super) struct Kinds {
    /// Each with its settings if it is to be registered.
    pub(super) list: Vec<(KindName, Option<KindSettings>)>,
    /// Those of the new ones that have a similar name among the others, and the nearest.
    similar: Vec<(KindName, KindName)>,
    /// New ones that may be a slip of the finger, each with everything that may have been meant.
    slips: Vec<(KindName, KindName)>,
}

impl Kinds {
    /// Those that are registered here.
    pub(super) fn registered(&self) -> impl Iterator<Item = &KindName> {
        self.list.iter().filter(|(_, settings)| settings.is_some()).map(|(name, _)| name)
    }

    /// What may have been meant in place of a new kind.
    pub(super) fn meant(&self) -> Option<String> {
        self.similar.first().map(|(new, known)| format!("Did you mean `{known}` in place of `{new}`?"))
    }

    /// Refuses a new kind while jobs wait whose kind's name differs by no more than a slip of the finger: nobody has enqueued any of the
    /// new one. In an empty store nothing waits, so whatever starts with one goes on.
    pub(super) async fn refuse_a_slip(&self, store: &dyn Store) -> Result<()> {
        for (new, known) in &self.slips {
            let states = vec![State::Ready, State::Scheduled];
            let waiting = JobQuery { states, kind: Some(known.clone()), limit: 1, ..JobQuery::default() };
            // A key that may not look at jobs is told at the start what may have been meant.
            if store.search(waiting).await.is_ok_and(|page| !page.jobs.is_empty()) {
                let detail = format!("no kind `{new}` is registered, and jobs of `{known}` wait");
                let hint = format!("did you mean `{known}`? --new registers `{new}` as a kind of its own");
                return Err(Failure::new(codes::UNKNOWN_KIND, detail).hint(hint));
            }
        }
        Ok(())
    }
}

/// The kinds that were named, or all of the queues.
pub(super) async fn choose(
    store: &dyn Store,
    named: &[KindName],
    queues: &[QueueName],
    (timeout_ms, connector): (Option<i64>, Option<&ConnectorName>),
) -> Result<Kinds> {
    let known = store.kinds().await?;
    if named.is_empty() {
        return all_of(queues, known);
    }
    let queue = queues.first().cloned().map_or_else(|| QueueName::new(DEFAULT_QUEUE), Ok)?;
    let settings = |name: &KindName| {
        let mut settings = KindSettings::new(queue.clone());
        settings.timeout_ms = timeout_ms.unwrap_or(settings.timeout_ms);
        settings.connector = connector.cloned();
        (!known.iter().any(|k| k.name == *name)).then_some(settings)
    };
    let list: Vec<_> = named.iter().map(|name| (name.clone(), settings(name))).collect();
    // What is named beside it was not meant in its place.
    let others = || known.iter().filter(|k| !named.contains(&k.name));
    let near = |new: &KindName| {
        let near = nearest(new.as_str(), others().map(|k| k.name.as_str()))?;
        others().find(|k| k.name.as_str() == near).map(|k| (new.clone(), k.name.clone()))
    };
    let new = || list.iter().filter(|(_, settings)| settings.is_some()).map(|(name, _)| name);
    let similar = new().filter_map(near).collect();
    let slip = |new: &KindName| {
        let known = others().filter(|k| is_slip(new.as_str(), k.name.as_str()));
        known.map(|k| (new.clone(), k.name.clone())).collect::<Vec<_>>()
    };
    let slips = new().flat_map(slip).collect();
    Ok(Kinds { list, similar, slips })
}

fn all_of(queues: &[QueueName], known: Vec<KindView>) -> Result<Kinds> {
    let served = |k: &KindView| queues.contains(&k.settings.queue);
    let near = |queue: &QueueName| nearest(queue.as_str(), known.iter().map(|k| k.settings.queue.as_str()));
    let near =
        queues.iter().find_map(|queue| Some(format!("did you mean --queue {}? Otherwise ", near(queue)?)));
    let list: Vec<_> = known.into_iter().filter(served).map(|k| (k.name, None)).collect();
    if list.is_empty() {
        let queues: Vec<&str> = queues.iter().map(QueueName::as_str).collect();
        let detail = format!("no kind is registered in {}", queues.join(", "));
        return Err(Failure::new(codes::UNKNOWN_KIND, detail)
            .hint(format!("{}name one with --kind, and it is registered", near.unwrap_or_default())));
    }
    Ok(Kinds { list, similar: vec![], slips: vec![] })
}
