//! The text format of Prometheus, version 0.0.4: writing it, and checking what was written.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;

use super::{BUCKETS_MS, Metric, Type};

/// A document that is being written. Samples of one metric follow each other.
#[derive(Debug, Default)]
pub struct Exposition {
    text: String,
    current: Option<&'static str>,
}

impl Exposition {
    /// Begins a metric, unless it was begun just before.
    fn begin(&mut self, metric: &Metric) {
        if self.current == Some(metric.name) {
            return;
        }
        self.current = Some(metric.name);
        let help = metric.help.replace('\\', "\\\\").replace('\n', "\\n");
        // Writing to a string cannot fail.
        let _ = writeln!(self.text, "# HELP {} {help}", metric.name);
        let _ = writeln!(self.text, "# TYPE {} {}", metric.name, metric.kind.name());
    }

    /// One value; `labels` are those of the metric, in its order.
    pub fn value(&mut self, metric: &Metric, labels: &[&str], value: f64) {
        debug_assert_eq!(metric.labels.len(), labels.len(), "{}", metric.name);
        if !value.is_finite() {
            return;
        }
        self.begin(metric);
        self.sample(metric, "", labels, None, value);
    }

    /// A histogram: counts per bucket (the last is what is beyond all), and the sum in milliseconds.
    pub fn histogram(&mut self, metric: &Metric, labels: &[&str], counts: &[u64], sum_ms: u64) {
        debug_assert_eq!(metric.labels.len(), labels.len(), "{}", metric.name);
        self.begin(metric);
        let mut all = 0;
        for (n, count) in counts.iter().enumerate() {
            all += count;
            let end =
                BUCKETS_MS.get(n).map_or_else(|| "+Inf".to_owned(), |ms| (*ms as f64 / 1e3).to_string());
            self.sample(metric, "_bucket", labels, Some(&end), all as f64);
        }
        self.sample(metric, "_sum", labels, None, sum_ms as f64 / 1e3);
        self.sample(metric, "_count", labels, None, all as f64);
    }

    fn sample(&mut self, metric: &Metric, end: &str, labels: &[&str], le: Option<&str>, value: f64) {
        let _ = write!(self.text, "{}{end}", metric.name);
        let pairs = metric.labels.iter().copied().zip(labels.iter().copied()).chain(le.map(|le| ("le", le)));
        for (n, (name, value)) in pairs.clone().enumerate() {
            let before = if n == 0 { '{' } else { ',' };
            let _ = write!(self.text, "{before}{name}=\"{}\"", escaped(value));
        }
        if pairs.count() > 0 {
            self.text.push('}');
        }
        let _ = writeln!(self.text, " {value}");
    }

    /// The document.
    pub fn finish(self) -> String {
        self.text
    }
}

fn escaped(value: &str) -> String {
    value.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n")
}

/// Says what is wrong with a document, if anything: unknown or repeated metrics, missing `HELP` or `TYPE`, labels that the metric
/// does not have, a sample twice, buckets that fall or do not end in `+Inf`, a count that is not the last bucket.
pub fn check(text: &str) -> Result<(), String> {
    let mut seen = BTreeSet::new();
    let mut begun: Vec<(&str, bool)> = Vec::new();
    let mut buckets: BTreeMap<String, Vec<(f64, f64)>> = BTreeMap::new();
    let mut counts: BTreeMap<String, f64> = BTreeMap::new();
    for line in text.lines() {
        if let Some(rest) = line.strip_prefix("# HELP ") {
            let name = rest.split(' ').next().unwrap_or_default();
            if begun.iter().any(|(n, _)| *n == name) {
                return Err(format!("{name} is begun twice"));
            }
            begun.push((name, false));
            continue;
        }
        if let Some(rest) = line.strip_prefix("# TYPE ") {
            let (name, kind) = rest.split_once(' ').ok_or_else(|| format!("no type: {line}"))?;
            let known = super::METRICS.iter().find(|m| m.name == name);
            match (known, begun.last_mut()) {
                (Some(m), Some((n, typed))) if *n == name && !*typed && m.kind.name() == kind => {
                    *typed = true;
                }
                _ => return Err(format!("a type out of place: {line}")),
            }
            continue;
        }
        let (series, value) = line.rsplit_once(' ').ok_or_else(|| format!("no sample: {line}"))?;
        let value: f64 = value.parse().map_err(|_| format!("no number: {line}"))?;
        let (name, labels) = labels(series)?;
        let metric = super::metric(name).ok_or_else(|| format!("{name} is not known"))?;
        if begun.last() != Some(&(metric.name, true)) {
            return Err(format!("{name} does not follow its HELP and TYPE"));
        }
        if !seen.insert(series) {
            return Err(format!("{series} twice"));
        }
        let (le, own): (Vec<_>, Vec<_>) = labels.into_iter().partition(|(name, _)| *name == "le");
        if own.iter().map(|(name, _)| *name).ne(metric.labels.iter().copied()) {
            return Err(format!("labels of {series} are not {:?}", metric.labels));
        }
        if metric.kind == Type::Histogram {
            let key = format!("{}{own:?}", metric.name);
            match le.first() {
                Some((_, end)) => {
                    let end = if *end == "+Inf" { f64::INFINITY } else { end.parse().unwrap_or(f64::NAN) };
                    buckets.entry(key).or_default().push((end, value));
                }
                None if name.ends_with("_count") => drop(counts.insert(key, value)),
                None => {}
            }
        }
    }
    for (key, buckets) in buckets {
        let rises = buckets.windows(2).all(|w| w[0].0 < w[1].0 && w[0].1 <= w[1].1);
        let last = buckets.last().copied().unwrap_or_default();
        if !rises || last.0 != f64::INFINITY || counts.get(&key) != Some(&last.1) {
            return Err(format!("buckets of {key} do not add up"));
        }
    }
    Ok(())
}

