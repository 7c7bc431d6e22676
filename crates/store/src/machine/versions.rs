//! The registry as a whole: apply a document or go back to a version, with a history of both.

use std::collections::BTreeSet;

use tidegate_core::alerts::KindAlerts;
use tidegate_core::codes;
use tidegate_core::failure::cut;
use tidegate_core::ids::KindName;
use tidegate_core::limits;
use tidegate_core::policies::Policies;
use tidegate_core::registry::{
    self, Counts, Difference, Document, Entry, Identity, KindSettings, Outcome, Problem, Version,
    VersionInfo, differences, join,
};
use tidegate_core::schema::Schema;
use tidegate_core::time::Timestamp;

use super::change::PoliciesSet;
use super::{Change, Machine};
use crate::params::{Applied, Apply, RefusedDocument, Wanted};
use crate::rows::Rows;
use crate::{Error, Result};

impl<R: Rows> Machine<R> {
    /// Queues, kinds and policies as they are, without secrets.
    pub fn registry(&mut self) -> Result<Document> {
        Ok(self.whole_registry().as_shown())
    }

    fn whole_registry(&self) -> Document {
        let names = &self.memory.names;
        Document {
            name: None,
            queues: names.queues().filter_map(|(_, id)| names.queue(id).cloned()).collect(),
            kinds: names.kinds().map(|(_, kind)| kind.clone()).collect(),
            policies: names.policies.clone(),
        }
    }

    /// Changes the registry in one step, or not at all.
    pub fn apply(&mut self, apply: Apply) -> Result<Applied> {
        let now = self.tick(apply.now)?;
        let there = self.whole_registry();
        let source = cut(apply.source, limits::MAX_NOTE_BYTES);
        let (mut wanted, exactly) = match apply.wanted {
            Wanted::Document(document) => (*document, false),
            Wanted::Version(number) => (self.as_it_was(number, &there)?, true),
        };
        let before = if exactly { Policies::default() } else { there.policies.clone() };
        let named = wanted.entries();
        if !exactly {
            wanted.resolve(&before);
            let this = wanted.identity(&source);
            own(&mut wanted, &there, &this);
        }
        let (scheduled, misplaced) = self.scheduled_by(&wanted);
        check(&wanted, &there, misplaced)?;
        wanted.resolve(&before);
        follow_policies(&there, &mut wanted, &before);
        let mut changes = differences(&there, &wanted, exactly);
        for change in &mut changes {
            hide(change, &there, &wanted);
        }
        changes.extend(scheduled.differences.iter().cloned());
        let mut reply = told(changes, &named, &there);
        if apply.dry_run || (reply.changes.is_empty() && scheduled.is_empty()) {
            bound(&mut reply.changes);
            return Ok(reply);
        }
        let total = reply.changes.len() as u64;
        bound(&mut reply.changes);
        self.make_so(&there, wanted, exactly, now)?;
        self.make_scheduled(scheduled, now)?;
        let document = self.whole_registry();
        let info = VersionInfo {
            number: self.memory.names.version + 1,
            at: now,
            by: cut(apply.by, limits::MAX_NAME_BYTES),
            source,
            outcome: Outcome::Applied,
            hash: document.hash(),
            changes: reply.changes.clone(),
            changed: total,
            problems: vec![],
        };
        reply.version = Some(self.keep(Version { info, document: Some(document) })?);
        Ok(reply)
    }

    /// Keeps in the history that a document was refused.
    pub fn refuse(&mut self, refused: RefusedDocument, now: Timestamp) -> Result<u64> {
        let now = self.tick(now)?;
        let said = |p: Problem| Problem {
            path: cut(p.path, limits::MAX_NOTE_BYTES),
            what: cut(p.what, limits::MAX_NOTE_BYTES),
        };
        let info = VersionInfo {
            number: self.memory.names.version + 1,
            at: now,
            by: cut(refused.by, limits::MAX_NAME_BYTES),
            source: cut(refused.source, limits::MAX_NOTE_BYTES),
            outcome: Outcome::Refused,
            hash: cut(refused.hash, limits::MAX_NAME_BYTES),
            changes: vec![],
            changed: 0,
            problems: refused.problems.into_iter().take(KEPT_PROBLEMS).map(said).collect(),
        };
        self.keep(Version { info, document: None })
    }

