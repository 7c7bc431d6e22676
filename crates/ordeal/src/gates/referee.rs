//! Judges calls by what was seen from outside: starts, ends, and the instants of admission. It knows what was promised,
//! and nothing of how it is kept.
//!
//! A call whose process died counts as running until its lease has ended, and for the quarantine after that: the provider
//! may still be at it.

use super::log::Seen;

/// What was found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Most {
    /// The most that was seen.
    pub most: i64,
    /// When.
    pub at: i64,
}

impl Most {
    const NONE: Self = Self { most: 0, at: 0 };

    fn with(self, n: i64, at: i64) -> Self {
        if n > self.most { Self { most: n, at } } else { self }
    }
}

/// Most calls at a time.
pub fn at_a_time<'a>(calls: impl IntoIterator<Item = &'a Seen>, quarantine: i64) -> Most {
    let mut edges = Vec::new();
    for call in calls {
        edges.push((call.start, 1));
        edges.push((call.end.unwrap_or(call.leased.max(call.start) + quarantine), -1));
    }
    // At the same instant, ends come first: an end is written before it is settled.
    edges.sort_unstable();
    let (mut running, mut most) = (0, Most::NONE);
    for (at, change) in edges {
        running += change;
        most = most.with(running, at);
    }
    most
}

/// Instants with an amount each, in order.
fn ordered(events: impl IntoIterator<Item = (i64, i64)>) -> Vec<(i64, i64)> {
    let mut all: Vec<_> = events.into_iter().collect();
    all.sort_unstable();
    all
}

/// Most in any window of this length, half open: two instants are in one window if they are less than it apart.
pub fn in_a_window(events: impl IntoIterator<Item = (i64, i64)>, window: i64) -> Most {
    let all = ordered(events);
    let (mut sum, mut first, mut most) = (0, 0, Most::NONE);
    for (at, amount) in &all {
        sum += amount;
        while all[first].0 + window <= *at {
            sum -= all[first].1;
            first += 1;
        }
        most = most.with(sum, *at);
    }
    most
}

/// The most by which any interval exceeds `rate` (a second) × its length: to be compared with the burst or capacity. In
/// millionths of an amount, exactly.
pub fn above_rate(events: impl IntoIterator<Item = (i64, i64)>, rate: i64) -> Most {
    let (mut level, mut last, mut most) = (0_i64, i64::MIN, Most::NONE);
    for (at, amount) in ordered(events) {
        if last != i64::MIN {
            level = (level - (at - last) * rate).max(0);
        }
        last = at;
        level += amount * 1_000_000;
        most = most.with(level, at);
    }
    most
}

/// Instants of admission, each counting one.
pub fn admissions<'a>(calls: impl IntoIterator<Item = &'a Seen>) -> Vec<(i64, i64)> {
    calls.into_iter().map(|c| (c.admitted, 1)).collect()
}

/// Instants of admission with their cost.
pub fn costs<'a>(calls: impl IntoIterator<Item = &'a Seen>) -> Vec<(i64, i64)> {
    calls.into_iter().map(|c| (c.admitted, c.cost)).collect()
}

/// The same at the instants of their start.
pub fn starts<'a>(calls: impl IntoIterator<Item = &'a Seen>) -> Vec<(i64, i64)> {
    calls.into_iter().map(|c| (c.start, 1)).collect()
}

/// Starts with their cost.
pub fn start_costs<'a>(calls: impl IntoIterator<Item = &'a Seen>) -> Vec<(i64, i64)> {
    calls.into_iter().map(|c| (c.start, c.cost)).collect()
}

