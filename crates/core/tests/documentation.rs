//! The documentation says what the code says.

#![expect(clippy::unwrap_used, reason = "helpers of tests fail like tests")]

use std::path::Path;

use tidegate_core::{alerts, codes, job, metrics, slo};

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

// One test: several would write the same file when they are blessed.
#[test]
fn the_tables_of_observing_are_generated_from_the_code_and_runbooks_exist() {
    let guide = "docs/guides/observing.md";
    assert_generated(guide, "metrics", &metrics::table());
    assert_generated(guide, "readings", &alerts::readings_table());
    assert_generated(guide, "rules", &alerts::table());
    let index = read("docs/runbooks/README.md");
    for rule in alerts::shipped() {
        read(&format!("docs/runbooks/{}", rule.runbook));
        assert!(index.contains(&format!("({})", rule.runbook)), "{} is not in the list", rule.runbook);
    }
}

/// Names of metrics in an expression: words that are neither functions, labels nor values.
fn names(expr: &str) -> Vec<&str> {
    let is_word = |c: char| c.is_ascii_alphanumeric() || c == '_';
    let words = expr.split(|c: char| !is_word(c));
    words.filter(|w| ["tidegate_", "token_", "process_"].iter().any(|start| w.starts_with(start))).collect()
}

/// Every expression of a dashboard, wherever it is.
fn expressions(value: &serde_json::Value, into: &mut Vec<String>) {
    match value {
        serde_json::Value::Object(map) => {
            for key in ["expr", "query"] {
                into.extend(map.get(key).and_then(|v| v.as_str()).map(str::to_owned));
            }
            map.values().for_each(|v| expressions(v, into));
        }
        serde_json::Value::Array(list) => list.iter().for_each(|v| expressions(v, into)),
        _ => {}
    }
}

#[test]
fn dashboards_and_rules_name_metrics_that_exist_with_labels_that_they_have() {
    let dashboard: serde_json::Value = serde_json::from_str(&read("ops/grafana/tidegate.json")).unwrap();
    let mut found = vec![];
    expressions(&dashboard, &mut found);
    let rules = read("ops/prometheus/tidegate.rules.yml");
    found.extend(rules.lines().filter_map(|l| l.trim().strip_prefix("expr: ").map(str::to_owned)));
    assert!(found.len() > 30, "{} expressions", found.len());
    let mut used = std::collections::BTreeSet::new();
    for expr in &found {
        for name in names(expr) {
            let metric = metrics::metric(name).unwrap_or_else(|| panic!("{name} is no metric: {expr}"));
            used.insert(metric.name);
            let labels = expr.split_once(&format!("{name}{{")).and_then(|(_, rest)| rest.split_once('}'));
            for pair in labels.iter().flat_map(|(labels, _)| labels.split(", ")) {
                let label = pair.split(['=', '!']).next().unwrap_or_default();
                assert!(metric.labels.contains(&label), "{name} has no label {label:?}: {expr}");
            }
        }
    }
    assert!(used.len() > 20, "{used:?}");
    for page in rules.lines().filter_map(|l| l.trim().strip_prefix("runbook: ")) {
        read(page);
    }
}