    /// The newest versions, newest first.
    pub fn versions(&mut self, limit: usize) -> Result<Vec<VersionInfo>> {
        self.rows.versions(limit.min(limits::MAX_REGISTRY_VERSIONS + limits::MAX_REGISTRY_REFUSALS))
    }

    /// A version with its document.
    pub fn version(&mut self, number: u64) -> Result<Option<Version>> {
        let shown = |v: Version| Version { document: v.document.map(Document::as_shown), ..v };
        Ok(self.rows.version(number)?.map(shown))
    }

    fn keep(&mut self, version: Version) -> Result<u64> {
        let number = version.info.number;
        let keep = match version.info.outcome {
            Outcome::Applied => limits::MAX_REGISTRY_VERSIONS,
            Outcome::Refused => limits::MAX_REGISTRY_REFUSALS,
        };
        self.rows.add_version(&version, keep)?;
        self.change(Change::Version(number))?;
        Ok(number)
    }

    /// The registry of a version. What came later stays, because jobs may name it, but nothing enqueues it by itself.
    fn as_it_was(&mut self, number: u64, there: &Document) -> Result<Document> {
        let found = self.rows.version(number)?.and_then(|v| v.document);
        let missing = || {
            let detail = format!("the registry has no version {number} to go back to");
            Error::new(codes::VERSION_NOT_FOUND, detail)
        };
        let mut document = found.ok_or_else(missing)?;
        let later = there.kinds.iter().filter(|(name, _)| !document.kinds.contains_key(*name));
        let idle: Vec<_> = later.map(idle).collect();
        document.kinds.extend(idle);
        Ok(document)
    }

    fn make_so(&mut self, there: &Document, wanted: Document, exactly: bool, now: Timestamp) -> Result<()> {
        let mut policies = if exactly { wanted.policies.clone() } else { there.policies.clone() };
        policies.merge(&wanted.policies);
        if policies != there.policies {
            self.rows.put_policies(&policies)?;
            self.change(Change::Policies(Box::new(PoliciesSet(policies))))?;
        }
        for (name, settings) in wanted.queues {
            if there.queues.get(&name) != Some(&settings) {
                self.put_queue(name, settings, now)?;
            }
        }
        for (name, settings) in wanted.kinds {
            if there.kinds.get(&name) != Some(&settings) {
                self.write_kind(name, settings)?;
            }
        }
        Ok(())
    }
}

/// A difference as people may see it.
fn hide(change: &mut Difference, there: &Document, wanted: &Document) {
    if change.what != "kind" {
        return;
    }
    let kind = |document: &Document| {
        document.kinds.iter().find(|(name, _)| name.as_str() == change.name).map(|(_, kind)| kind.clone())
    };
    let (now, then) = (kind(there), kind(wanted));
    // What either schema calls secret is hidden in both payloads; a schema hides what itself calls secret.
    let schemas: Vec<Schema> = [&now, &then].into_iter().filter_map(|k| k.as_ref()?.schema.clone()).collect();
    let shown = |kind: &Option<KindSettings>, field: &str| {
        let mut kind = kind.clone()?.as_shown();
        kind.schedule = kind.schedule.map(|s| schemas.iter().fold(s, |s, schema| s.shown(schema)));
        serde_json::to_value(kind).ok()?.get_mut(field).map(serde_json::Value::take)
    };
    for (field, was, becomes) in &mut change.fields {
        if matches!(field.as_str(), "schema" | "schedule") {
            *was = shown(&now, field).unwrap_or_default();
            *becomes = shown(&then, field).unwrap_or_default();
        }
    }
}

/// A kind that no document describes: neither schedules nor events enqueue it, and nothing watches it.
fn idle((name, kind): (&KindName, &KindSettings)) -> (KindName, KindSettings) {
    let (on, alerts) = (vec![], KindAlerts::default());
    (name.clone(), KindSettings { on, schedule: None, alerts, ..kind.clone() })
}

