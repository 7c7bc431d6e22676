//! What each policy does, as a table for people: bounds and mean of every delay, from the same code that decides.

use std::fmt::Write as _;

use super::{Backoff, Jitter, RetryPolicy};
use crate::failure::Category;
use crate::limits;
use crate::policies::PLATFORMS;

/// Where a delay lies.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Spread {
    /// The shortest.
    pub least_ms: f64,
    /// The longest.
    pub most_ms: f64,
    /// The mean over all seeds.
    pub mean_ms: f64,
}

impl RetryPolicy {
    /// Where the delay after the `failures`-th failure lies.
    pub fn spread(&self, failures: u32, factor: f64) -> Spread {
        let (raw, cap) = self.raw(failures, factor);
        let cap = (cap as f64).min(limits::MAX_DELAY_MS as f64);
        let capped = raw.min(cap);
        let (least, most, mean) = match self.jitter {
            Jitter::Full => (0.0, capped, capped / 2.0),
            Jitter::Equal => (capped / 2.0, capped, capped * 0.75),
            Jitter::PlusTenth => (capped, (raw * 1.1).min(cap), mean_below_cap(raw, cap)),
            Jitter::None => (capped, capped, capped),
        };
        Spread { least_ms: least, most_ms: most, mean_ms: mean }
    }
}

/// Mean of `min(raw × (1 + u / 10), cap)` for `u` anywhere from 0 to 1.
fn mean_below_cap(raw: f64, cap: f64) -> f64 {
    if raw >= cap || raw <= 0.0 {
        return raw.min(cap);
    }
    // From here on the cap decides.
    let turn = ((cap / raw - 1.0) * 10.0).min(1.0);
    raw * turn + raw * turn * turn / 20.0 + cap * (1.0 - turn)
}

/// The table of shipped policies in Markdown.
pub fn table() -> String {
    let mut text = String::from("### By name\n\n");
    head(&mut text, "Policy");
    for name in RetryPolicy::NAMES {
        if let Some(policy) = RetryPolicy::named(name) {
            row(&mut text, &format!("`{name}`"), &policy);
        }
    }
    text.push_str("\n### By category of failure\n\n");
    head(&mut text, "Category");
    for category in Category::ALL {
        match RetryPolicy::of_category(category) {
            Some(policy) => row(&mut text, &format!("`{}`", category.as_str()), &policy),
            None => {
                let _ = writeln!(text, "| `{}` | | the queue's policy | | |", category.as_str());
            }
        }
    }
    let _ = writeln!(text, "\n### By platform\n\n| Connector | First delay times |\n|---|---|");
    for (name, factor) in PLATFORMS {
        let _ = writeln!(text, "| `{name}` | {factor} |");
    }
    text
}

fn head(text: &mut String, what: &str) {
    let _ = writeln!(
        text,
        "| {what} | Attempts | Delays, from shortest to longest (mean) | Only these codes | Never these |"
    );
    text.push_str("|---|---|---|---|---|\n");
}

fn row(text: &mut String, name: &str, policy: &RetryPolicy) {
    let delays: Vec<String> = match policy.backoff {
        Backoff::None => vec![],
        _ => (1..policy.max_attempts).map(|n| shown(policy.spread(n, 1.0))).collect(),
    };
    let delays = if delays.is_empty() { "never again".to_owned() } else { delays.join(", ") };
    let codes = |list: &[String]| list.iter().map(|c| format!("`{c}`")).collect::<Vec<_>>().join(" ");
    let (only, never) = (codes(&policy.retry_on), codes(&policy.no_retry_on));
    let _ = writeln!(text, "| {name} | {} | {delays} | {only} | {never} |", policy.max_attempts);
}

fn shown(spread: Spread) -> String {
    let Spread { least_ms, most_ms, mean_ms } = spread;
    if (most_ms - least_ms).abs() < 1.0 {
        return format!("{} s", seconds(least_ms));
    }
    format!("{}–{} s ({})", seconds(least_ms), seconds(most_ms), seconds(mean_ms))
}

fn seconds(ms: f64) -> String {
    let text = format!("{:.3}", ms / 1_000.0);
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::seed::Seed;

    /// Every shipped policy, and how each is called.
    fn shipped() -> Vec<(String, RetryPolicy)> {
        let named =
            RetryPolicy::NAMES.into_iter().filter_map(|n| Some((n.to_owned(), RetryPolicy::named(n)?)));
        let categories = Category::ALL.into_iter();
        let categories =
            categories.filter_map(|c| Some((c.as_str().to_owned(), RetryPolicy::of_category(c)?)));
        named.chain(categories).collect()
    }

    #[test]
    fn ten_thousand_seeds_stay_within_the_bounds_and_have_the_mean_that_the_table_says() {
        const SEEDS: u64 = 10_000;
        for (name, policy) in shipped() {
            for factor in [1.0, 1.5] {
                for n in 1..=policy.max_attempts {
                    let Spread { least_ms, most_ms, mean_ms } = policy.spread(n, factor);
                    let mut sum = 0.0;
                    for seed in 0..SEEDS {
                        let delay = policy.delay_ms(n, factor, &mut Seed::new(seed)) as f64;
                        // Delays are whole milliseconds, rounded down.
                        assert!(delay + 1.0 > least_ms && delay <= most_ms, "{name} {n}: {delay}");
                        sum += delay;
                    }
                    let mean = sum / SEEDS as f64;
                    // Four deviations of the mean of so many evenly spread delays, and the rounding.
                    let tolerance = 1.0 + 4.0 * (most_ms - least_ms) / (12.0f64 * SEEDS as f64).sqrt();
                    assert!((mean - mean_ms).abs() < tolerance, "{name} {n}: {mean}, expected {mean_ms}");
                }
            }
        }
    }

    #[test]
    fn a_cap_inside_the_jitter_counts_for_the_mean() {
        let mut policy = RetryPolicy::standard();
        policy.backoff = Backoff::Exponential { base_ms: 1_000, factor: 2.0, cap_ms: 1_050 };
        let mut seed = Seed::new(3);
        let mean = (0..100_000).map(|_| policy.delay_ms(1, 1.0, &mut seed) as f64).sum::<f64>() / 100_000.0;
        assert!((mean - policy.spread(1, 1.0).mean_ms).abs() < 1.0, "{mean} {:?}", policy.spread(1, 1.0));
        assert!((policy.spread(1, 1.0).mean_ms - 1_037.5).abs() < 1e-6);
    }
}