/// For calls that all fail, through one breaker that opens at so many failures: most probes at a time. Whatever starts
/// after the gates have answered to that many failures, and after the time in which an earlier permit may be used, is one.
/// A probe of a process that died counts until its lease is over, whatever became of the breaker meanwhile.
pub fn probes(calls: &[&Seen], failures: usize, use_by: i64) -> Most {
    let mut known: Vec<i64> = calls.iter().filter_map(|c| c.failed).collect();
    known.sort_unstable();
    let Some(open) = known.get(failures - 1) else { return Most::NONE };
    at_a_time(calls.iter().copied().filter(|c| c.start > open + use_by), 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn call(start: i64, end: Option<i64>) -> Seen {
        Seen {
            domain: 0,
            tenant: 0,
            account: 0,
            bulk: false,
            cost: 1_000,
            admitted: start,
            start,
            end,
            leased: start + 100,
            failed: None,
        }
    }

    #[test]
    fn one_call_too_many_at_a_time_is_seen() {
        let honest = [call(0, Some(10)), call(5, Some(15)), call(10, Some(20))];
        assert_eq!(at_a_time(&honest, 0).most, 2);
        let false_log = [call(0, Some(11)), call(5, Some(15)), call(10, Some(20))];
        assert_eq!(at_a_time(&false_log, 0), Most { most: 3, at: 10 });
    }

    #[test]
    fn the_slot_of_a_dead_process_counts_until_its_lease_and_quarantine_are_over() {
        let early = [call(0, None), call(99, Some(120))];
        assert_eq!(at_a_time(&early, 0).most, 2);
        let later = [call(0, None), call(100, Some(120))];
        assert_eq!((at_a_time(&later, 0).most, at_a_time(&later, 50).most), (1, 2));
    }

    #[test]
    fn one_call_too_many_in_a_window_is_seen_wherever_it_lies() {
        let honest: Vec<(i64, i64)> = (0..100).map(|n| (n * 10, 1)).collect();
        assert_eq!(in_a_window(honest.clone(), 100).most, 10);
        for n in [0, 1, 37, 999] {
            let mut more = honest.clone();
            more.push((n, 1));
            assert!(in_a_window(more, 100).most >= 11, "one more at {n}");
        }
        // Two fixed windows with 10 each, side by side.
        let burst = (0..20).map(|n| (if n < 10 { 99 } else { 100 }, 1));
        assert_eq!(in_a_window(burst, 100).most, 20);
    }

    #[test]
    fn a_burst_above_its_size_is_seen() {
        let steady: Vec<(i64, i64)> = (0..50).map(|n| (n * 100_000, 1)).collect();
        assert_eq!(above_rate(steady.clone(), 10).most, 1_000_000);
        let mut false_log = steady;
        false_log.extend([(2_000_000, 1), (2_000_001, 1)]);
        assert!(above_rate(false_log, 10).most > 2_900_000);
        assert_eq!(above_rate([(0, 5), (1_000_000, 5)], 5).most, 5_000_000);
    }

    #[test]
    fn a_probe_too_many_is_seen() {
        let fail = |start: i64, end: i64| Seen { failed: Some(end + 1), ..call(start, Some(end)) };
        let honest = [fail(0, 5), fail(0, 6), fail(200, 210), fail(211, 220)];
        assert_eq!(probes(&honest.iter().collect::<Vec<_>>(), 2, 50).most, 1);
        let false_log = [fail(0, 5), fail(0, 6), fail(200, 210), fail(205, 220)];
        assert_eq!(probes(&false_log.iter().collect::<Vec<_>>(), 2, 50).most, 2);
        assert_eq!(probes(&honest.iter().collect::<Vec<_>>(), 9, 50).most, 0, "it never opened");
        let dead = Seen { leased: 900, ..call(201, None) };
        let mut earlier = vec![fail(0, 5), fail(0, 6), fail(200, 210), dead, fail(320, 330)];
        assert_eq!(probes(&earlier.iter().collect::<Vec<_>>(), 2, 50).most, 2);
        earlier.push(fail(325, 330));
        assert_eq!(probes(&earlier.iter().collect::<Vec<_>>(), 2, 50).most, 3, "also of an earlier period");
    }
}