type Labels<'a> = Vec<(&'a str, &'a str)>;

fn labels(series: &str) -> Result<(&str, Labels<'_>), String> {
    let Some((name, rest)) = series.split_once('{') else { return Ok((series, vec![])) };
    let bad = || format!("labels cannot be read: {series}");
    let mut rest = rest.strip_suffix('}').ok_or_else(bad)?;
    let mut labels = vec![];
    while !rest.is_empty() {
        let (label, value) = rest.split_once("=\"").ok_or_else(bad)?;
        let mut escaped = false;
        let end = value.char_indices().find(|(_, c)| {
            let ends = *c == '"' && !escaped;
            escaped = *c == '\\' && !escaped;
            ends
        });
        let (end, _) = end.ok_or_else(bad)?;
        labels.push((label, &value[..end]));
        rest = &value[end + 1..];
        rest = rest.strip_prefix(',').unwrap_or(rest);
    }
    Ok((name, labels))
}

#[cfg(test)]
mod tests {
    use super::super::{ALERTS, JOBS, STALE, STORE_UP, WAIT};
    use super::*;

    #[test]
    fn what_is_written_passes_the_check_and_is_escaped() {
        let mut out = Exposition::default();
        out.value(&STORE_UP, &[], 1.0);
        out.value(&JOBS, &["a\"b\\c\nd", "ready"], 3.0);
        out.value(&JOBS, &["q,{}=", "dead"], 0.5);
        let mut counts = [0; BUCKETS_MS.len() + 1];
        (counts[0], counts[3], counts[BUCKETS_MS.len()]) = (2, 1, 4);
        out.histogram(&WAIT, &["q", "k"], &counts, 12_345);
        out.value(&STALE, &[], f64::NAN);
        let text = out.finish();
        assert_eq!(check(&text), Ok(()));
        assert!(
            text.contains("tidegate_queue_jobs{queue=\"a\\\"b\\\\c\\nd\",state=\"ready\"} 3\n"),
            "{text}"
        );
        assert!(
            text.contains("tidegate_job_wait_seconds_bucket{queue=\"q\",kind=\"k\",le=\"0.005\"} 2\n"),
            "{text}"
        );
        assert!(text.contains("le=\"+Inf\"} 7\n") && text.contains("_sum{queue=\"q\",kind=\"k\"} 12.345\n"));
        assert!(text.contains("# TYPE tidegate_job_wait_seconds histogram\n"));
        assert!(!text.contains(STALE.name), "a number that is none is left out");
    }

    #[test]
    fn the_check_finds_what_is_wrong() {
        let head = "# HELP tidegate_store_up x\n# TYPE tidegate_store_up gauge\n";
        for bad in [
            "tidegate_store_up 1\n".to_owned(),
            format!("{head}tidegate_store_up 1\ntidegate_store_up 1\n"),
            format!("{head}tidegate_store_up{{queue=\"q\"}} 1\n"),
            format!("{head}tidegate_store_up one\n"),
            format!("{head}{head}"),
            "# HELP tidegate_store_up x\n# TYPE tidegate_store_up counter\n".to_owned(),
            "# HELP nobody x\n# TYPE nobody gauge\nnobody 1\n".to_owned(),
        ] {
            assert!(check(&bad).is_err(), "{bad}");
        }
        let mut out = Exposition::default();
        out.histogram(&WAIT, &["q", "k"], &[1; BUCKETS_MS.len() + 1], 1);
        let good = out.finish();
        assert_eq!(check(&good), Ok(()));
        assert!(check(&good.replace("le=\"0.01\"} 2", "le=\"0.01\"} 0")).is_err());
        assert!(check(&good.replace("+Inf", "7200")).is_err());
        let mut out = Exposition::default();
        out.value(&ALERTS, &["r", "warning"], 1.0);
        assert_eq!(check(&out.finish()), Ok(()));
    }
}
