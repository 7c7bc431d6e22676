//! Which document is which: what it is known as, and what it was known as before.

use super::Document;
use crate::failure::cut;
use crate::limits;

/// Sources that anybody may come from: what another sent from there is not ended by a document that has a name.
const ANYBODYS: [&str; 2] = ["-", "api"];

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

    /// Whether what a document of this name has is this one's. A document that gets a name was known by its source before, and older
    /// versions knew a file by its path as somebody typed it.
    pub fn was(&self, owner: &str) -> bool {
        if owner == self.name {
            return true;
        }
        let path = as_typed(owner);
        if path.is_empty() || ANYBODYS.contains(&path) {
            return false;
        }
        let ends_so = || self.source.strip_suffix(path).is_some_and(|front| front.ends_with('/'));
        path == self.source.trim_start_matches("./")
            || (self.source.starts_with('/') && !path.starts_with('/') && ends_so())
    }

    /// Whether what it names becomes its own although a document of this name described it in the same words.
    pub fn takes(&self, owner: &str) -> bool {
        owner == self.source || self.was(owner)
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
    fn a_document_is_also_what_it_was_known_as_before() {
        let file = named(None, "/srv/app/registry.toml");
        for owner in [
            "/srv/app/registry.toml",
            "registry.toml",
            "./registry.toml",
            "app/registry.toml",
            "../registry.toml",
        ] {
            assert!(file.was(owner), "{owner}");
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
            assert!(!file.was(owner), "{owner}");
        }
        let billing = named(Some("billing"), "/srv/registry.toml");
        assert_eq!((billing.name(), billing.source()), ("billing", "/srv/registry.toml"));
        assert!(billing.was("billing") && billing.was("/srv/registry.toml") && billing.was("registry.toml"));
        assert!(!billing.was("/srv/other/registry.toml"));
        // A source that is no whole path is no other's end.
        assert!(named(None, "./registry.toml").was("registry.toml"));
        assert!(!named(None, "a/registry.toml").was("registry.toml"));
    }

    #[test]
    fn a_document_that_has_a_name_ends_nothing_that_anybody_may_have_sent() {
        for source in ["-", "api"] {
            assert!(named(None, source).was(source));
            let billing = named(Some("billing"), source);
            assert!(!billing.was(source) && billing.takes(source), "what it names is its own");
            assert!(!named(None, &format!("/srv/{source}")).was(source));
        }
    }
}
