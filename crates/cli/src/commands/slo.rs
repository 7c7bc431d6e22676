//! `tidegate slo`: are the gates as they should be? Every objective with its bar, what was measured, and what to do next.

use std::cmp::Ordering;
use std::fmt::Write as _;
use std::process::ExitCode;

use clap::Args;
use serde_json::{Value, json};
use tidegate::gates::GatesReport;
use tidegate_core::slo::{self, Objective, Sense, Standing, Verdict};

use super::gates::{At, to_operate};
use crate::config::Config;
use crate::error::Result;
use crate::output::{Column, Output, Table, plural, wrapped};

/// Exit code if an objective is not met: the state is not as it should be.
const BREACH: u8 = 4;

/// Arguments of `slo`.
#[derive(Debug, Args)]
pub(crate) struct SloArgs {
    #[command(flatten)]
    at: At,
    /// Show the rules themselves: thresholds, how long before somebody is told, runbooks
    #[arg(long)]
    rules: bool,
}

/// Judges, and says so. The exit code is 0 if nothing that was measured is beyond its bar.
pub(crate) async fn run(args: SloArgs, config: &Config, output: &Output) -> Result<ExitCode> {
    if args.rules {
        output.answer(&json!({ "objectives": slo::OBJECTIVES }), || rules(output))?;
        return Ok(ExitCode::SUCCESS);
    }
    let operated = to_operate(&args.at.over(config)?).await?;
    let report = operated.backend.report().await?;
    output.answer(&value(&report), || text(&report, output))?;
    Ok(if is_met(&report) { ExitCode::SUCCESS } else { ExitCode::from(BREACH) })
}

fn is_met(report: &GatesReport) -> bool {
    report.verdicts.iter().all(|v| v.standing < Standing::Warning)
}

fn value(report: &GatesReport) -> Value {
    json!({
        "met": is_met(report),
        "processes": report.processes,
        "backend": { "size_bytes": report.footprint.bytes, "keys": report.footprint.keys },
        "verdicts": report.verdicts,
    })
}

/// The verdict that speaks for an objective: the worst.
fn worst<'a>(report: &'a GatesReport, objective: &Objective) -> Option<&'a Verdict> {
    let badness = |a: f64, b: f64| match objective.sense {
        Sense::AtMost | Sense::Below => a.total_cmp(&b),
        Sense::AtLeast => b.total_cmp(&a),
    };
    let of = report.verdicts.iter().filter(|v| v.objective == objective.id);
    of.max_by(|a, b| {
        let values = match (a.value, b.value) {
            (Some(a), Some(b)) => badness(a, b),
            (a, b) => a.is_some().cmp(&b.is_some()),
        };
        // Of those that are equal, the first by name.
        a.standing.cmp(&b.standing).then(values).then(Ordering::Greater)
    })
}

fn sign(standing: Standing) -> &'static str {
    match standing {
        Standing::Met => "✓ met",
        Standing::Warning => "! warning",
        Standing::Critical => "✗ critical",
        Standing::NotMeasured => "– not measured",
    }
}

fn text(report: &GatesReport, output: &Output) -> String {
    let mut table = Table::new(vec![
        Column::fixed("OBJECTIVE"),
        Column::fixed("BAR"),
        Column::fixed("CRITICAL"),
        Column::number("MEASURED"),
        Column::fixed("STATE"),
        Column::text("WHERE", 8).optional(1),
    ]);
    let mut unknown = 0;
    for objective in slo::OBJECTIVES {
        let verdict = worst(report, objective);
        let standing = verdict.map_or(Standing::NotMeasured, |v| v.standing);
        unknown += u64::from(standing == Standing::NotMeasured);
        let measured = verdict.filter(|_| standing != Standing::NotMeasured).and_then(|v| v.value);
        table.row(vec![
            objective.id.to_owned(),
            objective.bar(),
            objective.critical_bar(),
            measured.map_or_else(|| "–".into(), |value| objective.unit.show(value)),
            sign(standing).to_owned(),
            verdict.and_then(|v| v.domain.clone()).unwrap_or_else(|| "all".into()),
        ]);
    }
    let mut text = table.render(output);
    let breaches: Vec<&Verdict> =
        report.verdicts.iter().filter(|v| v.standing >= Standing::Warning).collect();
    text.push('\n');
    for breach in &breaches {
        text += &told(breach, output);
    }
    text + &summary(breaches.len() as u64, unknown, report.processes, output)
}

/// What is wrong, and what to do.
fn told(breach: &Verdict, output: &Output) -> String {
    let room = output.width.map_or(usize::MAX, |w| w.saturating_sub(4).max(20));
    let mut text = String::new();
    let message = breach.message.as_deref().unwrap_or(&breach.objective);
    for (n, line) in wrapped(message, room).iter().enumerate() {
        let front = match (n, breach.standing) {
            (0, Standing::Critical) => output.style.red("✗"),
            (0, _) => output.style.yellow("!"),
            _ => " ".into(),
        };
        // Writing to a string cannot fail.
        let _ = writeln!(text, "{front} {line}");
    }
    if let Some(objective) = slo::objective(&breach.objective) {
        let _ = writeln!(text, "  → docs/runbooks/{}", objective.runbook);
    }
    text
}

