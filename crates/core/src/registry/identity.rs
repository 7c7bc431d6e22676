//! Which document is which: what it is known as, and what it may have been known as before.

use std::path::Path;

use super::Document;
use crate::failure::cut;
use crate::limits;

/// Which document it is that came from somewhere.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Identity {
    name: String,
    source: String,
}

impl Document {
    /// Which document it is, if it came from there.
    pub fn identity(&self, source: &str) -> Identity {
        Identity {
            name: cut(self.known_as(source), limits::MAX_NOTE_BYTES),
            source: cut(source.to_owned(), limits::MAX_NOTE_BYTES),
        }
    }
}

impl Identity {
    /// What it is known as from now on.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Where it came from.
    pub fn source(&self) -> &str {
        &self.source
    }

    /// Whether what a document of this name has is this one's: it ends what it no longer names of that, and nothing else.
    pub fn is(&self, owner: &str) -> bool {
        owner == self.name
    }

    /// Whether what it names becomes its own although a document of this name described it in the same words. A document that gets a
    /// name was known by its source before, and older versions knew a file by its path as somebody typed it. Another document may have
    /// such a name today, so nothing is ended for it.
    pub fn takes(&self, owner: &str) -> bool {
        let (typed, source) = (as_typed(owner), self.source.as_str());
        let ends_so = || source.starts_with('/') && !typed.is_empty() && Path::new(source).ends_with(typed);
        self.is(owner) || typed == as_typed(source) || ends_so()
    }
}

/// A path as it was typed, from the first name in it on.
fn as_typed(mut path: &str) -> &str {
    while let Some(rest) = path.strip_prefix("./").or_else(|| path.strip_prefix("../")) {
        path = rest;
    }
    path
}

#[cfg(test)]
mod tests {
    use super::*;

    fn named(name: Option<&str>, source: &str) -> Identity {
        Document { name: name.map(Into::into), ..Document::default() }.identity(source)
    }

    #[test]
    fn a_document_takes_what_it_names_from_what_it_was_known_as_before() {
        let file = named(None, "/srv/app/registry.toml");
        for owner in [
            "/srv/app/registry.toml",
            "registry.toml",
            "./registry.toml",
            "app/registry.toml",
            "../registry.toml",
        ] {
            assert!(file.takes(owner), "{owner}");
        }
        for owner in [
            "/srv/registry.toml",
            "/registry.toml",
            "other/registry.toml",
            "stry.toml",
            "billing",
            "",
            "./",
            "-",
        ] {
            assert!(!file.takes(owner), "{owner}");
        }
        let billing = named(Some("billing"), "/srv/registry.toml");
        assert_eq!((billing.name(), billing.source()), ("billing", "/srv/registry.toml"));
        assert!(billing.takes("billing") && billing.takes("/srv/registry.toml"));
        assert!(billing.takes("registry.toml") && !billing.takes("/srv/other/registry.toml"));
        for source in ["-", "api"] {
            assert!(named(Some("billing"), source).takes(source));
        }
        // A source that is no whole path is no other's end.
        assert!(named(None, "./registry.toml").takes("registry.toml"));
        assert!(!named(None, "a/registry.toml").takes("registry.toml"));
    }

    /// Whatever else it may have been known as, another may be known as that today.
    #[test]
    fn a_document_is_what_it_is_known_as_and_no_other() {
        let file = named(None, "/srv/registry.toml");
        assert!(file.is("/srv/registry.toml") && !file.is("registry.toml"));
        assert!(named(None, "./registry.toml").is("registry.toml"));
        for source in ["/srv/registry.toml", "-", "api"] {
            assert!(named(None, source).is(source));
            let billing = named(Some("billing"), source);
            assert!(billing.is("billing") && !billing.is(source), "{source}");
        }
    }
}
