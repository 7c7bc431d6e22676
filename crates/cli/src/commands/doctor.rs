//! `tidegate doctor`: is everything as it should be, and if not, what to do next. Each check is a line: ok, warn or fail.
//! Nothing is changed, except for one record that is written and taken back to see whether the store can be written to.

mod checks;

use std::fmt::Write as _;
use std::process::ExitCode;

use clap::Args;
use serde::Serialize;
use serde_json::json;

use crate::config::Config;
use crate::error::{Failure, Result};
use crate::output::{Output, Style, plural, wrapped};

/// Arguments of `doctor`.
#[derive(Debug, Args)]
pub(crate) struct DoctorArgs {
    /// A warning is a failure
    #[arg(long)]
    strict: bool,
}

/// How a check came out.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
enum Status {
    Ok,
    Warn,
    Fail,
}

/// One line.
#[derive(Debug, Clone, Serialize)]
struct Check {
    name: &'static str,
    status: Status,
    /// What was found.
    found: String,
    /// What to do next.
    next: Option<String>,
    /// Exit code of the command line if this fails.
    #[serde(skip)]
    exit: u8,
}

impl Check {
    fn ok(name: &'static str, found: impl Into<String>) -> Self {
        Self { name, status: Status::Ok, found: found.into(), next: None, exit: 0 }
    }

    fn warn(name: &'static str, found: impl Into<String>, next: impl Into<String>) -> Self {
        Self { name, status: Status::Warn, found: found.into(), next: Some(next.into()), exit: 4 }
    }

    fn fail(name: &'static str, found: impl Into<String>, next: impl Into<String>) -> Self {
        Self { status: Status::Fail, ..Self::warn(name, found, next) }
    }

    /// A check that could not be made at all.
    fn failed(name: &'static str, failure: &Failure) -> Self {
        let exit = failure.exit_code();
        Self {
            exit,
            ..Self::fail(name, format!("{}: {}", failure.code(), failure.message()), failure.hint_text())
        }
    }
}

/// Checks everything. The exit code is that of the first failure.
pub(crate) async fn run(args: DoctorArgs, config: Result<Config>, output: &Output) -> Result<ExitCode> {
    let checks = checks::all(config).await;
    let worst = if args.strict { Status::Warn } else { Status::Fail };
    let bad = checks
        .iter()
        .find(|c| c.status == Status::Fail)
        .or_else(|| checks.iter().find(|c| c.status >= worst));
    let count = |status| checks.iter().filter(|c| c.status == status).count() as u64;
    let value = json!({
        "healthy": bad.is_none(),
        "ok": count(Status::Ok),
        "warnings": count(Status::Warn),
        "failures": count(Status::Fail),
        "checks": checks,
    });
    output.answer(&value, || {
        let mut text: String = checks.iter().map(|c| line(c, output)).collect();
        let _ = write!(text, "\n{}", verdict(count(Status::Warn), count(Status::Fail), output.style));
        text
    })?;
    Ok(bad.map_or(ExitCode::SUCCESS, |c| ExitCode::from(c.exit)))
}

fn verdict(warnings: u64, failures: u64, style: Style) -> String {
    match (warnings, failures) {
        (0, 0) => style.green("All is well."),
        (n, 0) => style.yellow(&format!("{}; nothing is broken.", plural(n, "warning"))),
        (0, n) => style.red(&format!("{}.", plural(n, "failure"))),
        (w, n) => style.red(&format!("{}, {}.", plural(n, "failure"), plural(w, "warning"))),
    }
}

/// Columns before the text: status and name.
const INDENT: usize = 20;

fn line(check: &Check, output: &Output) -> String {
    let style = output.style;
    let status = match check.status {
        Status::Ok => style.green("ok  "),
        Status::Warn => style.yellow("warn"),
        Status::Fail => style.red("FAIL"),
    };
    let room = output.width.map_or(usize::MAX, |w| w.saturating_sub(INDENT).max(20));
    let mut text = String::new();
    for (n, part) in wrapped(&check.found, room).iter().enumerate() {
        let front = if n == 0 { format!("{status}  {:<12}  ", check.name) } else { " ".repeat(INDENT) };
        let _ = writeln!(text, "{front}{part}");
    }
    for (n, part) in check.next.iter().flat_map(|next| wrapped(next, room.saturating_sub(2))).enumerate() {
        let arrow = if n == 0 { "→ " } else { "  " };
        let _ = writeln!(text, "{}{arrow}{part}", " ".repeat(INDENT));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_wrap_and_say_what_to_do() {
        let plain = Style::plain();
        let output = Output { json: false, width: Some(50), style: plain, err_style: plain, err_width: None };
        let check =
            Check::warn("disk", "only 5 % of the disk that holds the data are free", "free some space");
        let text = line(&check, &output);
        assert_eq!(
            text,
            "warn  disk          only 5 % of the disk that\n                    holds the data are free\n                    → free some space\n"
        );
    }
}
