//! Query strings: pairs of text, in and out.

use std::borrow::Cow;

use tidegate_core::codes::Code;

use crate::{Problem, nearest};

/// Most parameters of one request.
const MAX_PAIRS: usize = 64;

/// The pairs of a query string, each used up as it is asked for, so that what is left over can be refused.
#[derive(Debug)]
pub struct Query<'a> {
    pairs: Vec<(Cow<'a, str>, Cow<'a, str>)>,
    known: Vec<&'static str>,
}

impl<'a> Query<'a> {
    /// Takes a query string apart.
    pub fn new(text: &'a str) -> Result<Self, Problem> {
        let mut pairs = vec![];
        for pair in text.split('&').filter(|p| !p.is_empty()) {
            if pairs.len() == MAX_PAIRS {
                return Err(Problem::invalid(format!("more than {MAX_PAIRS} parameters in the query")));
            }
            let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
            pairs.push((decode(name)?, decode(value)?));
        }
        Ok(Self { pairs, known: vec![] })
    }

    /// The value of a parameter that may come once.
    pub fn take(&mut self, name: &'static str) -> Result<Option<Cow<'a, str>>, Problem> {
        self.known.push(name);
        let Some(at) = self.pairs.iter().position(|(n, _)| n == name) else { return Ok(None) };
        let (_, value) = self.pairs.swap_remove(at);
        if self.pairs.iter().any(|(n, _)| n == name) {
            return Err(Problem::invalid(format!("parameter `{name}` comes twice")).at(format!("?{name}")));
        }
        Ok(Some(value))
    }

    /// The value of a parameter, read as something. What cannot be read is refused with this code.
    pub fn parse<T: std::str::FromStr<Err: std::fmt::Display>>(
        &mut self,
        name: &'static str,
        code: Code,
    ) -> Result<Option<T>, Problem> {
        let Some(text) = self.take(name)? else { return Ok(None) };
        text.parse().map(Some).map_err(|e: T::Err| Problem::new(code, e.to_string()).at(format!("?{name}")))
    }

    /// Refuses what nobody asked for.
    pub fn end(self) -> Result<(), Problem> {
        let Some((name, _)) = self.pairs.first() else { return Ok(()) };
        let name: String = name.chars().take(64).collect();
        let hint = match nearest(&name, self.known.iter().copied()) {
            Some(near) => format!("; did you mean `{near}`?"),
            None if self.known.is_empty() => "; this route takes none".to_owned(),
            None => format!(", expected one of {}", self.known.join(", ")),
        };
        Err(Problem::invalid(format!("unknown parameter `{name}`{hint}")).at(format!("?{name}")))
    }
}

/// Writes a query string, or nothing if there are no pairs.
#[derive(Debug, Default)]
pub struct Writer(String);

impl Writer {
    /// Adds a pair if there is a value.
    #[must_use]
    pub fn with(mut self, name: &str, value: Option<impl ToString>) -> Self {
        if let Some(value) = value {
            self.0.push(if self.0.is_empty() { '?' } else { '&' });
            self.0.push_str(name);
            self.0.push('=');
            self.0.push_str(&encode(&value.to_string()));
        }
        self
    }

    /// `?a=b&c=d`, or nothing.
    pub fn end(self) -> String {
        self.0
    }
}

/// Text as one segment of a path or one value of a query.
pub fn encode(text: &str) -> String {
    const HEX: &[u8; 16] = b"0123456789ABCDEF";
    let mut out = String::with_capacity(text.len());
    for b in text.bytes() {
        if b.is_ascii_alphanumeric() || b"-._~".contains(&b) {
            out.push(char::from(b));
        } else {
            out.push('%');
            out.push(char::from(HEX[usize::from(b >> 4)]));
            out.push(char::from(HEX[usize::from(b & 15)]));
        }
    }
    out
}

/// Undoes percent-encoding and plus signs.
pub fn decode(text: &str) -> Result<Cow<'_, str>, Problem> {
    if !text.bytes().any(|b| b == b'%' || b == b'+') {
        return Ok(Cow::Borrowed(text));
    }
    percent_decode(&text.replace('+', " ")).map(Cow::Owned)
}

/// Undoes percent-encoding, as in a path.
pub fn percent_decode(text: &str) -> Result<String, Problem> {
    let mut out = Vec::with_capacity(text.len());
    let mut bytes = text.bytes();
    while let Some(b) = bytes.next() {
        if b != b'%' {
            out.push(b);
            continue;
        }
        let mut digit = || bytes.next().and_then(|b| char::from(b).to_digit(16));
        let (Some(high), Some(low)) = (digit(), digit()) else {
            return Err(Problem::invalid(
                "a percent sign in the address must be followed by two hexadecimal digits",
            ));
        };
        out.push((high << 4 | low) as u8);
    }
    String::from_utf8(out).map_err(|_| Problem::invalid("the address is not UTF-8"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_can_be_read() {
        let text = "50 % & more = ü/?#+";
        let query = Writer::default().with("a", Some(text)).with("b", None::<u32>).with("c", Some(7)).end();
        let mut read = Query::new(&query[1..]).unwrap();
        assert_eq!(read.take("a").unwrap().unwrap(), text);
        assert_eq!(read.take("c").unwrap().unwrap(), "7");
        read.end().unwrap();
    }

    #[test]
    fn unknown_double_and_broken_parameters_are_refused() {
        let mut q = Query::new("limt=3").unwrap();
        assert_eq!(q.take("limit").unwrap(), None);
        let problem = q.end().unwrap_err();
        assert!(problem.detail.contains("did you mean `limit`"), "{problem}");
        assert!(Query::new("a=1&a=2").unwrap().take("a").is_err());
        for bad in ["a=%", "a=%f", "a=%zz", "a=%ff"] {
            assert!(Query::new(bad).is_err(), "{bad}");
        }
        assert!(Query::new(&"a&".repeat(100)).is_err());
    }
}
