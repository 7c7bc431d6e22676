//! What a document changed, or would, in words.

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::path::Path;

use serde_json::{Value, json};
use tidegate_core::registry::{Counts, Entry, Identity, Left};
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
    /// Which document it is; `None` where there is none.
    pub(super) this: Option<&'a Identity>,
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
    if said.this.is_none() && applied.version.is_some() {
        text += "\nA server that watches a file (`serve --registry`) applies it again when it starts or the file changes: change the file, too.";
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
fn left(applied: &Applied, this: Option<&Identity>) -> String {
    if applied.left_alone == 0 {
        return String::new();
    }
    let one = |left: &Left| {
        let whose = others(left, this).map_or(String::new(), |owner| format!(" (of {})", clean(owner)));
        format!("{} {}{whose}", left.what, left.name)
    };
    let mut named: Vec<String> = applied.left.iter().take(FEW).map(one).collect();
    match (applied.left_alone.saturating_sub(named.len() as u64), named.is_empty()) {
        (0, _) => {}
        (n, true) => named.push(grouped(n)),
        (n, false) => named.push(format!("and {} more", grouped(n))),
    }
    let mut text = format!("\nLeft alone, because it is not named: {}.", named.join(", "));
    let before =
        |left| this.and_then(|this| others(left, Some(this)).filter(|owner| may_have_been(this, owner)));
    if let Some(owner) = applied.left.iter().find_map(before) {
        let quoted = toml::Value::from(owner);
        let _ = write!(
            text,
            "\nIf this document was known as {owner} before, `document = {quoted}` at its top says so, and ends what it no longer has."
        );
    }
    text
}

/// The document that has what was left alone, if that is another one.
fn others<'l>(left: &'l Left, this: Option<&Identity>) -> Option<&'l str> {
    left.document.as_deref().filter(|owner| this.is_none_or(|this| !this.is(owner)))
}

/// Whether a document may have been known by this name before: it is no path of another file, not what anybody may come from, and can
/// be written.
fn may_have_been(this: &Identity, owner: &str) -> bool {
    let path = Path::new(owner);
    let is_file = owner.contains('/') || path.extension().is_some_and(|e| e == "toml" || e == "json");
    let is_another = is_file && path.file_name() != Path::new(this.source()).file_name();
    !is_another && !matches!(owner, "-" | "api") && clean(owner) == owner
}

fn shown(value: &Value) -> String {
    if value.is_null() { "–".into() } else { clean(&value.to_string()) }
}
