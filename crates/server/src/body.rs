//! Reading bodies: bounded in size, time, and memory over all requests.

use axum::body::Body;
use bytes::{Bytes, BytesMut};
use http_body_util::BodyExt;
use hyper::body::Body as _;
use tidegate_core::codes;
use tidegate_wire::Problem;
use tokio::sync::SemaphorePermit;

use crate::app::App;

/// Bodies up to this size need no leave: the number of connections bounds them well enough.
const SMALL: u64 = 64 << 10;

/// A body with the leave for its memory.
pub(crate) struct Held<'a> {
    pub(crate) bytes: Bytes,
    _memory: Option<SemaphorePermit<'a>>,
}

/// Reads a body.
pub(crate) async fn read(app: &App, body: Body) -> Result<Held<'_>, Problem> {
    let most = app.limits.body_bytes as u64;
    let too_large = || Problem::new(codes::TOO_LARGE, format!("the body has more than {most} bytes"));
    let hint = body.size_hint();
    if hint.lower() > most {
        return Err(too_large());
    }
    if hint.exact() == Some(0) {
        return Ok(Held { bytes: Bytes::new(), _memory: None });
    }
    let all = async {
        // A body of unknown length may become as large as any.
        let length = hint.exact().unwrap_or(most);
        let memory = if length > SMALL {
            let kib = length.div_ceil(1024).min(app.limits.body_memory as u64 / 1024) as u32;
            // The semaphore is never closed.
            app.bodies.acquire_many(kib).await.ok()
        } else {
            None
        };
        let bytes = collect(body, most).await?.ok_or_else(too_large)?;
        Ok(Held { bytes, _memory: memory })
    };
    let slow = || {
        Problem::invalid(format!("the body did not arrive within {} s", app.limits.body_timeout.as_secs()))
    };
    tokio::time::timeout(app.limits.body_timeout, all).await.unwrap_or_else(|_| Err(slow()))
}

/// All of a body; `None` if it is too large. A body that comes in one piece is not copied.
async fn collect(mut body: Body, most: u64) -> Result<Option<Bytes>, Problem> {
    let mut first: Option<Bytes> = None;
    let mut all = BytesMut::new();
    while let Some(frame) = body.frame().await {
        let broken = |e: axum::Error| Problem::invalid(format!("the body broke off: {e}"));
        let Ok(data) = frame.map_err(broken)?.into_data() else { continue };
        let so_far = first.as_ref().map_or(0, Bytes::len).max(all.len()) + data.len();
        if so_far as u64 > most {
            return Ok(None);
        }
        match first.take() {
            None if all.is_empty() => first = Some(data),
            start => {
                all.extend_from_slice(&start.unwrap_or_default());
                all.extend_from_slice(&data);
            }
        }
    }
    Ok(Some(first.unwrap_or_else(|| all.freeze())))
}
