//! Reading bodies: bounded in size, time, and memory over all requests.
//!
//! Memory is asked for as bytes arrive, so what a client announces and does not send costs nothing. Whoever holds a part
//! of a body and cannot get memory for the rest waits a while for the others and is then told to come back.

use std::sync::Arc;
use std::time::Duration;

use axum::body::Body;
use bytes::{Bytes, BytesMut};
use http_body_util::BodyExt;
use hyper::body::Body as _;
use tidegate_core::codes;
use tidegate_wire::Problem;
use tokio::sync::OwnedSemaphorePermit;

use crate::app::App;

/// Bodies up to this size need no leave: the number of connections bounds them well enough. Beyond it, memory is asked
/// for in steps of the same size.
const STEP: usize = 64 << 10;
/// Longest wait for memory that other bodies have: most are read and done within milliseconds.
const MEMORY_WAIT: Duration = Duration::from_secs(5);

/// A body with the leave for its memory.
#[derive(Debug, Default)]
pub(crate) struct Held {
    pub(crate) bytes: Bytes,
    _memory: Option<OwnedSemaphorePermit>,
}

/// Reads a body.
pub(crate) async fn read(app: &App, body: Body) -> Result<Held, Problem> {
    let most = app.limits.body_bytes as u64;
    let hint = body.size_hint();
    if hint.lower() > most {
        return Err(too_large(most));
    }
    if hint.exact() == Some(0) {
        return Ok(Held::default());
    }
    let slow = || {
        Problem::invalid(format!("the body did not arrive within {} s", app.limits.body_timeout.as_secs()))
    };
    tokio::time::timeout(app.limits.body_timeout, collect(app, body)).await.unwrap_or_else(|_| Err(slow()))
}

fn too_large(most: u64) -> Problem {
    Problem::new(codes::TOO_LARGE, format!("the body has more than {most} bytes"))
}

/// All of a body. One that comes in one piece is not copied.
async fn collect(app: &App, mut body: Body) -> Result<Held, Problem> {
    let most = app.limits.body_bytes;
    let mut memory = None;
    let mut first: Option<Bytes> = None;
    let mut all = BytesMut::new();
    while let Some(frame) = body.frame().await {
        let broken = |e: axum::Error| Problem::invalid(format!("the body broke off: {e}"));
        let Ok(data) = frame.map_err(broken)?.into_data() else { continue };
        let so_far = first.as_ref().map_or(0, Bytes::len).max(all.len()) + data.len();
        if so_far > most {
            return Err(too_large(most as u64));
        }
        reserve(app, &mut memory, so_far).await?;
        match first.take() {
            None if all.is_empty() => first = Some(data),
            start => {
                all.extend_from_slice(&start.unwrap_or_default());
                all.extend_from_slice(&data);
            }
        }
    }
    Ok(Held { bytes: first.unwrap_or_else(|| all.freeze()), _memory: memory })
}

/// Sees to it that there is leave for so many bytes.
async fn reserve(app: &App, memory: &mut Option<OwnedSemaphorePermit>, bytes: usize) -> Result<(), Problem> {
    if bytes <= STEP {
        return Ok(());
    }
    // A body that is larger than all memory for bodies may have all of it.
    let wanted = (bytes.div_ceil(STEP) * (STEP / 1024)).min(app.limits.body_memory / 1024);
    let more = wanted.saturating_sub(memory.as_ref().map_or(0, OwnedSemaphorePermit::num_permits));
    if more == 0 {
        return Ok(());
    }
    let asked = Arc::clone(&app.bodies).acquire_many_owned(more as u32);
    // Without an answer in time there is none; the semaphore is never closed.
    let Ok(Ok(got)) = tokio::time::timeout(MEMORY_WAIT.min(app.limits.body_timeout / 2), asked).await else {
        let detail = "other requests have all the memory that there is for bodies";
        return Err(Problem::new(codes::SERVER_BUSY, detail).retry_after_ms(1_000));
    };
    match memory {
        Some(held) => held.merge(got),
        None => *memory = Some(got),
    }
    Ok(())
}
