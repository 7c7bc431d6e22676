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
    mistakes(&file.display().to_string(), problems.iter().map(ToString::to_string).collect())
}

/// What a store says of a document.
pub(super) fn refused_by_store(file: &str, error: tidegate_store::Error) -> Failure {
    if error.code == codes::INVALID_REGISTRY {
        return mistakes(file, error.detail.lines().map(str::to_owned).collect());
    }
    Failure::from(error).detail("nothing was changed")
}

fn mistakes(file: &str, said: Vec<String>) -> Failure {
    let count = said.len();
    let mistakes = if count == 1 { "mistake" } else { "mistakes" };
    let whole = Failure::new(codes::INVALID_REGISTRY, format!("{file} has {count} {mistakes}"));
    said.iter().fold(whole, |failure, line| failure.detail(clean(line))).detail("nothing was changed")
}
