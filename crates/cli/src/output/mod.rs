//! Where commands write: tables and sentences for people, JSON for programs.
//!
//! A command builds its whole answer and prints it once. A reader that went away (`| head`) ends the output, not the
//! program in a panic.

mod format;
mod progress;
mod style;
mod table;

use std::io::{self, IsTerminal, Write};

use serde::Serialize;

pub(crate) use format::{clean, dash, elapsed, plural, short_when, short_when_in, stamp, times_as_text};
pub(crate) use progress::Bulk;
pub(crate) use style::Style;
pub(crate) use table::{Column, Table, cut, width_of, wrapped};

use crate::error::{Failure, Result};

/// When to colour.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, clap::ValueEnum)]
pub(crate) enum ColorChoice {
    /// On a terminal, unless `NO_COLOR` is set.
    #[default]
    Auto,
    /// Always.
    Always,
    /// Never.
    Never,
}

/// What was asked for and what the terminal is like.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Output {
    /// JSON instead of text.
    pub(crate) json: bool,
    /// Columns to fit into; `None`: nobody looks, so nothing needs to be cut.
    pub(crate) width: Option<usize>,
    /// Colours of standard output.
    pub(crate) style: Style,
    /// Colours of standard error.
    pub(crate) err_style: Style,
    /// Columns of standard error, if it is a terminal.
    pub(crate) err_width: Option<usize>,
}

impl Output {
    /// Looks at the environment once.
    pub(crate) fn detect(json: bool, color: ColorChoice) -> Self {
        let no_color = std::env::var_os("NO_COLOR").is_some_and(|v| !v.is_empty());
        let style = |tty: bool| match color {
            ColorChoice::Always => Style::coloured(),
            ColorChoice::Auto if tty && !no_color => Style::coloured(),
            ColorChoice::Auto | ColorChoice::Never => Style::plain(),
        };
        let (out, err) = (io::stdout(), io::stderr());
        Self {
            json,
            width: columns(&out),
            style: style(out.is_terminal()),
            err_style: style(err.is_terminal()),
            err_width: stderr_width().filter(|_| err.is_terminal()),
        }
    }

    /// Prints an answer: `value` for programs, `text` for people.
    pub(crate) fn answer<T: Serialize>(&self, value: &T, text: impl FnOnce() -> String) -> Result<()> {
        if self.json {
            let mut line = serde_json::to_string_pretty(value)?;
            line.push('\n');
            print(&line)
        } else {
            let terminal = self.width.filter(|_| io::stdout().is_terminal());
            let lines: Vec<String> = text().lines().flat_map(|line| folded(line, terminal)).collect();
            print(&(lines.join("\n") + "\n"))
        }
    }

    /// Reports a failure on standard error.
    pub(crate) fn failure(&self, failure: &Failure) {
        let text = if self.json {
            format!("{:#}\n", failure.json())
        } else {
            failure.text(self.err_style, self.err_width)
        };
        // There is nowhere left to report that standard error is gone.
        let _ = io::stderr().write_all(text.as_bytes());
    }

    /// A remark for people, on standard error.
    pub(crate) fn note(&self, text: &str) {
        if !self.json {
            let lines: Vec<String> = text.lines().flat_map(|line| folded(line, self.err_width)).collect();
            // Nothing can be done where standard error is gone.
            let _ = writeln!(io::stderr(), "{}", lines.join("\n"));
        }
    }
}

/// Writes to standard output. A closed pipe is the reader's way to say "enough".
pub(crate) fn print(text: &str) -> Result<()> {
    let mut out = io::stdout().lock();
    match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
        Err(e) if e.kind() == io::ErrorKind::BrokenPipe => Ok(()),
        other => Ok(other?),
    }
}

/// A line of prose that is too long for the terminal, broken at words; anything else as it is.
fn folded(line: &str, terminal: Option<usize>) -> Vec<String> {
    match terminal {
        // Indented and coloured lines are laid out by whoever made them.
        Some(width) if width_of(line) > width && !line.starts_with(' ') && !line.contains('\u{1b}') => {
            wrapped(line, width)
        }
        _ => vec![line.to_owned()],
    }
}

/// Columns of the terminal behind standard error.
pub(crate) fn stderr_width() -> Option<usize> {
    columns(&io::stderr())
}

/// Columns of a terminal; of `COLUMNS` where there is none.
fn columns(stream: &(impl IsTerminal + std::os::fd::AsFd)) -> Option<usize> {
    if stream.is_terminal()
        && let Ok(size) = rustix::termios::tcgetwinsize(stream)
        && size.ws_col > 0
    {
        return Some(usize::from(size.ws_col));
    }
    std::env::var("COLUMNS").ok()?.parse().ok().filter(|&n| n > 0)
}
