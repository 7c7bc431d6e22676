//! The documentation says what the code says.

#![expect(clippy::unwrap_used, reason = "helpers of tests fail like tests")]

use std::path::Path;

use tidegate_core::{codes, job, retry, slo};

fn read(path: &str) -> String {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    std::fs::read_to_string(root.join(path)).unwrap_or_else(|e| panic!("{path}: {e}"))
}

/// The text between two markers. With `TIDEGATE_BLESS=1` it is written anew.
fn assert_generated(path: &str, name: &str, expected: &str) {
    let text = read(path);
    let (open, close) = (format!("<!-- {name} -->\n"), format!("<!-- /{name} -->"));
    let start = text.find(&open).unwrap_or_else(|| panic!("{path} has no {open}")) + open.len();
    let end = start + text[start..].find(&close).unwrap_or_else(|| panic!("{path} has no {close}"));
    if std::env::var_os("TIDEGATE_BLESS").is_some() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
        std::fs::write(root.join(path), format!("{}{expected}{}", &text[..start], &text[end..])).unwrap();
        return;
    }
    assert_eq!(&text[start..end], expected, "{path}: run the test with TIDEGATE_BLESS=1");
}

#[test]
fn the_state_diagram_is_generated_from_the_code() {
    assert_generated("docs/ARCHITECTURE.md", "states", &format!("```mermaid\n{}```\n", job::state_diagram()));
}

#[test]
fn the_list_of_error_codes_is_generated_from_the_code() {
    let mut table = String::from("| Code | Exit | What | What to do |\n|---|---|---|---|\n");
    table.extend(codes::ALL.iter().map(|c| {
        format!("| `{}` | {} | {} | {} |\n", c.id, c.fault.exit_code(), c.title, c.hint.replace('|', "\\|"))
    }));
    assert_generated("docs/ERRORS.md", "codes", &table);
}

#[test]
fn the_table_of_objectives_is_generated_from_the_code_and_its_runbooks_exist() {
    assert_generated("docs/guides/gates.md", "objectives", &slo::table());
    for objective in slo::OBJECTIVES {
        read(&format!("docs/runbooks/{}", objective.runbook));
    }
}

#[test]
fn the_tables_of_retries_are_generated_from_the_code() {
    assert_generated("docs/guides/retries.md", "retries", &retry::table());
}
