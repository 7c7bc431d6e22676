//! Whether somebody serves a queue, by what workers say of themselves.

use serde::Deserialize;
use tidegate_core::ids::QueueName;
use tidegate_core::limits;
use tidegate_core::time::Timestamp;
use tidegate_core::why::Why;

use crate::Records;
use crate::params::{Record, Shelf};

/// What a record of a process says about the queues it serves. Programs of any language write them.
#[derive(Deserialize)]
struct Says {
    #[serde(default)]
    role: String,
    #[serde(default)]
    queues: Vec<String>,
    #[serde(default)]
    draining: bool,
}

/// An explanation that says that a queue is unserved only if that is so: not where a worker that is alive serves the queue, or may, and
/// not where nobody can say who is alive.
pub async fn confirmed(store: &(impl Records + ?Sized), why: Why, now: Timestamp) -> Why {
    if !why.unserved {
        return why;
    }
    let alive = store.records(Shelf::Workers, now).await;
    let unserved = alive.is_ok_and(|alive| !alive.iter().any(|record| may_serve(record, &why.queue)));
    Why { unserved, ..why }
}

/// Whether a process serves a queue, or does not say.
fn may_serve(record: &Record, queue: &QueueName) -> bool {
    let Ok(Says { role, queues, draining }) = serde_json::from_str(&record.body) else { return true };
    if role == "server" || draining {
        return false;
    }
    // Whoever names none does not say what it serves, and whoever names as many as are shown may serve more.
    let tells_all = (1..limits::MAX_QUEUES_SHOWN).contains(&queues.len());
    !tells_all || queues.iter().any(|name| name == queue.as_str())
}
