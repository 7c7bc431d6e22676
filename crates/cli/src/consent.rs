//! Asking before many things are changed.

use std::io::{self, BufRead, IsTerminal, Write};

use tidegate_core::codes;

use crate::args::Consent;
use crate::error::{Failure, Result};
use crate::output::Output;

/// What the person decided.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Decision {
    /// Go on.
    Go,
    /// Only show what would be done.
    DryRun,
    /// No.
    Declined,
}

/// Shows what will be touched, then asks, unless that was settled by a flag.
pub(crate) fn ask(consent: Consent, question: &str, preview: &str, output: &Output) -> Result<Decision> {
    if consent.dry_run {
        return Ok(Decision::DryRun);
    }
    if consent.yes {
        return Ok(Decision::Go);
    }
    if !io::stdin().is_terminal() || output.json {
        return Err(Failure::new(codes::INVALID_REQUEST, format!("{question:?} cannot be asked here"))
            .detail("nothing was changed")
            .hint("add --yes to go on without a question, or --dry-run to see what would be touched"));
    }
    let mut err = io::stderr();
    write!(err, "{preview}{} [y/N] ", output.err_style.bold(question))?;
    err.flush()?;
    let mut line = String::new();
    io::stdin().lock().read_line(&mut line)?;
    let yes = matches!(line.trim().to_ascii_lowercase().as_str(), "y" | "yes");
    Ok(if yes { Decision::Go } else { Decision::Declined })
}
