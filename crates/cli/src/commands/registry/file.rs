//! Documents in files.

use std::os::unix::fs::MetadataExt as _;
use std::path::{Component, Path, PathBuf};

use tidegate_core::codes;
use tidegate_core::limits;
use tidegate_core::registry::{Format, Problem, Reading};

use crate::error::{Failure, Result};
use crate::output::clean;

/// Reads a document as far as that is possible.
pub(super) fn read(file: &Path) -> Result<Reading> {
    Ok(Reading::of(&text_of(file)?, format_of(file)))
}

/// What a document that has no name is known by: the whole path of its file, without `.` and `..`. Symbolic links stay, because what
/// `current` leads to is another file with every release, and the same document. Where a link stands before `..` the path without it
/// leads elsewhere; such a file is known by its own place.
pub(crate) fn known_as(file: &Path) -> String {
    if file == Path::new("-") {
        return "-".into();
    }
    let mut whole = PathBuf::new();
    for part in here().join(file).components() {
        match part {
            Component::CurDir => {}
            Component::ParentDir => {
                whole.pop();
            }
            part => whole.push(part),
        }
    }
    let is_another = place(file).is_some_and(|read| place(&whole) != Some(read));
    let real = if is_another { std::fs::canonicalize(file).ok() } else { None };
    real.unwrap_or(whole).display().to_string()
}

/// What tells one file from another, whatever leads to it.
fn place(path: &Path) -> Option<(u64, u64)> {
    std::fs::metadata(path).ok().map(|about| (about.dev(), about.ino()))
}

/// Where we are, as the shell names it: the system's own answer has no symbolic links.
fn here() -> PathBuf {
    let found = std::env::current_dir().unwrap_or_default();
    let is_here = |named: &PathBuf| {
        let plain = named.is_absolute() && named.components().all(|part| part != Component::ParentDir);
        plain && place(named).is_some_and(|place_named| place(&found) == Some(place_named))
    };
    std::env::var_os("PWD").map(PathBuf::from).filter(is_here).unwrap_or(found)
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_is_known_by_its_whole_path_however_that_is_written() {
        let here = here();
        let said = |path: &Path| path.display().to_string();
        for written in ["a/reg.toml", "./a/reg.toml", "a//./reg.toml", "a/b/../reg.toml"] {
            assert_eq!(known_as(Path::new(written)), said(&here.join("a/reg.toml")), "{written}");
        }
        assert_eq!(known_as(&here.join("x/../reg.toml")), said(&here.join("reg.toml")));
        assert_eq!(known_as(Path::new("/../../etc/reg.toml")), "/etc/reg.toml");
        assert_eq!(known_as(Path::new("-")), "-");
    }

    #[test]
    fn a_file_beside_what_a_link_leads_to_is_known_by_its_own_place() {
        let kept = tempfile::tempdir().unwrap();
        let root = std::fs::canonicalize(kept.path()).unwrap();
        let at = |name: &str| root.join(name);
        std::fs::create_dir_all(at("releases/7")).unwrap();
        std::os::unix::fs::symlink(at("releases/7"), at("current")).unwrap();
        std::fs::write(at("releases/reg.toml"), "").unwrap();
        let said = |path: PathBuf| path.display().to_string();
        assert_eq!(known_as(&at("current/../reg.toml")), said(at("releases/reg.toml")));
        std::fs::write(at("reg.toml"), "").unwrap();
        assert_eq!(known_as(&at("current/../reg.toml")), said(at("releases/reg.toml")));
        assert_eq!(known_as(&at("releases/../reg.toml")), said(at("reg.toml")));
        std::fs::write(at("releases/7/reg.toml"), "").unwrap();
        assert_eq!(known_as(&at("current/reg.toml")), said(at("current/reg.toml")), "a link is part of it");
    }
}
