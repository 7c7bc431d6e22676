//! Waiting for an admission inside a task. A job does not: it is snoozed, and keeps its place.

use std::time::Duration;

use tidegate_core::gates::{Admission, Because, Call, Wait};

use crate::{Gates, GatesError};

/// Shortest pause between two asks, against a backend whose clock and ours disagree.
const SHORTEST: Duration = Duration::from_micros(100);
/// Where time alone decides and it is this near, wake-ups are not listened to: each slot that is given back wakes the first
/// of the line, and all of them would ask again and hear the same time.
const NEAR: Duration = Duration::from_millis(100);

/// Asks until the call is admitted, is refused for good, or would be too late: then the last answer comes back. Woken when
/// its turn may have come, unless it knows the time anyway, and in any case at the time it was told. A dropped future leaves its place to lapse, two seconds
/// after that time.
pub async fn admitted(gates: &dyn Gates, mut call: Call) -> Result<Admission, GatesError> {
    let turn = gates.turn(&call.holder);
    loop {
        let wait = match gates.admit(None, &call).await? {
            Admission::Wait(wait) => wait,
            decided => return Ok(decided),
        };
        if call.deadline.is_some_and(|deadline| wait.retry_at >= deadline) {
            gates.cancel_wait(None, &call.target, &call.holder).await?;
            return Ok(Admission::Wait(wait));
        }
        call.since = Some(wait.arrived);
        let pause = u64::try_from(wait.retry_at - gates.clock()).unwrap_or(0);
        let pause = Duration::from_micros(pause).max(SHORTEST);
        if pause <= NEAR && time_decides(&wait) {
            tokio::time::sleep(pause).await;
            turn.forget();
        } else {
            turn.wait(pause).await;
        }
    }
}

/// Whether nothing that others do lets the call in sooner, except that they give up.
fn time_decides(wait: &Wait) -> bool {
    matches!(wait.because, Because::Window { .. } | Because::Smooth { .. })
}
