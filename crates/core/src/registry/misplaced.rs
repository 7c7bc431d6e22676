//! What a document names must be in it, or in the store that it comes to.

use super::fields::join;
use super::reading::Spoiled;
use super::{Document, Identity, KindSettings, Problem};
use crate::alerts::MAX_WATCHED_KINDS;
use crate::ids::{KindName, QueueName};
use crate::limits;
use crate::near::nearest;

/// Says of what is missing that only the document was looked at.
pub(super) const ALONE: &str = " in the document";

impl Document {
    /// What is wrong with it in a store that has this registry; `None`: by itself.
    pub fn misplaced(&self, there: Option<&Self>) -> Vec<Problem> {
        let mut problems = misplaced(self, there, &Spoiled::default());
        problems.extend(oversized(self, there, None));
        problems
    }
}

/// Queues and policies that are named and are nowhere.
pub(super) fn misplaced(document: &Document, there: Option<&Document>, spoiled: &Spoiled) -> Vec<Problem> {
    let mut problems = vec![];
    for (name, queue) in &document.queues {
        let path = join("queues", name.as_str());
        problems.extend(unknown_policy(document, there, spoiled, &path, queue.policy.as_deref()));
    }
    for (name, kind) in &document.kinds {
        let path = join("kinds", name.as_str());
        if !spoiled.queueless.contains(name) && !spoiled.queues {
            problems.extend(unknown_queue(document, there, &path, &kind.queue));
        }
        problems.extend(unknown_policy(document, there, spoiled, &path, kind.policy.as_deref()));
    }
    problems
}

fn unknown_queue(
    document: &Document,
    there: Option<&Document>,
    path: &str,
    queue: &QueueName,
) -> Option<Problem> {
    let mut known = std::iter::once(document).chain(there);
    if known.any(|d| d.queues.contains_key(queue)) {
        return None;
    }
    let known = std::iter::once(document).chain(there).flat_map(|d| d.queues.keys());
    let near = nearest(queue.as_str(), known.map(QueueName::as_str));
    let near = near.map_or(String::new(), |n| format!("; did you mean `{n}`?"));
    let what = match there {
        Some(_) => {
            format!(
                "there is no queue {queue}{near}; add [queues.{queue}] to the document, even if it is empty"
            )
        }
        None => {
            format!("there is no queue {queue}{ALONE}{near}; add [queues.{queue}], even if it is empty")
        }
    };
    Some(Problem { path: join(path, "queue"), what })
}

fn unknown_policy(
    document: &Document,
    there: Option<&Document>,
    spoiled: &Spoiled,
    path: &str,
    name: Option<&str>,
) -> Option<Problem> {
    let mut known = std::iter::once(document).chain(there).map(|d| &d.policies);
    let name = name.filter(|n| !spoiled.policies && known.all(|p| p.named(n).is_none()))?;
    let stored = there.into_iter().flat_map(|d| d.policies.named.keys().map(String::as_str));
    let known: Vec<&str> = document.policies.names().chain(stored).collect();
    let near = nearest(name, known.iter().copied());
    let near = near
        .map_or_else(|| format!("; there are {}", known.join(", ")), |n| format!("; did you mean `{n}`?"));
    let place = if there.is_some() { "" } else { ALONE };
    Some(Problem { path: join(path, "retry"), what: format!("there is no policy {name:?}{place}{near}") })
}

/// What is wrong with a secret that is not known.
pub const HIDDEN: &str = "a secret is written as it is shown, `***`; write the secret itself";

/// Secrets that are written as they are shown, of kinds that a store does not have: nobody knows them.
pub(super) fn masked(document: &Document, there: Option<&Document>) -> Vec<Problem> {
    let what = match there {
        Some(_) => HIDDEN.to_owned(),
        None => {
            format!("a secret is written as it is shown, `***`, and is not{ALONE}; write the secret itself")
        }
    };
    let new = document.kinds.iter().filter(|(name, _)| there.is_none_or(|d| !d.kinds.contains_key(*name)));
    let problem = |(name, field): (&KindName, &str)| {
        let path = format!("{}.{field}", join("kinds", name.as_str()));
        Problem { path, what: what.clone() }
    };
    new.flat_map(|(name, kind)| kind.hidden(None).into_iter().map(move |field| (name, field)))
        .map(problem)
        .collect()
}

/// Where it is more than there may be. What `this` has and the document no longer names is not watched any more.
pub(super) fn oversized(
    document: &Document,
    there: Option<&Document>,
    this: Option<&Identity>,
) -> Vec<Problem> {
    let mut problems = vec![];
    let goes =
        |kind: &KindSettings| kind.document.as_deref().zip(this).is_some_and(|(owner, this)| this.is(owner));
    let others = there.into_iter().flat_map(|d| &d.kinds);
    let others = others.filter(|&(name, kind)| !document.kinds.contains_key(name) && !goes(kind));
    let watched = others.chain(&document.kinds).filter(|(_, kind)| !kind.alerts.is_empty()).count();
    if watched > MAX_WATCHED_KINDS {
        let what = format!("{watched} kinds have alerts; at most {MAX_WATCHED_KINDS} may");
        problems.push(Problem { path: "kinds".into(), what });
    }
    let bytes = serde_json::to_string(document).map_or(0, |text| text.len());
    if bytes > limits::MAX_REGISTRY_BYTES {
        let what = format!("it has more than {} bytes", limits::MAX_REGISTRY_BYTES);
        problems.push(Problem { path: String::new(), what });
    }
    problems
}
