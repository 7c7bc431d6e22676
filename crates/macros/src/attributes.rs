//! Reads `#[job(…)]` and refuses what the engine would refuse later. The rules repeat those of `tidegate-core`, so
//! that this crate stays small to compile; the engine's tests compare the two.

use syn::spanned::Spanned;
use syn::{DeriveInput, Error, LitInt, LitStr, Result};

const MAX_NAME_BYTES: usize = 128;
const MAX_NOTE_BYTES: usize = 1_024;
const MAX_ATTEMPTS: u32 = 100;
const MAX_TIMEOUT_MS: i64 = 7 * 24 * 3_600_000;
const PRIORITIES: [&str; 4] = ["critical", "high", "medium", "low"];
const POLICIES: [&str; 7] =
    ["standard", "none", "critical", "external_api", "database", "webhook", "gamification"];

/// What `#[job(…)]` said. `None`: nothing.
#[derive(Debug, Default)]
pub(crate) struct Attributes {
    pub(crate) kind: Option<String>,
    pub(crate) queue: Option<String>,
    pub(crate) timeout_ms: Option<i64>,
    pub(crate) priority: Option<String>,
    pub(crate) max_attempts: Option<u32>,
    pub(crate) retry: Option<String>,
    pub(crate) connector: Option<String>,
    pub(crate) description: Option<String>,
}

impl Attributes {
    /// Reads the attributes of a type.
    pub(crate) fn read(input: &DeriveInput) -> Result<Self> {
        let mut all = Self::default();
        for attribute in input.attrs.iter().filter(|a| a.path().is_ident("job")) {
            attribute.parse_nested_meta(|meta| {
                let key = meta.path.get_ident().map(ToString::to_string).unwrap_or_default();
                let once = |given: bool| {
                    if given { Err(meta.error(format!("`{key}` is given twice"))) } else { Ok(()) }
                };
                match key.as_str() {
                    "kind" => once(all.kind.is_some()).and_then(|()| set(&mut all.kind, name(&meta.value()?.parse()?))),
                    "queue" => {
                        once(all.queue.is_some()).and_then(|()| set(&mut all.queue, name(&meta.value()?.parse()?)))
                    }
                    "connector" => once(all.connector.is_some())
                        .and_then(|()| set(&mut all.connector, name(&meta.value()?.parse()?))),
                    "timeout" => once(all.timeout_ms.is_some())
                        .and_then(|()| set(&mut all.timeout_ms, timeout(&meta.value()?.parse()?))),
                    "priority" => once(all.priority.is_some()).and_then(|()| {
                        set(&mut all.priority, one_of("a priority", &PRIORITIES, &meta.value()?.parse()?))
                    }),
                    "retry" => once(all.retry.is_some()).and_then(|()| {
                        set(&mut all.retry, one_of("a retry policy", &POLICIES, &meta.value()?.parse()?))
                    }),
                    "max_attempts" => once(all.max_attempts.is_some())
                        .and_then(|()| set(&mut all.max_attempts, attempts(&meta.value()?.parse()?))),
                    "description" => once(all.description.is_some())
                        .and_then(|()| set(&mut all.description, description(&meta.value()?.parse()?))),
                    _ => Err(meta.error(
                        "unknown attribute (expected kind, queue, timeout, priority, max_attempts, retry, connector or \
                         description)",
                    )),
                }
            })?;
        }
        Ok(all)
    }
}

fn set<T>(place: &mut Option<T>, value: Result<T>) -> Result<()> {
    *place = Some(value?);
    Ok(())
}

fn name(given: &LitStr) -> Result<String> {
    let text = given.value();
    let refuse = |why: &str| Err(Error::new(given.span(), format!("{text:?} is not a name: it {why}")));
    if text.is_empty() {
        return refuse("is empty");
    }
    if text.len() > MAX_NAME_BYTES {
        return refuse("is longer than 128 bytes");
    }
    if !text.starts_with(|c: char| c.is_ascii_alphanumeric()) {
        return refuse("must start with a letter or a digit");
    }
    match text.chars().find(|c| !(c.is_ascii_alphanumeric() || "._-:@+=".contains(*c))) {
        Some(c) => refuse(&format!("contains {c:?}; allowed are letters, digits and . _ - : @ + =")),
        None => Ok(text),
    }
}

fn timeout(given: &LitStr) -> Result<i64> {
    let ms = span_ms(&given.value()).ok_or_else(|| {
        Error::new(given.span(), "not a span of time (expected something like 250ms, 30s, 5m, 1h 30m, 7d)")
    })?;
    if !(1..=MAX_TIMEOUT_MS).contains(&ms) {
        return Err(Error::new(given.span(), "a timeout must be between 1 ms and 7 days"));
    }
    Ok(ms)
}

