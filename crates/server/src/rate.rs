//! How many requests a key, or an address without a key, may send: a bucket each, refilled steadily.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::{Mutex, PoisonError};
use std::time::Instant;

use tidegate_core::codes;
use tidegate_wire::Problem;

/// Most buckets kept; when there are more, those that are full are forgotten, and they lose nothing by it.
const MOST: usize = 65_536;

/// Who is counted.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) enum Sender {
    Key(String),
    Address(IpAddr),
}

#[derive(Debug)]
pub(crate) struct Rates {
    per_second: f64,
    buckets: Mutex<HashMap<Sender, Bucket>>,
}

#[derive(Debug, Clone, Copy)]
struct Bucket {
    left: f64,
    at: Instant,
}

impl Rates {
    pub(crate) fn new(per_second: u32) -> Self {
        Self { per_second: f64::from(per_second.max(1)), buckets: Mutex::default() }
    }

    /// Takes one from the sender's bucket, or says when there is one again.
    pub(crate) fn take(&self, sender: Sender, now: Instant) -> Result<(), Problem> {
        let mut buckets = self.buckets.lock().unwrap_or_else(PoisonError::into_inner);
        if buckets.len() >= MOST && !buckets.contains_key(&sender) {
            buckets.retain(|_, b| b.filled(self.per_second, now) < self.per_second);
            if buckets.len() >= MOST {
                return Err(Self::refusal(1_000));
            }
        }
        let bucket = buckets.entry(sender).or_insert(Bucket { left: self.per_second, at: now });
        let left = bucket.filled(self.per_second, now);
        if left < 1.0 {
            return Err(Self::refusal(((1.0 - left) / self.per_second * 1_000.0).ceil() as u64));
        }
        *bucket = Bucket { left: left - 1.0, at: now };
        Ok(())
    }

    fn refusal(ms: u64) -> Problem {
        Problem::new(codes::TOO_MANY_REQUESTS, "more requests than this key or address may send")
            .retry_after_ms(ms.max(1))
    }
}

impl Bucket {
    fn filled(&self, per_second: f64, now: Instant) -> f64 {
        (self.left + now.saturating_duration_since(self.at).as_secs_f64() * per_second).min(per_second)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn a_bucket_runs_dry_and_fills_again_and_others_have_their_own() {
        let rates = Rates::new(10);
        let (ada, bob) = (Sender::Key("ada".into()), Sender::Address([127, 0, 0, 1].into()));
        let start = Instant::now();
        for _ in 0..10 {
            rates.take(ada.clone(), start).unwrap();
        }
        let refused = rates.take(ada.clone(), start).unwrap_err();
        assert_eq!((refused.status, refused.retry_after_ms), (429, Some(100)));
        rates.take(bob, start).unwrap();
        rates.take(ada.clone(), start + Duration::from_millis(100)).unwrap();
        assert!(rates.take(ada, start + Duration::from_millis(100)).is_err());
    }
}
