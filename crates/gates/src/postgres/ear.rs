//! Wake-ups between processes. A payload has a line each for the process that speaks, the domain, the partition, and
//! every holder that should ask now. What is heard is a hint: whoever misses one asks at the time it was told.

use std::time::Duration;

use tidegate_core::gates::Holder;

use super::Shared;
use super::lanes::LaneKey;
use super::link::within;

/// Postgres takes payloads of less than 8,000 bytes.
const MAX_PAYLOAD: usize = 7_900;
/// Most holders that one transaction wakes in other processes; the others ask at the time they were told.
const MAX_HOLDERS: usize = 512;
/// Pause before a lost connection is made again.
const PAUSE: Duration = Duration::from_millis(300);

/// What to say, in as many payloads as it takes.
pub(super) fn payloads(speaker: &str, key: &LaneKey, woken: &[Holder]) -> Vec<String> {
    let head = format!("{speaker}\n{}\n{}", key.domain, key.part);
    let mut all: Vec<String> = Vec::new();
    for holder in woken.iter().take(MAX_HOLDERS) {
        match all.last_mut() {
            Some(last) if last.len() + holder.as_str().len() < MAX_PAYLOAD => {
                last.push('\n');
                last.push_str(holder.as_str());
            }
            _ => all.push(format!("{head}\n{holder}")),
        }
    }
    all
}

/// Who should ask now, unless this process said so itself.
pub(super) fn heard(own: &str, payload: &str) -> Vec<Holder> {
    let mut lines = payload.split('\n');
    if lines.next() == Some(own) {
        return Vec::new();
    }
    lines.skip(2).filter_map(|line| Holder::new(line).ok()).collect()
}

/// Listens for ever, and connects again whenever the connection is lost.
pub(super) async fn listen(shared: std::sync::Arc<Shared>) {
    loop {
        let (turns, own) = (shared.turns.clone(), shared.speaker.clone());
        let ear = move |payload: &str| drop(turns.wake(&heard(&own, payload)));
        match shared.address.open(Some(Box::new(ear))).await {
            Ok((client, work)) => {
                let text = format!("LISTEN \"{}\"", shared.channel);
                match within(shared.options.patience, client.batch_execute(&text)).await {
                    Ok(()) => {
                        shared.listening.send_replace(true);
                        // Whatever was said before this was not heard.
                        shared.turns.wake_all();
                        work.ended().await;
                        shared.listening.send_replace(false);
                    }
                    Err(error) => tracing::debug!("The database does not let the gates listen: {error}"),
                }
            }
            Err(error) => tracing::debug!("The gates cannot listen: {error}"),
        }
        tokio::time::sleep(PAUSE).await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn payloads_are_short_enough_and_name_everybody() {
        let key = LaneKey { domain: "d".repeat(100).into(), part: "p".repeat(300).into(), split: 1 };
        let woken: Vec<Holder> = (0..500).map(|n| Holder::new(format!("{n:0>47}")).unwrap()).collect();
        let said = payloads("me", &key, &woken);
        assert!(said.len() > 1 && said.iter().all(|p| p.len() < 8_000));
        let all: Vec<Holder> = said.iter().flat_map(|p| heard("you", p)).collect();
        assert_eq!(all, woken);
        assert!(said.iter().all(|p| heard("me", p).is_empty()));
    }
}
