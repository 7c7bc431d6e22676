//! Durations in buckets that grow with them: 16 per octave, so that a percentile is at most 1/32 off.

use serde::{Deserialize, Deserializer, Serialize, Serializer};
use tidegate_core::gates::Micros;

/// Buckets per octave, as a power of two.
const FINE: u32 = 4;
/// Longest duration that is told apart: 2^36 µs, about 19 hours.
const OCTAVES: u32 = 36;

/// How often durations were seen.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Histogram {
    /// As far as anything was seen.
    buckets: Vec<u32>,
    longest: Micros,
}

/// Small ones have a bucket each.
fn bucket(us: Micros) -> usize {
    let us = us.clamp(0, (1 << OCTAVES) - 1) as u64;
    let octave = us.checked_ilog2().unwrap_or(0);
    if octave < FINE {
        return us as usize;
    }
    let shift = octave - FINE;
    (((shift + 1) as usize) << FINE) + ((us >> shift) as usize - (1 << FINE))
}

/// The middle of a bucket.
fn middle(bucket: usize) -> f64 {
    if bucket < 2 << FINE {
        return bucket as f64;
    }
    let (shift, step) = ((bucket >> FINE) - 1, bucket & ((1 << FINE) - 1));
    let width = (1_u64 << shift) as f64;
    ((1 << FINE) + step) as f64 * width + (width - 1.0) / 2.0
}

impl Histogram {
    pub(crate) fn add(&mut self, us: Micros) {
        let at = bucket(us);
        if at >= self.buckets.len() {
            self.buckets.resize(at + 1, 0);
        }
        self.buckets[at] = self.buckets[at].saturating_add(1);
        self.longest = self.longest.max(us);
    }

    pub(crate) fn merge(&mut self, other: &Self) {
        if other.buckets.len() > self.buckets.len() {
            self.buckets.resize(other.buckets.len(), 0);
        }
        for (mine, theirs) in self.buckets.iter_mut().zip(&other.buckets) {
            *mine = mine.saturating_add(*theirs);
        }
        self.longest = self.longest.max(other.longest);
    }

    /// How many were seen.
    pub fn count(&self) -> u64 {
        self.buckets.iter().map(|n| u64::from(*n)).sum()
    }

    /// The longest, exactly.
    pub fn longest(&self) -> Micros {
        self.longest
    }

    /// The duration that this share of all, between 0 and 1, does not exceed, in microseconds; none if nothing was seen.
    pub fn quantile(&self, share: f64) -> Option<f64> {
        let count = self.count();
        let rank = ((share * count as f64).ceil() as u64).clamp(1, count.max(1));
        let mut seen = 0;
        let at = self.buckets.iter().position(|n| {
            seen += u64::from(*n);
            seen >= rank
        })?;
        Some(middle(at).min(self.longest as f64))
    }
}

/// Written as the buckets that are not empty, `[[bucket, count], …]`, and the longest.
#[derive(Serialize, Deserialize)]
struct Sparse {
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    buckets: Vec<(u16, u32)>,
    #[serde(default)]
    longest_us: Micros,
}

impl Serialize for Histogram {
    fn serialize<S: Serializer>(&self, s: S) -> Result<S::Ok, S::Error> {
        let filled = self.buckets.iter().enumerate().filter(|(_, n)| **n > 0);
        Sparse { buckets: filled.map(|(at, n)| (at as u16, *n)).collect(), longest_us: self.longest }
            .serialize(s)
    }
}

impl<'de> Deserialize<'de> for Histogram {
    fn deserialize<D: Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
        let read = Sparse::deserialize(d)?;
        let most = bucket(Micros::MAX);
        let mut new = Self { buckets: Vec::new(), longest: read.longest_us };
        for (at, n) in read.buckets {
            let at = usize::from(at).min(most);
            if at >= new.buckets.len() {
                new.buckets.resize(at + 1, 0);
            }
            new.buckets[at] = new.buckets[at].saturating_add(n);
        }
        Ok(new)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buckets_follow_each_other_and_their_middle_is_close() {
        let mut last = 0;
        for us in (0..5_000).chain((0..1_000).map(|n| 5_000 + n * 60_000_017)) {
            let at = bucket(us);
            assert!(at >= last, "{us}");
            last = at;
            let off = (middle(at) - us as f64).abs();
            assert!(off <= us as f64 / 31.0, "{us} is in a bucket around {}", middle(at));
        }
        assert!(bucket(Micros::MAX) < 1 << 10 && bucket(-5) == 0);
    }

    #[test]
    fn percentiles_are_within_five_percent() {
        let mut seen = Histogram::default();
        (1..=10_000).for_each(|n| seen.add(n * 37));
        for share in [0.01, 0.5, 0.95, 0.99, 1.0] {
            let (found, exact) = (seen.quantile(share).unwrap(), share * 370_000.0);
            assert!((found - exact).abs() <= exact * 0.05, "{share}: {found} for {exact}");
        }
        assert_eq!((seen.count(), seen.longest()), (10_000, 370_000));
        assert_eq!(Histogram::default().quantile(0.5), None);
    }

    #[test]
    fn it_survives_json_and_merges() {
        let (mut one, mut two) = (Histogram::default(), Histogram::default());
        for us in [3, 99, 5_000_000] {
            one.add(us);
        }
        for us in [3, 70_000] {
            two.add(us);
        }
        let text = serde_json::to_string(&one).unwrap();
        assert_eq!(serde_json::from_str::<Histogram>(&text).unwrap(), one);
        two.merge(&one);
        assert_eq!((two.count(), two.longest(), two.quantile(0.4)), (5, 5_000_000, Some(3.0)));
        let hostile = r#"{"buckets":[[65535,4294967295],[65535,4294967295]],"longest_us":1}"#;
        assert_eq!(serde_json::from_str::<Histogram>(hostile).unwrap().count(), u64::from(u32::MAX));
    }
}