/// The kinds of a document are its own. One that it had and no longer names stays, because jobs may name it, but it no longer runs
/// by itself or at events, and nothing watches it. What it names has its name of today from then on, whatever it was known as before; what it does
/// not name of that stays, because it may be another's today.
fn own(wanted: &mut Document, there: &Document, this: &Identity) {
    for (name, kind) in &mut wanted.kinds {
        if let Some(old) = there.kinds.get(name) {
            kind.reveal(old);
        }
        (kind.managed, kind.document) = (true, None);
        // Who says the same again takes nothing away from another who said it first.
        let same = |old: &&KindSettings| KindSettings { document: None, ..(*old).clone() } == *kind;
        let first = there.kinds.get(name).filter(same).and_then(|old| old.document.clone());
        let others = first.filter(|owner| !this.takes(owner));
        kind.document = Some(others.unwrap_or_else(|| this.name().to_owned()));
    }
    let dropped = |(name, kind): &(&KindName, &KindSettings)| {
        kind.document.as_deref().is_some_and(|owner| this.is(owner))
            && !wanted.kinds.contains_key(*name)
            && (kind.schedule.is_some() || !kind.alerts.is_empty() || !kind.on.is_empty())
    };
    let dropped: Vec<_> = there.kinds.iter().filter(dropped).map(idle).collect();
    wanted.kinds.extend(dropped);
}

/// What is told of a document that names these, where there was this registry.
fn told(changes: Vec<Difference>, named: &BTreeSet<Entry>, there: &Document) -> Applied {
    let changed: BTreeSet<Entry> = changes.iter().filter_map(Entry::of).collect();
    let as_wanted = Counts::of(named.difference(&changed));
    // What it no longer has and therefore changes is not left alone, although it does not name it.
    let mut left = there.left(&named.union(&changed).cloned().collect());
    let left_alone = left.len() as u64;
    left.truncate(limits::MAX_REGISTRY_LEFT);
    let (changed, unchanged) = (Counts::of(&changed), as_wanted.total());
    Applied { version: None, changes, changed, unchanged, as_wanted, left_alone, left }
}

/// Mistakes of a refused document that history keeps.
const KEPT_PROBLEMS: usize = 20;

/// Everything must be acceptable before anything is written.
fn check(wanted: &Document, there: &Document, misplaced: Vec<Problem>) -> Result<()> {
    let mut problems = wanted.misplaced(Some(there));
    problems.extend(misplaced);
    let mut fault = |path: String, why: String| problems.push(Problem { path, what: why });
    for (name, settings) in &wanted.queues {
        let path = join("queues", name.as_str());
        settings.faults().into_iter().for_each(|(field, why)| fault(format!("{path}.{field}"), why));
    }
    for (name, settings) in &wanted.kinds {
        let path = join("kinds", name.as_str());
        settings.faults().into_iter().for_each(|(field, why)| fault(format!("{path}.{field}"), why));
        for field in settings.hidden(there.kinds.get(name)) {
            fault(format!("{path}.{field}"), registry::HIDDEN.into());
        }
    }
    if let Err(why) = wanted.policies.check() {
        fault("policies".into(), why);
    }
    if problems.is_empty() {
        return Ok(());
    }
    let said: Vec<String> = registry::told(problems).iter().map(ToString::to_string).collect();
    Err(Error::new(codes::INVALID_REGISTRY, said.join("\n")))
}

/// Whoever names a policy that becomes another one follows it, also if the document does not name them.
fn follow_policies(there: &Document, wanted: &mut Document, before: &Policies) {
    let mut policies = before.clone();
    policies.merge(&wanted.policies);
    for (name, queue) in &there.queues {
        if let Some(policy) = queue.policy.as_deref().and_then(|p| policies.named(p))
            && *policy != queue.retry
        {
            let mut queue = queue.clone();
            queue.retry = policy.into_owned();
            wanted.queues.entry(name.clone()).or_insert(queue);
        }
    }
    for (name, kind) in &there.kinds {
        if let Some(policy) = kind.policy.as_deref().and_then(|p| policies.named(p))
            && kind.retry.as_ref() != Some(&*policy)
        {
            let mut kind = kind.clone();
            kind.retry = Some(policy.into_owned());
            wanted.kinds.entry(name.clone()).or_insert(kind);
        }
    }
}

fn bound(changes: &mut Vec<Difference>) {
    changes.truncate(limits::MAX_REGISTRY_CHANGES);
}
