//! Keeps leases alive: one task for all of them, at a third of the lease time. It also brings the bad news, that a
//! lease is lost or that somebody wants a job cancelled.

use std::sync::Arc;
use std::time::Duration;

use tidegate_core::ids::JobId;
use tokio::sync::broadcast::error::RecvError;
use tokio::time::{Instant, MissedTickBehavior};

use super::Shared;
use super::shutdown::{Phase, reached};
use crate::span::duration;

/// Leases named in one heartbeat.
const BATCH: usize = 1_000;

/// Beats until the worker is over.
pub(crate) async fn run(shared: Arc<Shared>) {
    let mut cancels = shared.tide.store().signals().on_cancel();
    let mut phase = shared.phase.subscribe();
    let mut tick = tokio::time::interval(beat_every(shared.lease_ms));
    tick.set_missed_tick_behavior(MissedTickBehavior::Delay);
    tick.reset();
    let mut listening = true;
    loop {
        tokio::select! {
            () = reached(&mut phase, Phase::Over) => return,
            _ = tick.tick() => run_once(&shared).await,
            heard = cancels.recv(), if listening => match heard {
                Ok(id) => deliver(&shared, id),
                // The heartbeat's reply names what was missed.
                Err(RecvError::Lagged(_)) => run_once(&shared).await,
                Err(RecvError::Closed) => listening = false,
            },
        }
    }
}

fn beat_every(lease_ms: i64) -> Duration {
    duration(lease_ms / 3)
}

fn deliver(shared: &Shared, id: JobId) {
    if !shared.roster.cancel(id) {
        shared.desk.cancel_id(id);
    }
}

/// One heartbeat of every lease.
pub(crate) async fn run_once(shared: &Shared) {
    let leases = shared.ledger.alive();
    for some in leases.chunks(BATCH) {
        let asked = Instant::now();
        match shared.tide.store().heartbeat(some.to_vec(), shared.tide.now()).await {
            Ok(beats) => {
                let mut lost = false;
                for beat in beats {
                    match beat.until {
                        Some(_) => shared.ledger.extended(beat.lease, asked + duration(shared.lease_ms)),
                        None => lost |= shared.ledger.lose(beat.lease),
                    }
                    if !beat.cancel.is_empty() {
                        shared.roster.cancel_held(beat.lease, &beat.cancel);
                        for seq in beat.cancel {
                            shared.desk.cancel(|job| job.ticket.lease == beat.lease && job.ticket.seq == seq);
                        }
                    }
                }
                // Nothing runs where the last outcomes of a lease were just settled, and the answer to that is on its way.
                let runs = if lost { shared.roster.stop_lost() } else { 0 };
                if runs > 0 {
                    tracing::warn!(worker = %shared.name, runs, "a lease was lost; its handlers are told to stop");
                }
            }
            Err(error) => {
                tracing::warn!(code = %error.code, "a heartbeat was not accepted: {error}");
                // Nobody can be asked, so the clock decides: past its end a lease may belong to somebody else.
                if shared.ledger.lose_overdue(Instant::now()) {
                    shared.roster.stop_lost();
                }
            }
        }
    }
}
