//! Which schedules wait for which: whoever waits for another finds it there, nobody waits for themselves, and all of them fit.

use std::collections::{BTreeMap, BTreeSet};

use super::misplaced::ALONE;
use super::{Problem, join};
use crate::ids::ScheduleName;
use crate::limits;
use crate::near::nearest;

/// Schedules with those that each waits for.
pub(super) type Waits<'s> = BTreeMap<&'s ScheduleName, &'s [ScheduleName]>;

/// What a document makes of the schedules.
#[derive(Debug, Default)]
pub struct Order<'s> {
    /// Those in force, without those that go.
    pub there: Waits<'s>,
    /// Those that it has.
    pub put: Waits<'s>,
    /// Those of them that are as they were. What they wait for may be gone since, with its tenant: only what goes now is missed.
    pub same: BTreeSet<&'s ScheduleName>,
    /// Those that it no longer has.
    pub gone: BTreeSet<&'s ScheduleName>,
}

impl Order<'_> {
    /// Everything that is wrong with it; `alone` if only the document was looked at.
    pub fn faults(self, alone: bool) -> Vec<Problem> {
        let Self { there, put, same, gone } = self;
        let mut problems = vec![];
        let mut fault = |name: &ScheduleName, field: Option<&str>, what: String| {
            let path = place(name);
            problems.push(Problem { path: field.map_or(path.clone(), |field| join(&path, field)), what });
        };
        for (name, others) in there.iter().filter(|(name, _)| !put.contains_key(*name)) {
            for other in others.iter().filter(|other| gone.contains(other)) {
                fault(other, None, format!("schedule `{name}` waits for it: change that first"));
            }
        }
        let mut after = there;
        after.extend(&put);
        let missed = |name: &ScheduleName, other: &ScheduleName| {
            !after.contains_key(other) && (gone.contains(other) || !same.contains(name))
        };
        let missing = put.iter().flat_map(|(name, others)| {
            others.iter().filter(move |other| missed(name, other)).map(move |other| (*name, other))
        });
        // As many as are told: looking for the nearest takes its time, and everybody else waits.
        for (name, other) in missing.take(limits::MAX_REGISTRY_PROBLEMS) {
            let near = nearest(other.as_str(), after.keys().map(|n| n.as_str()));
            let near = near.map_or(String::new(), |n| format!("; did you mean `{n}`?"));
            let place = if alone { ALONE } else { "" };
            fault(name, Some("after"), format!("there is no schedule `{other}`{place}{near}"));
        }
        let circle = in_circles(&after);
        for name in put.keys().filter(|name| circle.contains(*name)) {
            fault(name, Some("after"), "it would wait for itself, or for one that does".into());
        }
        if after.len() > limits::MAX_SCHEDULES {
            let what = format!("{} schedules; there may be {}", after.len(), limits::MAX_SCHEDULES);
            problems.push(Problem { path: "kinds".into(), what });
        }
        problems
    }
}

/// What is wrong with a schedule of a document if somebody has one of that name.
pub fn taken(name: &ScheduleName) -> Problem {
    let what = format!(
        "there is a schedule `{name}` that no document describes; `tidegate schedules rm {name}` makes room for this one"
    );
    Problem { path: place(name), what }
}

fn place(name: &ScheduleName) -> String {
    join(&join("kinds", name.as_str()), "schedule")
}

/// Those that can never go first: they wait for themselves, or for one that does. Each wait is looked at once.
fn in_circles<'s>(after: &Waits<'s>) -> BTreeSet<&'s ScheduleName> {
    let mut open: BTreeMap<&ScheduleName, usize> = BTreeMap::new();
    let mut waiting: BTreeMap<&ScheduleName, Vec<&'s ScheduleName>> = BTreeMap::new();
    let mut free: Vec<&'s ScheduleName> = vec![];
    for (name, others) in after {
        let there = others.iter().filter(|other| after.contains_key(other));
        let n = there.inspect(|other| waiting.entry(*other).or_default().push(*name)).count();
        if n == 0 {
            free.push(*name);
        } else {
            open.insert(*name, n);
        }
    }
    let mut left: BTreeSet<&'s ScheduleName> = after.keys().copied().collect();
    while let Some(name) = free.pop() {
        left.remove(name);
        for other in waiting.remove(name).into_iter().flatten() {
            if let Some(n) = open.get_mut(other) {
                *n -= 1;
                if *n == 0 {
                    free.push(other);
                }
            }
        }
    }
    left
}
