//! Does what is due of the processing of dead letters.

use std::sync::Arc;
use std::time::Duration;

use tidegate_store::letters::tend;

use super::Shared;
use super::shutdown::{Phase, reached};

/// Time before the first look, and after one that was not possible.
const CALM: Duration = Duration::from_secs(10);

/// Steps until the worker is over.
pub(crate) async fn run(shared: Arc<Shared>) {
    let mut phase = shared.phase.subscribe();
    let mut pause = CALM;
    loop {
        tokio::select! {
            () = reached(&mut phase, Phase::Over) => return,
            () = tokio::time::sleep(pause) => {}
        }
        let tide = &shared.tide;
        pause = match tend(&**tide.store(), shared.letters_every_ms, || tide.now()).await {
            Ok((_, pause)) => pause,
            Err(error) => {
                tracing::warn!(code = %error.code, "dead letters could not be looked at: {error}");
                CALM
            }
        };
    }
}
