//! What a document changed, or would, in words.

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::path::Path;

use serde_json::{Value, json};
use tidegate_core::registry::{Counts, Entry, Left};
use tidegate_core::why::grouped;
use tidegate_store::params::Applied;

use crate::error::Result;
use crate::output::{Output, clean};

/// Entries left alone that are named.
const FEW: usize = 5;

/// How it came to that.
pub(super) struct Said<'a> {
    /// Nothing was done.
    pub(super) dry_run: bool,
    /// What the document is known as; `None` where there is none.
    pub(super) this: Option<&'a str>,
    /// The directory that has no data yet.
    pub(super) missing: Option<&'a Path>,
}

/// Says what a document changed.
pub(super) fn say(applied: &Applied, said: &Said<'_>, output: &Output) -> Result<()> {
    let value = json!({
        "dry_run": said.dry_run,
        "version": applied.version,
        "changes": applied.changes,
        "changed": changed(applied),
        "unchanged": applied.unchanged,
        "as_wanted": applied.as_wanted,
        "left_alone": applied.left_alone,
        "left": applied.left,
    });
    output.answer(&value, || sentences(applied, said))
}

fn sentences(applied: &Applied, said: &Said<'_>) -> String {
    let mut text = String::new();
    for difference in &applied.changes {
        let _ = writeln!(text, "{} {} {}", difference.verb(), difference.what, difference.name);
        for (field, now, then) in &difference.fields {
            let _ = writeln!(text, "    {field}: {} → {}", shown(now), shown(then));
        }
    }
    let changed = changed(applied);
    let done = match (changed.total(), said.dry_run) {
        (0, true) => "Nothing would change".to_owned(),
        (0, false) => "Nothing changed".to_owned(),
        (_, true) => format!("{changed} would change; nothing was changed"),
        (_, false) => format!("{changed} changed"),
    };
    text += &done;
    match applied.unchanged {
        0 => {}
        n if applied.as_wanted.total() == n => {
            let _ = write!(text, "; {} as wanted", applied.as_wanted);
        }
        // An older server does not say of what.
        n => {
            let _ = write!(text, "; {} as wanted", grouped(n));
        }
    }
    text.push('.');
    if let Some(version) = applied.version {
        let _ = write!(text, " This is version {version}.");
    }
    if let Some(dir) = said.missing {
        let _ = write!(text, "\nThere is no data at {} yet: all of it is new.", dir.display());
    }
    text + &left(applied, said.this)
}

/// How many of what changed; counted here for a server that does not.
fn changed(applied: &Applied) -> Counts {
    if applied.changed.total() > 0 {
        return applied.changed;
    }
    let entries: BTreeSet<Entry> = applied.changes.iter().filter_map(Entry::of).collect();
    Counts::of(&entries)
}

/// What was left alone, whose it is, and what to do if it is this document's after all.
fn left(applied: &Applied, this: Option<&str>) -> String {
    if applied.left_alone == 0 {
        return String::new();
    }
    let others = |left: &Left| left.document.as_deref().filter(|d| Some(*d) != this).map(clean);
    let one = |left: &Left| {
        let whose = others(left).map_or(String::new(), |document| format!(" (of {document})"));
        format!("{} {}{whose}", left.what, left.name)
    };
    let mut named: Vec<String> = applied.left.iter().take(FEW).map(one).collect();
    match (applied.left_alone.saturating_sub(named.len() as u64), named.is_empty()) {
        (0, _) => {}
        (n, true) => named.push(grouped(n)),
        (n, false) => named.push(format!("and {} more", grouped(n))),
    }
    let mut text = format!("\nLeft alone, because it is not named: {}.", named.join(", "));
    if let Some(document) = applied.left.iter().find_map(others) {
        let _ = write!(
            text,
            "\nIf this document was known as {document} before, `document = {document:?}` at its top says so."
        );
    }
    text
}

fn shown(value: &Value) -> String {
    if value.is_null() { "–".into() } else { clean(&value.to_string()) }
}
