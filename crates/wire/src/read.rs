//! Reading a request: fast when it is right, exact when it is wrong.

use serde::de::DeserializeOwned;
use tidegate_core::codes;

use crate::{Problem, nearest};

/// Reads a value from JSON. A request that cannot be read is refused with the place of what is wrong.
pub fn from_slice<T: DeserializeOwned>(body: &[u8]) -> Result<T, Problem> {
    // The way that is taken almost always neither tracks places nor checks UTF-8 twice.
    serde_json::from_slice(body).or_else(|_| explain(body))
}

/// Reads again, now keeping track of the place.
#[cold]
fn explain<T: DeserializeOwned>(body: &[u8]) -> Result<T, Problem> {
    let text = std::str::from_utf8(body)
        .map_err(|e| Problem::invalid(format!("the body is not UTF-8: byte {} is wrong", e.valid_up_to())))?;
    let mut json = serde_json::Deserializer::from_str(text);
    let value = serde_path_to_error::deserialize(&mut json).map_err(|e| {
        let pointer = pointer(e.path());
        refusal(e.inner()).at(pointer)
    })?;
    json.end().map_err(|e| refusal(&e))?;
    Ok(value)
}

fn refusal(e: &serde_json::Error) -> Problem {
    let text = e.to_string();
    // serde_json puts the place at the end of a sentence; a pointer says it better, except in text that is no JSON.
    let place = text.rfind(" at line ").map_or(text.len(), |i| i);
    if e.is_syntax() || e.is_eof() {
        return if text.starts_with("recursion limit") {
            Problem::new(codes::INVALID_PAYLOAD, "the body is nested too deep")
        } else {
            Problem::invalid(format!("the body is not JSON: {text}"))
        };
    }
    Problem::invalid(did_you_mean(&text[..place]))
}

/// A sentence about an unknown name, with the nearest known one.
fn did_you_mean(sentence: &str) -> String {
    let unknown = ["unknown field `", "unknown variant `"];
    let Some(rest) = unknown.iter().find_map(|u| sentence.strip_prefix(u)) else {
        return sentence.to_owned();
    };
    let mut names = rest.split('`').step_by(2);
    let given = names.next().unwrap_or_default();
    match nearest(given, names) {
        Some(near) => {
            let head = sentence.split(", expected").next().unwrap_or(sentence);
            format!("{head}; did you mean `{near}`?")
        }
        None => sentence.to_owned(),
    }
}

/// A path as a JSON pointer (RFC 6901).
fn pointer(path: &serde_path_to_error::Path) -> String {
    use serde_path_to_error::Segment;
    let mut text = String::new();
    for segment in path {
        let name = match segment {
            Segment::Seq { index } => index.to_string(),
            Segment::Map { key } => key.replace('~', "~0").replace('/', "~1"),
            Segment::Enum { variant } => variant.clone(),
            Segment::Unknown => continue,
        };
        text.push('/');
        text.push_str(&name);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::jobs::EnqueueJob;

    fn refused(text: &str) -> (String, String) {
        let problem = from_slice::<Vec<EnqueueJob>>(text.as_bytes()).unwrap_err();
        (problem.pointer.clone().unwrap_or_default(), problem.detail.clone())
    }

    #[test]
    fn what_is_wrong_is_named_with_its_place() {
        for (body, pointer, words) in [
            (r#"[{"kind":"a","prioritty":"low"}]"#, "/0/prioritty", "did you mean `priority`?"),
            (r#"[{"kind":"a"},{"kind":"b","priority":"lo"}]"#, "/1/priority", "did you mean `low`?"),
            (r#"[{"kind":"a","timeout_ms":"1"}]"#, "/0/timeout_ms", "invalid type: string"),
            (r#"[{"kind":"a b"}]"#, "/0/kind", "contains ' '"),
            (r#"[{"kind":"a","run_at":"soon"}]"#, "/0/run_at", "point in time"),
            (
                r#"[{"kind":"a","unique":{"key":"k","scope":"for_ever"}}]"#,
                "/0/unique/scope",
                "unknown variant",
            ),
            (r#"[{"payload":1}]"#, "/0", "missing field `kind`"),
            (r#"[{"kind":"a"}] x"#, "", "not JSON"),
            (r#"[{"kind":"a",}]"#, "/0", "not JSON"),
            ("", "", "not JSON"),
        ] {
            let (at, detail) = refused(body);
            assert_eq!(at, pointer, "{body}: {detail}");
            assert!(detail.contains(words), "{body}: {detail}");
        }
        let problem = from_slice::<EnqueueJob>(b"{\"kind\":\"\xff\"}").unwrap_err();
        assert!(problem.detail.contains("not UTF-8"), "{problem}");
    }
}
