//! What a person or a script sees when a command does not work: a stable code, what happened, what to do next, and
//! an exit code by whose fault it is.

use std::fmt::Write as _;

use serde_json::json;
use tidegate_core::codes::{self, Code};
use tidegate_core::ids::InvalidName;
use tidegate_core::payload::InvalidPayload;

use crate::output::{Style, wrapped};

/// Result of a command.
pub(crate) type Result<T, E = Failure> = std::result::Result<T, E>;

/// A command that did not work. Boxed: results are passed around far more often than they fail.
#[derive(Debug)]
pub(crate) struct Failure(Box<Inner>);

#[derive(Debug)]
struct Inner {
    code: Code,
    message: String,
    details: Vec<String>,
    hint: String,
}

impl Failure {
    /// A failure with the hint of its code. Lines of `message` after the first are details.
    pub(crate) fn new(code: Code, message: impl AsRef<str>) -> Self {
        let mut lines = message.as_ref().lines().map(|l| l.trim().to_owned()).filter(|l| !l.is_empty());
        Self(Box::new(Inner {
            code,
            message: lines.next().unwrap_or_else(|| code.title.to_owned()),
            details: lines.collect(),
            hint: code.hint.to_owned(),
        }))
    }

    /// The same with a hint that fits the case better.
    #[must_use]
    pub(crate) fn hint(mut self, hint: impl Into<String>) -> Self {
        self.0.hint = hint.into();
        self
    }

    /// The same with one more line below the message.
    #[must_use]
    pub(crate) fn detail(mut self, line: impl Into<String>) -> Self {
        self.0.details.push(line.into());
        self
    }

    /// Its code.
    pub(crate) fn code(&self) -> Code {
        self.0.code
    }

    /// What happened, in a sentence.
    pub(crate) fn message(&self) -> &str {
        &self.0.message
    }

    /// What to do next.
    pub(crate) fn hint_text(&self) -> &str {
        &self.0.hint
    }

    /// Exit code of the command line.
    pub(crate) fn exit_code(&self) -> u8 {
        self.0.code.fault.exit_code()
    }

    /// The text for people, broken at words where the terminal has a width.
    pub(crate) fn text(&self, style: Style, width: Option<usize>) -> String {
        let Inner { code, message, details, hint } = &*self.0;
        let mut text = String::new();
        let mut add = |label: &str, painted: String, body: &str| {
            let room = width.map_or(usize::MAX, |w| w.saturating_sub(label.len()).max(20));
            for (n, line) in wrapped(body, room).iter().enumerate() {
                let front = if n == 0 { painted.clone() } else { " ".repeat(label.len()) };
                let _ = writeln!(text, "{front}{line}");
            }
        };
        let head = format!("error[{code}]");
        add(&format!("{head}: "), format!("{}: ", style.red(&head)), message);
        for line in details {
            add("  ", "  ".into(), line);
        }
        add("  hint: ", format!("  {} ", style.cyan("hint:")), hint);
        let _ = writeln!(text, "  {} tidegate explain {}", style.cyan("more:"), code);
        text
    }

    /// The same facts for programs.
    pub(crate) fn json(&self) -> serde_json::Value {
        let Inner { code, message, details, hint } = &*self.0;
        let mut error = json!({ "code": code, "fault": code.fault, "message": message, "hint": hint });
        if !details.is_empty() {
            error["details"] = json!(details);
        }
        json!({ "error": error })
    }
}

impl From<tidegate_store::Error> for Failure {
    fn from(e: tidegate_store::Error) -> Self {
        Self::new(e.code, e.detail)
    }
}

impl From<tidegate::Error> for Failure {
    fn from(e: tidegate::Error) -> Self {
        Self::new(e.code, e.detail).hint(e.hint)
    }
}

impl From<InvalidName> for Failure {
    fn from(e: InvalidName) -> Self {
        Self::new(e.code(), e.to_string())
    }
}

impl From<InvalidPayload> for Failure {
    fn from(e: InvalidPayload) -> Self {
        Self::from(tidegate_store::Error::from(e))
    }
}

impl From<std::io::Error> for Failure {
    fn from(e: std::io::Error) -> Self {
        Self::new(codes::STORE_FAILED, e.to_string())
    }
}

impl From<serde_json::Error> for Failure {
    fn from(e: serde_json::Error) -> Self {
        Self::new(codes::INTERNAL, format!("could not be written as JSON: {e}"))
    }
}

/// A usage error of clap in our form.
pub(crate) fn from_clap(error: &clap::Error) -> Failure {
    let rendered = error.render().to_string();
    let mut message = String::new();
    let mut meant = None;
    let mut hint = String::from("`tidegate --help` lists the commands, each with an example");
    for line in rendered.lines().map(str::trim).filter(|l| !l.is_empty()) {
        if let Some(usage) = line.strip_prefix("Usage: ") {
            let command: Vec<&str> = usage
                .split_whitespace()
                .take_while(|w| w.starts_with(|c: char| c.is_ascii_lowercase()))
                .collect();
            let command = command.join(" ");
            hint = format!("`{command} --help` shows the arguments and an example");
            meant = elsewhere(&command, error);
        } else if !line.starts_with("For more information") {
            message += line.strip_prefix("error: ").unwrap_or(line);
            message.push('\n');
        }
    }
    match meant {
        // What clap finds similar is something else.
        Some(meant) => {
            Failure::new(codes::INVALID_REQUEST, message.lines().next().unwrap_or_default()).hint(meant)
        }
        None => Failure::new(codes::INVALID_REQUEST, message).hint(hint),
    }
}

/// What a flag is called here that other programs have.
fn elsewhere(command: &str, error: &clap::Error) -> Option<&'static str> {
    use clap::error::{ContextKind, ContextValue};
    let Some(ContextValue::String(flag)) = error.get(ContextKind::InvalidArg) else { return None };
    match (command, flag.as_str()) {
        ("tidegate serve", "--addr" | "--address" | "--host" | "--listen" | "--port") => {
            Some("address and port are named together: tidegate serve --bind 127.0.0.1:7433")
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_has_code_details_hint_and_a_way_to_more() {
        let failure =
            Failure::new(codes::PAYLOAD_MISFIT, "payload does not fit kind `a`\nat /date: not a date");
        assert_eq!(
            failure.text(Style::plain(), None),
            "error[TG2007]: payload does not fit kind `a`\n  at /date: not a date\n  hint: `tidegate jobs show JOB` \
             prints the payload; compare it with the handler's type\n  more: tidegate explain TG2007\n"
        );
        let narrow = failure.text(Style::plain(), Some(40));
        assert!(narrow.lines().all(|l| l.chars().count() <= 40), "{narrow}");
        assert!(
            narrow.contains("\n  hint: `tidegate jobs show JOB` prints\n        the payload;"),
            "{narrow}"
        );
        assert_eq!(failure.exit_code(), 2);
        assert_eq!(failure.json()["error"]["code"], "TG2007");
    }
}
