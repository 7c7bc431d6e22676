//! Announces the worker while it runs, and hears whether it should drain. A store that does not answer costs a line in
//! the log and nothing else.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::MissedTickBehavior;

use super::Shared;
use super::shutdown::{Phase, reached};
use crate::Result;
use crate::presence::{self, EVERY, Presence};

/// Longest time that the end of a worker waits for its record to be gone.
const FAREWELL: Duration = Duration::from_secs(1);

/// Announces until the worker is over, then takes the record away.
pub(crate) async fn run(shared: Arc<Shared>) {
    let mut phase = shared.phase.subscribe();
    let mut mine = Presence::of_this_process("worker", shared.tide.now());
    mine.serves(&shared.queues);
    mine.kinds = shared.handlers.keys().map(ToString::to_string).collect();
    mine.kinds.sort_unstable();
    mine.concurrency = shared.desk.slots() as u64;
    let mut name = None;
    let mut tick = tokio::time::interval(EVERY);
    tick.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        tokio::select! {
            _ = tick.tick() => {}
            // Draining is said at once, not with the next tick. The sender is in what is shared.
            _ = phase.changed() => {}
        }
        if *phase.borrow_and_update() == Phase::Over {
            break;
        }
        tokio::select! {
            kept = run_once(&shared, &mut mine, &mut name) => if let Err(error) = kept {
                tracing::debug!(worker = %shared.name, code = %error.code, "presence was not kept: {error}");
            },
            () = reached(&mut phase, Phase::Over) => break,
        }
    }
    if let Some(name) = name {
        let withdrawn = presence::withdraw(&**shared.tide.store(), &name);
        // A store that does not answer must not hold up the end: the record expires.
        if !matches!(tokio::time::timeout(FAREWELL, withdrawn).await, Ok(Ok(()))) {
            tracing::debug!(worker = %shared.name, "presence was not taken back; it expires");
        }
    }
}

/// One announcement, and one look for an order.
async fn run_once(shared: &Shared, mine: &mut Presence, name: &mut Option<String>) -> Result<()> {
    let (store, now) = (&**shared.tide.store(), shared.tide.now());
    let name = match name {
        Some(name) => name,
        None => name.insert(presence::free_name(store, shared.name.as_str(), mine, now).await?),
    };
    mine.running = shared.desk.counts().1 as u64;
    mine.draining = *shared.phase.borrow() != Phase::Working;
    presence::announce(store, name, mine, now).await?;
    if mine.draining {
        return Ok(());
    }
    if let Some(order) = presence::order(store, name, mine, now).await?
        && order.order == "drain"
    {
        tracing::info!(worker = %shared.name, by = order.by, "asked to drain");
        shared.drain_asked.send_replace(true);
    }
    Ok(())
}
