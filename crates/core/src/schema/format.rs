//! Formats of text. All are checked, each with an example for the message.

/// A format that is checked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Format {
    Date,
    DateTime,
    Time,
    Uuid,
    Email,
    Uri,
    Ipv4,
    Ipv6,
}

/// Name, format, and what is expected.
pub(super) const FORMATS: [(&str, Format, &str); 8] = [
    ("date", Format::Date, "a date like 2026-01-31"),
    ("date-time", Format::DateTime, "a time like 2026-01-31T08:00:00Z"),
    ("time", Format::Time, "a time of day like 08:00:00"),
    ("uuid", Format::Uuid, "a UUID"),
    ("email", Format::Email, "an e-mail address"),
    ("uri", Format::Uri, "a URL like https://example.com/"),
    ("ipv4", Format::Ipv4, "an IPv4 address"),
    ("ipv6", Format::Ipv6, "an IPv6 address"),
];

/// Formats that generators put beside numbers; they say nothing that `type` and bounds do not.
pub(super) const NOTES: [&str; 10] =
    ["int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64", "float", "double"];

impl Format {
    /// What is expected, for a message.
    pub(super) fn expected(self) -> &'static str {
        FORMATS.iter().find(|(_, f, _)| *f == self).map_or("", |(_, _, said)| said)
    }

    /// Whether text has the format.
    pub(super) fn fits(self, text: &str) -> bool {
        match self {
            Self::Date => is_date(text),
            Self::DateTime => is_date_time(text),
            Self::Time => is_time(text),
            Self::Uuid => text.len() == 36 && uuid::Uuid::try_parse(text).is_ok(),
            Self::Email => is_email(text),
            Self::Uri => is_uri(text),
            Self::Ipv4 => text.parse::<std::net::Ipv4Addr>().is_ok(),
            Self::Ipv6 => text.parse::<std::net::Ipv6Addr>().is_ok(),
        }
    }
}

/// Whether text has the shape of a pattern, in which 0 is any digit.
fn shaped(text: &str, pattern: &str) -> bool {
    let same = |(t, p): (u8, u8)| if p == b'0' { t.is_ascii_digit() } else { t == p };
    text.len() == pattern.len() && text.bytes().zip(pattern.bytes()).all(same)
}

fn is_date(text: &str) -> bool {
    shaped(text, "0000-00-00") && text.parse::<jiff::civil::Date>().is_ok()
}

fn is_time(text: &str) -> bool {
    let Some((clock, rest)) = text.split_at_checked(8) else { return false };
    let fraction =
        rest.strip_prefix('.').is_none_or(|f| !f.is_empty() && f.bytes().all(|b| b.is_ascii_digit()));
    let whole = rest.is_empty() || rest.starts_with('.');
    shaped(clock, "00:00:00") && clock.parse::<jiff::civil::Time>().is_ok() && whole && fraction
}

fn is_date_time(text: &str) -> bool {
    let Some((date, rest)) = text.split_at_checked(10) else { return false };
    let Some(rest) = rest.strip_prefix(['T', 't']) else { return false };
    let offset = rest.find(['Z', 'z', '+', '-']).unwrap_or(rest.len());
    let (clock, offset) = rest.split_at(offset);
    let known = matches!(offset, "Z" | "z") || shaped(offset.get(1..).unwrap_or_default(), "00:00");
    is_date(date) && is_time(clock) && known && text.to_ascii_uppercase().parse::<jiff::Timestamp>().is_ok()
}

fn is_email(text: &str) -> bool {
    let Some((name, host)) = text.rsplit_once('@') else { return false };
    let plain = |s: &str| !s.is_empty() && !s.contains(|c: char| c.is_whitespace() || c.is_control());
    plain(name) && plain(host) && text.len() <= 320 && !host.starts_with('.') && !host.ends_with('.')
}

fn is_uri(text: &str) -> bool {
    let Some((scheme, rest)) = text.split_once(':') else { return false };
    let mut letters = scheme.chars();
    letters.next().is_some_and(|c| c.is_ascii_alphabetic())
        && letters.all(|c| c.is_ascii_alphanumeric() || "+-.".contains(c))
        && !rest.is_empty()
        && !rest.contains(|c: char| c.is_whitespace() || c.is_control() || "<>\"{}|\\^`".contains(c))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn formats_take_what_they_should_and_nothing_else() {
        for (format, good, bad) in [
            (
                Format::Date,
                &["2026-01-31", "2024-02-29"][..],
                &["2026-02-29", "2026-1-31", "20260131", "x", ""][..],
            ),
            (
                Format::DateTime,
                &["2026-01-31T08:00:00Z", "2026-01-31T08:00:00.5-03:00"],
                &["2026-01-31", "2026-01-31T08:00:00", "2026-01-31 08:00:00Z", "2026-01-31T25:00:00Z"],
            ),
            (Format::Time, &["08:00:00", "23:59:59.25"], &["24:00:00", "8:00", "08:00:00.", "08:00:00x"]),
            (
                Format::Uuid,
                &["0190c0de-0000-7000-8000-000000000000"],
                &["0190c0de00007000800000000000000", "{0190c0de-0000-7000-8000-000000000000}"],
            ),
            (Format::Email, &["a@b.example"], &["a", "@b", "a@", "a b@c.d", "a@.b"]),
            (
                Format::Uri,
                &["https://example.com/a?b=c", "urn:x:1"],
                &["example.com", "https://a b", ":x", "1a:b"],
            ),
            (Format::Ipv4, &["10.0.0.1"], &["10.0.0.256", "::1"]),
            (Format::Ipv6, &["::1"], &["10.0.0.1", "g::"]),
        ] {
            for text in good {
                assert!(format.fits(text), "{format:?} {text}");
            }
            for text in bad {
                assert!(!format.fits(text), "{format:?} {text}");
            }
        }
    }
}
