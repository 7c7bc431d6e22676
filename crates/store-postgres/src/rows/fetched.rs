//! What was read in this transaction, or written and sent: good until it ends.

use std::collections::{BTreeSet, HashMap, HashSet};
use std::hash::{BuildHasher, Hash, RandomState};

use tidegate_core::hash::QuickState;
use tidegate_core::ids::{JobId, Seq, UniqueKey};
use tidegate_core::job::Dependency;
use tidegate_core::lanes::LaneId;
use tidegate_store::rows::{BlockedRow, DoneRow, JobRow, KindId, StateRow, TenantNo, UniqueRow};

use super::Gathered;

/// Rows by key; `None` where there is no row.
#[derive(Debug)]
pub(super) struct Known<K, V, S = QuickState>(HashMap<K, Option<V>, S>);

/// The same by keys that callers choose.
pub(super) type KnownByName<K, V> = Known<K, V, RandomState>;

impl<K, V, S: Default> Default for Known<K, V, S> {
    fn default() -> Self {
        Self(HashMap::default())
    }
}

impl<K: Eq + Hash + Clone, V, S: BuildHasher + Default> Known<K, V, S> {
    /// What is known of this key: `Some(None)` means that there is no row.
    pub(super) fn get(&self, key: &K) -> Option<&Option<V>> {
        self.0.get(key)
    }

    pub(super) fn put(&mut self, key: K, row: Option<V>) {
        self.0.insert(key, row);
    }

    /// Changes a row that is known, be it that there is none.
    pub(super) fn amend(&mut self, key: K, change: impl FnOnce(&mut V))
    where
        V: Default,
    {
        if let Some(row) = self.0.get_mut(&key) {
            change(row.get_or_insert_with(V::default));
        }
    }

    pub(super) fn forget(&mut self, key: &K) {
        self.0.remove(key);
    }

    /// Those of the keys that nothing is known of, each once.
    pub(super) fn missing(&self, keys: impl IntoIterator<Item = K>) -> Vec<K> {
        let mut seen = HashSet::<K, S>::default();
        keys.into_iter().filter(|k| !self.0.contains_key(k) && seen.insert(k.clone())).collect()
    }

    /// These keys were looked for and these rows found.
    pub(super) fn learn(&mut self, keys: Vec<K>, rows: impl IntoIterator<Item = (K, V)>) {
        self.0.extend(keys.into_iter().map(|k| (k, None)));
        self.0.extend(rows.into_iter().map(|(k, row)| (k, Some(row))));
    }
}

/// What was read, or written and sent.
#[derive(Debug, Default)]
pub(super) struct Fetched {
    pub(super) jobs: Known<Seq, JobRow>,
    pub(super) heads: Known<Seq, (LaneId, Option<TenantNo>)>,
    pub(super) states: Known<Seq, StateRow>,
    pub(super) done: Known<Seq, DoneRow>,
    pub(super) ids: KnownByName<JobId, Seq>,
    pub(super) uniques: KnownByName<(KindId, UniqueKey), UniqueRow>,
    /// Edges by either end.
    pub(super) children: Known<Seq, Vec<Seq>>,
    pub(super) parents: Known<Seq, Vec<Seq>>,
    /// How many of the former.
    pub(super) counts: Known<Seq, u32>,
    pub(super) blocked: Known<Seq, BlockedRow>,
    pub(super) kept: Known<Seq, Dependency>,
}

impl Fetched {
    /// Takes over what was gathered and has been sent.
    pub(super) fn absorb(&mut self, sent: Gathered) {
        let gone: BTreeSet<Seq> = sent.deleted_jobs.iter().copied().collect();
        for (seq, row) in sent.new_jobs {
            if gone.contains(&seq) {
                self.ids.put(row.id, None);
                continue;
            }
            self.ids.put(row.id, Some(seq));
            self.jobs.put(seq, Some(row));
        }
        for (seq, row) in sent.states {
            self.states.put(seq, Some(row));
        }
        for (seq, row) in sent.done {
            self.done.put(seq, Some(row));
        }
        for (key, row) in sent.uniques {
            self.uniques.put(key, row);
        }
        for (parent, child) in sent.unlinked {
            self.counts.forget(&parent);
            self.children.amend(parent, |list| list.retain(|c| *c != child));
            self.parents.amend(child, |list| list.retain(|p| *p != parent));
        }
        for (parent, child) in sent.linked {
            self.counts.forget(&parent);
            self.children.amend(parent, |list| list.push(child));
            self.parents.amend(child, |list| list.push(parent));
        }
        for (seq, row) in sent.blocked {
            self.blocked.put(seq, row);
        }
        for seq in sent.swept {
            self.kept.forget(&seq);
        }
        for (seq, (outcome, _)) in sent.kept {
            self.kept.put(seq, Some(outcome));
        }
        for seq in gone {
            self.jobs.put(seq, None);
            self.heads.put(seq, None);
            self.states.put(seq, None);
            self.done.put(seq, None);
        }
    }
}
