//! Ids as text. Opaque to whoever gets them; two programs of one version must agree on them, so they are here.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};
use tidegate_core::ids::{LeaseId, ProcessId, Seq};
use tidegate_store::params;

/// An id that is not one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct InvalidText {
    what: &'static str,
    given: String,
}

impl fmt::Display for InvalidText {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?} is not a {}: send what the server sent", self.given, self.what)
    }
}

impl std::error::Error for InvalidText {}

macro_rules! text {
    ($(#[$doc:meta])* $type:ident($inner:ty), $what:literal, |$s:ident| $parse:expr, |$v:ident, $f:ident| $show:expr) => {
        $(#[$doc])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
        #[serde(try_from = "String", into = "String")]
        pub struct $type(pub $inner);

        impl FromStr for $type {
            type Err = InvalidText;
            fn from_str($s: &str) -> Result<Self, InvalidText> {
                let parsed: Option<$inner> = $parse;
                let refuse = || InvalidText { what: $what, given: $s.chars().take(40).collect() };
                parsed.map(Self).ok_or_else(refuse)
            }
        }

        impl TryFrom<String> for $type {
            type Error = InvalidText;
            fn try_from(s: String) -> Result<Self, InvalidText> {
                s.parse()
            }
        }

        impl fmt::Display for $type {
            fn fmt(&self, $f: &mut fmt::Formatter<'_>) -> fmt::Result {
                let $v = self.0;
                $show
            }
        }

        impl From<$type> for String {
            fn from(t: $type) -> Self {
                t.to_string()
            }
        }

        impl From<$inner> for $type {
            fn from(inner: $inner) -> Self {
                Self(inner)
            }
        }
    };
}

text!(
    /// Proof of holding a job: `tkt_…`.
    Ticket(params::Ticket),
    "ticket",
    |s| {
        let parts = s.strip_prefix("tkt_").and_then(|rest| rest.split_once('_'));
        parts.and_then(|(lease, seq)| {
            Some(params::Ticket { lease: LeaseId(number(lease)?), seq: Seq(number(seq)?) })
        })
    },
    |t, f| write!(f, "tkt_{}_{}", t.lease.0, t.seq.0)
);
text!(
    /// A lease: `lease_…`.
    Lease(LeaseId),
    "lease",
    |s| s.strip_prefix("lease_").and_then(number).map(LeaseId),
    |l, f| fmt::Display::fmt(&l, f)
);
text!(
    /// Where to go on in a list.
    Cursor(Seq),
    "cursor",
    |s| s.strip_prefix("cur_").and_then(number).map(Seq),
    |c, f| write!(f, "cur_{}", c.0)
);
text!(
    /// One run of one process: sixteen hexadecimal digits.
    Process(ProcessId),
    "process",
    |s| (s.len() == 16).then(|| u64::from_str_radix(s, 16).ok()).flatten().map(ProcessId),
    |p, f| write!(f, "{:016x}", p.0)
);

/// A number in its only spelling: no sign, no leading zeros.
fn number(s: &str) -> Option<i64> {
    let plain = s.bytes().all(|b| b.is_ascii_digit()) && (s == "0" || !s.starts_with('0'));
    if plain { s.parse().ok() } else { None }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_survive_their_text_form_whatever_their_size() {
        for n in [0, 1, (1 << 53) + 1, i64::MAX] {
            let ticket = Ticket(params::Ticket { lease: LeaseId(n), seq: Seq(n) });
            assert_eq!(ticket.to_string().parse(), Ok(ticket));
            assert_eq!(Lease(LeaseId(n)).to_string().parse(), Ok(Lease(LeaseId(n))));
            assert_eq!(Cursor(Seq(n)).to_string().parse(), Ok(Cursor(Seq(n))));
            let process = Process(ProcessId(n as u64));
            assert_eq!(process.to_string().parse(), Ok(process));
        }
        for bad in ["", "tkt_", "tkt_1", "tkt_1_x", "tkt_+1_2", "tkt_01_2", "tkt_1_-2", "1_2", "tkt_1_2_3"] {
            assert!(bad.parse::<Ticket>().is_err(), "{bad}");
        }
    }
}
