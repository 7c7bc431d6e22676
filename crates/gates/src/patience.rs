//! Waiting for an admission inside a task. A job does not: it is snoozed, and keeps its place.

use std::time::Duration;

use tidegate_core::gates::{Admission, Call};

use crate::{Gates, GatesError};

/// Shortest pause between two asks, against a backend whose clock and ours disagree.
const SHORTEST: Duration = Duration::from_micros(100);

/// Asks until the call is admitted, is refused for good, or would be too late: then the last answer comes back. Woken when
/// its turn may have come, and in any case at the time it was told. A dropped future leaves its place to lapse, two seconds
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
        turn.wait(Duration::from_micros(pause).max(SHORTEST)).await;
    }
}
