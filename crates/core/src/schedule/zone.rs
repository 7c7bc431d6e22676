//! Time zones by their IANA names, from the database that is part of the program: no machine lacks it, all processes of one version
//! agree on it, and nothing is read from disk.

use std::fmt;
use std::str::FromStr;
use std::sync::OnceLock;

use jiff::tz::{TimeZone, TimeZoneDatabase};
use serde::{Deserialize, Serialize};

/// A name that is no zone.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is not a time zone; names are like America/Sao_Paulo, Europe/Berlin or UTC")]
pub struct InvalidZone(String);

/// A time zone with the name it was asked for by.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Zone {
    name: String,
    zone: TimeZone,
}

impl Zone {
    /// Coordinated universal time.
    pub fn utc() -> Self {
        Self { name: "UTC".into(), zone: TimeZone::UTC }
    }

    /// The zone.
    pub fn time_zone(&self) -> &TimeZone {
        &self.zone
    }

    /// Its name.
    pub fn as_str(&self) -> &str {
        &self.name
    }
}

impl Default for Zone {
    fn default() -> Self {
        Self::utc()
    }
}

impl FromStr for Zone {
    type Err = InvalidZone;
    fn from_str(name: &str) -> Result<Self, InvalidZone> {
        static DATABASE: OnceLock<TimeZoneDatabase> = OnceLock::new();
        let refuse = || InvalidZone(name.chars().take(40).collect());
        if name.eq_ignore_ascii_case("utc") {
            return Ok(Self::utc());
        }
        let zone = DATABASE.get_or_init(TimeZoneDatabase::bundled).get(name).map_err(|_| refuse())?;
        Ok(Self { name: zone.iana_name().unwrap_or(name).to_owned(), zone })
    }
}

impl TryFrom<String> for Zone {
    type Error = InvalidZone;
    fn try_from(name: String) -> Result<Self, InvalidZone> {
        name.parse()
    }
}

impl From<Zone> for String {
    fn from(zone: Zone) -> Self {
        zone.name
    }
}

impl fmt::Display for Zone {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&self.name)
    }
}

impl fmt::Debug for Zone {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}", self.name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn zones_are_known_without_files_of_the_machine() {
        for name in ["UTC", "America/Sao_Paulo", "Australia/Lord_Howe", "Asia/Kathmandu", "Europe/Berlin"] {
            assert_eq!(name.parse::<Zone>().unwrap().to_string(), name);
        }
        assert_eq!("america/new_york".parse::<Zone>().unwrap().to_string(), "America/New_York");
        for bad in ["", "Mars/Olympus", "../etc/passwd", "+03:00"] {
            assert!(bad.parse::<Zone>().is_err(), "{bad}");
        }
    }
}
