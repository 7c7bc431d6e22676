//! Names of schemas.

use sha2::{Digest as _, Sha256};

use crate::BadAddress;

/// Longest name: Postgres cuts longer ones, and what stands behind it in the names of functions and channels must fit.
const LONGEST: usize = 48;

/// Name of the schema that holds the tables.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Schema(String);

impl Default for Schema {
    fn default() -> Self {
        Self("tidegate".into())
    }
}

impl Schema {
    /// Refuses a name that would need more than quotes.
    pub fn new(name: &str) -> Result<Self, BadAddress> {
        let fits = |c: char| c.is_ascii_alphanumeric() || c == '_';
        let starts = name.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_');
        if !starts || name.len() > LONGEST || !name.chars().all(fits) || name.starts_with("pg_") {
            let hint = format!("use letters, digits and _, up to {LONGEST}, not pg_…");
            return Err(BadAddress::new(format!("`{name}` is not a name for a schema"), &hint));
        }
        Ok(Self(name.to_owned()))
    }

    /// Whether it is the usual one.
    pub fn is_default(&self) -> bool {
        self.0 == "tidegate"
    }

    /// The name.
    pub fn name(&self) -> &str {
        &self.0
    }

    /// Number of the advisory lock that everybody takes who changes this schema.
    pub fn lock(&self) -> i64 {
        let hash = Sha256::digest(format!("tidegate migrates {}", self.0));
        i64::from_be_bytes(hash[..8].try_into().unwrap_or_default())
    }

    /// As it stands in a statement.
    pub fn quoted(&self) -> String {
        format!("\"{}\"", self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_that_would_need_more_than_quotes_are_refused() {
        assert!(Schema::new("tidegate_2").is_ok());
        for bad in ["", "1st", "a\"b", "a.b", "pg_own", &"x".repeat(49)] {
            assert!(Schema::new(bad).is_err(), "{bad}");
        }
    }
}