fn summary(breaches: u64, unknown: u64, processes: u64, output: &Output) -> String {
    let seen = format!("Seen by {} in the last hour.", plural_of(processes, "process", "processes"));
    let all = slo::OBJECTIVES.len() as u64;
    let open = match unknown {
        0 => String::new(),
        n if n == all && processes == 0 => return "Nothing was measured: no process asks gates here.".into(),
        n if n == all => return format!("Nothing was measured yet: too little has happened.\n{seen}"),
        n => format!(
            "{} not measured: too little has happened.\n",
            plural_of(n, "objective is", "objectives are")
        ),
    };
    let verdict = match breaches {
        0 => output.style.green("Everything that was measured is as it should be."),
        n => output.style.red(&format!("{} beyond its bar.", plural(n, "reading"))),
    };
    format!("{verdict}\n{open}{seen}")
}

fn plural_of(n: u64, one: &str, many: &str) -> String {
    format!("{n} {}", if n == 1 { one } else { many })
}

fn rules(output: &Output) -> String {
    let mut table = Table::new(vec![
        Column::fixed("OBJECTIVE"),
        Column::fixed("BAR"),
        Column::fixed("CRITICAL"),
        Column::fixed("FOR"),
        Column::text("MEASURES", 20).optional(1),
        Column::fixed("RUNBOOK").optional(2),
    ]);
    for o in slo::OBJECTIVES {
        table.row(vec![
            o.id.to_owned(),
            o.bar(),
            o.critical_bar(),
            tidegate_core::time::Millis(o.for_ms).to_string(),
            o.measures.to_owned(),
            o.runbook.to_owned(),
        ]);
    }
    table.render(output)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use tidegate_core::slo::{Measured, Reading, judge};

    use super::*;
    use crate::output::Style;

    fn at(width: usize) -> Output {
        let plain = Style::plain();
        Output { json: false, width: Some(width), style: plain, err_style: plain, err_width: None }
    }

    fn report(leakage: f64) -> GatesReport {
        let read = |readings: &[(&str, f64)]| -> BTreeMap<String, Reading> {
            readings
                .iter()
                .map(|(id, value)| ((*id).into(), Reading { value: *value, samples: 500 }))
                .collect()
        };
        let domains = [
            (
                "netsuite".into(),
                read(&[("slot_leakage", leakage), ("reservation_p95", 4.2), ("longest_wait", 12.0)]),
            ),
            (
                "shopify".into(),
                read(&[("slot_leakage", 0.0), ("reservation_p95", 0.8), ("retry_success", 99.5)]),
            ),
        ];
        let backend = read(&[("backend_memory", 2.5e6), ("backend_keys", 1_204.0)]);
        let verdicts = judge(&Measured { domains: domains.into(), backend });
        GatesReport { processes: 2, verdicts, ..GatesReport::default() }
    }

    #[test]
    fn the_report_fits_80_and_120_columns() {
        for width in [80, 120] {
            let text = text(&report(5.4), &at(width));
            assert!(text.lines().all(|l| l.chars().count() <= width), "{text}");
            insta::assert_snapshot!(format!("slo_{width}"), text);
            let rules = rules(&at(width));
            assert!(rules.lines().all(|l| l.chars().count() <= width), "{rules}");
        }
    }

    #[test]
    fn where_nothing_was_measured_nothing_is_praised() {
        let verdicts = judge(&Measured { domains: BTreeMap::new(), backend: BTreeMap::new() });
        let text = text(&GatesReport { processes: 1, verdicts, ..GatesReport::default() }, &at(80));
        let end = "\nNothing was measured yet: too little has happened.\nSeen by 1 process in the last hour.";
        assert!(text.ends_with(end), "{text}");
        assert!(!text.contains("as it should be"), "{text}");
    }

    #[test]
    fn a_breach_has_an_exit_code_of_its_own_and_its_worst_domain_speaks() {
        assert!(is_met(&report(1.0)) && !is_met(&report(2.1)));
        let (met, bad) = (report(1.0), report(5.4));
        let objective = slo::objective("slot_leakage").unwrap();
        assert_eq!(worst(&bad, objective).unwrap().domain.as_deref(), Some("netsuite"));
        let retry = slo::objective("retry_success").unwrap();
        assert_eq!(
            worst(&met, retry).unwrap().domain.as_deref(),
            Some("shopify"),
            "the one that was measured"
        );
        assert_eq!(value(&bad)["met"], false);
    }
}
