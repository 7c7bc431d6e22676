//! Fingerprints of errors: letters that died of the same cause have the same one, whatever order, tenant or moment they name.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::failure::Category;

/// Longest shape that is looked at.
const MAX_SHAPE: usize = 400;
/// What stands for everything that differs from one error to the next.
const VARIES: char = '#';
/// Words with digits that are at least this long are ids; shorter ones keep their letters.
const LONG: usize = 8;

/// Fingerprint of what a job died of: 16 hexadecimal digits.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Cause(u64);

impl Cause {
    /// The fingerprint of an error of this kind of job.
    pub fn of(kind: &str, category: Category, code: &str, message: &str) -> Self {
        let shape = shape(message);
        // FNV-1a: the same on every machine and in every version. Nobody gains anything by a collision.
        let mut hash = 0xcbf2_9ce4_8422_2325_u64;
        for part in [kind, category.as_str(), code, &shape] {
            for byte in part.bytes().chain([0]) {
                hash = (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
            }
        }
        Self(hash)
    }
}

impl fmt::Display for Cause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&format!("{:016x}", self.0))
    }
}

impl FromStr for Cause {
    type Err = String;
    fn from_str(s: &str) -> Result<Self, String> {
        let digits = s.len() == 16 && s.bytes().all(|b| b.is_ascii_hexdigit());
        let parsed = u64::from_str_radix(s, 16).ok().filter(|_| digits);
        parsed.map(Self).ok_or_else(|| {
            let shown: String = s.chars().take(40).collect();
            format!("{shown:?} is not a cause (expected 16 hexadecimal digits, as `dead causes` shows them)")
        })
    }
}

impl Serialize for Cause {
    fn serialize<S: serde::Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        to.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Cause {
    fn deserialize<D: serde::Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        String::deserialize(from)?.parse().map_err(serde::de::Error::custom)
    }
}

/// A message without what differs from one time to the next: numbers, ids, times, quoted text, what varies in an address.
pub fn shape(message: &str) -> String {
    let mut cut = message.len().min(MAX_SHAPE);
    while !message.is_char_boundary(cut) {
        cut -= 1;
    }
    let mut rest = &message[..cut];
    let mut out = Shape::default();
    let mut before = ' ';
    while let Some(c) = rest.chars().next() {
        let taken = if let Some(len) = quoted(rest, before) {
            out.varies();
            len
        } else if let Some((scheme, len)) = address(rest) {
            out.address(&rest[..len], scheme);
            len
        } else if let Some(len) = uuid(rest) {
            out.varies();
            len
        } else if is_word(c) {
            let len = rest.find(|c| !is_word(c)).unwrap_or(rest.len());
            out.word(&rest[..len]);
            len
        } else {
            out.between(c);
            c.len_utf8()
        };
        before = rest[..taken].chars().next_back().unwrap_or(' ');
        rest = &rest[taken..];
    }
    out.text.trim().to_owned()
}

/// The text so far.
#[derive(Default)]
struct Shape {
    text: String,
}

impl Shape {
    /// Something that differs. Several in a row, as in a time or a network address, are one.
    fn varies(&mut self) {
        let joined = self.text.trim_end_matches(['-', ':', '.', ',', '/', '+', '_']);
        if joined.ends_with(VARIES) && self.text.len() - joined.len() <= 1 {
            self.text.truncate(joined.len());
        } else {
            self.text.push(VARIES);
        }
    }

    fn word(&mut self, word: &str) {
        let hex = word.len() >= LONG && word.bytes().all(|b| b.is_ascii_hexdigit());
        let digits = word.contains(|c: char| c.is_ascii_digit());
        if hex || (digits && (word.len() >= LONG || word.starts_with(|c: char| c.is_ascii_digit()))) {
            return self.varies();
        }
        let mut in_number = false;
        for c in word.chars() {
            if !c.is_ascii_digit() {
                self.text.push(c);
            } else if !in_number {
                self.text.push(VARIES);
            }
            in_number = c.is_ascii_digit();
        }
    }

    fn between(&mut self, c: char) {
        if !c.is_whitespace() {
            self.text.push(c);
        } else if !self.text.ends_with(' ') {
            self.text.push(' ');
        }
    }

    /// Keeps scheme, host and the fixed parts of the path.
    fn address(&mut self, address: &str, scheme: usize) {
        let path = address.find(['?', '#']).map_or(address, |end| &address[..end]);
        self.text.push_str(&path[..scheme]);
        for (i, part) in path[scheme..].split('/').enumerate() {
            if i > 0 {
                self.text.push('/');
            }
            // A host may be a number; a part of a path with a digit in it is one of many.
            if part.contains(|c: char| c.is_ascii_digit()) || part.len() > 24 {
                self.text.push(VARIES);
            } else {
                self.text.push_str(part);
            }
        }
    }
}

