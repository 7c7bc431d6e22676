//! Looks after what handlers were admitted for: renews it with the rhythm of the heartbeat, gives it back when their runs have
//! ended, and tells the store what was admitted.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::MissedTickBehavior;

use super::Shared;
use super::shutdown::{Phase, reached};
use crate::span::duration;

/// Longest time that the end of a worker waits for permits to be given back; the rest lapses.
const FAREWELL: Duration = Duration::from_secs(5);

/// Works until the worker is over and everything is given back.
pub(crate) async fn run(shared: Arc<Shared>) {
    let mut phase = shared.phase.subscribe();
    let mut tick = tokio::time::interval(duration(shared.lease_ms / 3));
    tick.set_missed_tick_behavior(MissedTickBehavior::Delay);
    tick.reset();
    // Beside each other: to give back waits for the store, and no permit may lapse because of that.
    let renewing = async {
        loop {
            tick.tick().await;
            shared.gates.renew(shared.roster.permits()).await;
        }
    };
    let giving_back = async {
        loop {
            tokio::select! {
                // Every run has ended by then, and left what it held.
                () = reached(&mut phase, Phase::Over) => break,
                () = shared.gates.rung() => {
                    shared.gates.run_once().await;
                }
            }
        }
    };
    tokio::select! {
        () = giving_back => {}
        () = renewing => {}
    }
    let rest = async { while shared.gates.run_once().await {} };
    if tokio::time::timeout(FAREWELL, rest).await.is_err() {
        tracing::warn!(worker = %shared.name, "permits could not be given back in time and lapse");
    }
}
