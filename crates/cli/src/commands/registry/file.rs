//! Documents in files.

use std::path::Path;

use tidegate_core::codes;
use tidegate_core::limits;
use tidegate_core::registry::{Document, Format, Problem};

use crate::error::{Failure, Result};
use crate::output::clean;

/// A document that was read.
#[derive(Debug)]
pub(crate) struct Loaded {
    pub(crate) document: Document,
}

/// Reads a document; every mistake is named.
pub(crate) fn load(file: &Path) -> Result<Loaded> {
    let text = text_of(file)?;
    match Document::parse(&text, format_of(file)) {
        Ok(document) => Ok(Loaded { document }),
        Err(problems) => Err(refused(file, &problems)),
    }
}

/// The text of a file, or of standard input.
pub(crate) fn text_of(file: &Path) -> Result<String> {
    let refuse = |why: String| {
        Failure::new(codes::INVALID_REQUEST, format!("{} could not be read: {why}", file.display()))
            .hint("check the path")
    };
    if file == Path::new("-") {
        return std::io::read_to_string(std::io::stdin()).map_err(|e| refuse(e.to_string()));
    }
    let size = std::fs::metadata(file).map_err(|e| refuse(e.to_string()))?.len();
    if size > limits::MAX_REGISTRY_BYTES as u64 {
        return Err(refuse(format!(
            "it has {size} bytes, at most {} are allowed",
            limits::MAX_REGISTRY_BYTES
        )));
    }
    std::fs::read_to_string(file).map_err(|e| refuse(e.to_string()))
}

/// JSON if its name says so, else TOML.
pub(crate) fn format_of(file: &Path) -> Format {
    if file.extension().is_some_and(|e| e.eq_ignore_ascii_case("json")) { Format::Json } else { Format::Toml }
}

/// What is wrong with a document, line by line.
pub(super) fn refused(file: &Path, problems: &[Problem]) -> Failure {
    let count = problems.len();
    let mistakes = if count == 1 { "mistake" } else { "mistakes" };
    let said: Vec<String> = problems.iter().map(|p| clean(&p.to_string())).collect();
    let what = format!("{} has {count} {mistakes}:\n  {}", file.display(), said.join("\n  "));
    nothing_changed(Failure::new(codes::INVALID_REGISTRY, what))
}

pub(super) fn nothing_changed(failure: Failure) -> Failure {
    failure.detail("nothing was changed")
}