fn is_word(c: char) -> bool {
    c.is_alphanumeric() || c == '_'
}

/// Length of a quoted text with its quotes. An apostrophe inside a word opens none.
fn quoted(rest: &str, before: char) -> Option<usize> {
    let quote = rest.chars().next().filter(|c| matches!(c, '"' | '\'' | '`'))?;
    if is_word(before) {
        return None;
    }
    let inside = &rest[1..];
    let mut from = 0;
    while let Some(at) = inside[from..].find(quote) {
        let end = from + at;
        let after = inside[end + 1..].chars().next().unwrap_or(' ');
        if quote != '\'' || !is_word(after) {
            return Some(end + 2);
        }
        from = end + 1;
    }
    None
}

/// Length of `scheme://` and of the whole address.
fn address(rest: &str) -> Option<(usize, usize)> {
    let scheme = rest.find(|c: char| !c.is_ascii_alphabetic())?;
    if scheme == 0 || !rest[scheme..].starts_with("://") {
        return None;
    }
    let end = rest.find(|c: char| c.is_whitespace() || "\"'`<>()[]{},".contains(c)).unwrap_or(rest.len());
    Some((scheme + 3, rest[..end].trim_end_matches(['.', ':', ';', '!']).len().max(scheme + 3)))
}

fn uuid(rest: &str) -> Option<usize> {
    let text = rest.as_bytes().get(..36)?;
    let fits = |(i, b): (usize, &u8)| {
        if matches!(i, 8 | 13 | 18 | 23) { *b == b'-' } else { b.is_ascii_hexdigit() }
    };
    text.iter().enumerate().all(fits).then_some(36)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_differs_is_taken_out_and_the_rest_stays() {
        let table = [
            ("timed out after 30000 ms", "timed out after # ms"),
            ("order 4711 of shop 12 is locked", "order # of shop # is locked"),
            ("no customer 'Ada \"the\" Ace' here", "no customer # here"),
            ("can't open it, it isn't there", "can't open it, it isn't there"),
            ("don't use 'a' or 'b'", "don't use # or #"),
            ("job_01JCQ5V9N0E4T8GQ6W2Y3K7MZB is gone", "# is gone"),
            ("token 550e8400-e29b-41d4-a716-abcdefabcdef expired", "token # expired"),
            ("at 2026-01-31T08:00:00.123Z: refused", "at #: refused"),
            ("10.0.0.12:5432 refused the connection", "# refused the connection"),
            ("0xdeadbeef and deadbeef and cafe", "# and # and cafe"),
            ("shard3 of http2", "shard# of http#"),
            (
                "GET https://api.example.com/v2/orders/991?page=3#top failed.",
                "GET https://api.example.com/#/orders/# failed.",
            ),
            ("see https://example.com/help.", "see https://example.com/help."),
            ("connect to http://10.1.2.3:80/x", "connect to http://#/x"),
            ("two\n  lines\there", "two lines here"),
            ("größe 12 üblich", "größe # üblich"),
            ("an open \"quote stays", "an open \"quote stays"),
            ("", ""),
        ];
        for (message, wanted) in table {
            assert_eq!(shape(message), wanted, "{message}");
        }
    }

    #[test]
    fn a_long_message_is_cut_at_a_character() {
        let shape = shape(&"ä".repeat(1_000));
        assert!(shape.len() <= MAX_SHAPE && shape.chars().all(|c| c == 'ä'));
    }

    #[test]
    fn one_cause_has_one_fingerprint_for_ever() {
        let of = |message: &str| Cause::of("invoice.send", Category::TransientServer, "HTTP_503", message);
        let cause = of("order 1: upstream said \"busy\"");
        assert_eq!(cause, of("order 22: upstream said \"down\""));
        assert_ne!(cause, of("order 1: upstream is gone"));
        assert_ne!(
            cause,
            Cause::of(
                "invoice.void",
                Category::TransientServer,
                "HTTP_503",
                "order 1: upstream said \"busy\""
            )
        );
        assert_ne!(
            cause,
            Cause::of("invoice.send", Category::LogicError, "HTTP_503", "order 1: upstream said \"busy\"")
        );
        assert_ne!(of("x"), Cause::of("invoice.send", Category::TransientServer, "HTTP_50", "3x"));
        // Stored letters name it: a change here splits every cause in two.
        assert_eq!(cause.to_string(), "4f8d504e01ab9d43");
        assert_eq!(cause.to_string().parse(), Ok(cause));
        let json = serde_json::to_string(&cause).unwrap();
        assert_eq!(serde_json::from_str::<Cause>(&json).unwrap(), cause);
        for wrong in ["", "12", "+123456789abcdef", "123456789abcdefg"] {
            assert!(wrong.parse::<Cause>().is_err(), "{wrong}");
        }
    }
}