/// Milliseconds of `1h 30m`; each unit at most once, largest first.
fn span_ms(text: &str) -> Option<i64> {
    const UNITS: [(&str, i64); 5] =
        [("ms", 1), ("s", 1_000), ("m", 60_000), ("h", 3_600_000), ("d", 86_400_000)];
    let (mut total, mut last) = (0i64, i64::MAX);
    let mut rest = text.trim();
    if rest.is_empty() {
        return None;
    }
    while !rest.is_empty() {
        let digits = rest.len() - rest.trim_start_matches(|c: char| c.is_ascii_digit()).len();
        let number: i64 = rest[..digits].parse().ok()?;
        rest = rest[digits..].trim_start();
        let letters = rest.len() - rest.trim_start_matches(|c: char| c.is_ascii_alphabetic()).len();
        let (_, unit) = UNITS.into_iter().find(|(name, _)| *name == &rest[..letters])?;
        if unit >= last {
            return None;
        }
        last = unit;
        total = total.checked_add(number.checked_mul(unit)?)?;
        rest = rest[letters..].trim_start();
    }
    Some(total)
}

fn one_of(what: &str, known: &[&str], given: &LitStr) -> Result<String> {
    let text = given.value();
    if known.contains(&text.as_str()) {
        return Ok(text);
    }
    Err(Error::new(given.span(), format!("{text:?} is not {what} (expected {})", known.join(", "))))
}

fn attempts(given: &LitInt) -> Result<u32> {
    let refuse = || Error::new(given.span(), format!("max_attempts must be between 1 and {MAX_ATTEMPTS}"));
    given.base10_parse::<u32>().ok().filter(|n| (1..=MAX_ATTEMPTS).contains(n)).ok_or_else(refuse)
}

fn description(given: &LitStr) -> Result<String> {
    let text = given.value();
    if text.len() > MAX_NOTE_BYTES {
        return Err(Error::new(given.span(), format!("a description has at most {MAX_NOTE_BYTES} bytes")));
    }
    Ok(text)
}

/// `SendInvoice` as `send-invoice`.
pub(crate) fn kebab(input: &DeriveInput) -> Result<String> {
    let name_of_type = input.ident.to_string();
    let name_of_type = name_of_type.trim_start_matches("r#");
    let chars: Vec<char> = name_of_type.chars().collect();
    let mut kebab = String::with_capacity(chars.len() + 4);
    for (i, &c) in chars.iter().enumerate() {
        let after_lower = i > 0 && (chars[i - 1].is_lowercase() || chars[i - 1].is_ascii_digit());
        let ends_acronym = i > 0 && chars.get(i + 1).is_some_and(|n| n.is_lowercase());
        if c.is_uppercase() && (after_lower || ends_acronym) && !kebab.ends_with('-') {
            kebab.push('-');
        }
        if c == '_' {
            kebab.push('-');
        } else {
            kebab.extend(c.to_lowercase());
        }
    }
    name(&LitStr::new(kebab.trim_matches('-'), input.ident.span())).map_err(|_| {
        Error::new(input.ident.span(), "this type's name makes no name of a kind; write #[job(kind = \"…\")]")
    })
}

/// Refuses types that cannot be payloads of a kind.
pub(crate) fn check_type(input: &DeriveInput) -> Result<()> {
    if input.generics.params.is_empty() {
        return Ok(());
    }
    Err(Error::new(input.generics.span(), "a job cannot be generic: one kind has one type of payload"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spans_are_read_as_the_engine_reads_them() {
        for (text, ms) in
            [("250ms", 250), ("30s", 30_000), ("5m", 300_000), ("1h 30m", 5_400_000), ("7d", 604_800_000)]
        {
            assert_eq!(span_ms(text), Some(ms), "{text}");
        }
        for bad in ["", "30", "s", "-2s", "soon", "1m 1h", "1s 1s", "99999999999999999h", "1x"] {
            assert_eq!(span_ms(bad), None, "{bad}");
        }
    }

    #[test]
    fn the_name_of_a_type_becomes_a_kind() {
        for (name, kind) in [
            ("SendInvoice", "send-invoice"),
            ("HTTPCall", "http-call"),
            ("Sync2Shopify", "sync2-shopify"),
            ("plain", "plain"),
            ("Two_Words", "two-words"),
        ] {
            let input: DeriveInput = syn::parse_str(&format!("struct {name};")).unwrap();
            assert_eq!(kebab(&input).unwrap(), kind);
        }
    }
}
