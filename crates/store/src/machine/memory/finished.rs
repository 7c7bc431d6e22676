//! Finished jobs of kinds with lanes of their own, which may keep fewer than their queue.

use std::collections::{BTreeSet, HashSet};

use tidegate_core::ids::Seq;
use tidegate_core::time::Timestamp;

/// Deleted jobs that may be listed for a while, and the part of the list that they may be.
const LOOSE: (usize, usize) = (1_024, 8);

/// Finished jobs of a kind, dead ones not among them. All of them, whether the kind keeps fewer now or not: it may tomorrow.
///
/// There can be millions, so each is listed once, by age alone. Nearly all are deleted in that order; of one that is not, only that it
/// is gone is noted, until that is worth a walk along the list.
#[derive(Debug, Default)]
pub(in crate::machine) struct Finished {
    by_age: BTreeSet<(Timestamp, Seq)>,
    gone: HashSet<Seq>,
}

impl Finished {
    pub(in crate::machine) fn insert(&mut self, seq: Seq, at: Timestamp) {
        self.by_age.insert((at, seq));
    }

    /// Takes away one that is among them.
    pub(super) fn remove(&mut self, seq: Seq) {
        self.gone.insert(seq);
        while let Some((_, first)) = self.by_age.first()
            && self.gone.remove(first)
        {
            self.by_age.pop_first();
        }
        if self.gone.len() > LOOSE.0.max(self.by_age.len() / LOOSE.1) {
            let gone = std::mem::take(&mut self.gone);
            self.by_age.retain(|(_, seq)| !gone.contains(seq));
        }
    }

    pub(in crate::machine) fn len(&self) -> usize {
        self.by_age.len().saturating_sub(self.gone.len())
    }

    pub(in crate::machine) fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Those that finished first, first.
    pub(in crate::machine) fn oldest(&self) -> impl Iterator<Item = Seq> {
        self.by_age.iter().map(|(_, seq)| *seq).filter(|seq| !self.gone.contains(seq))
    }
}

#[cfg(test)]
mod tests {
    use tidegate_core::seed::Seed;

    use super::*;

    /// Against a list that forgets at once: mostly the oldest, at times any of them.
    #[test]
    fn whatever_is_deleted_the_others_are_there_in_their_order() {
        let mut dice = Seed::new(7);
        let (mut finished, mut model) = (Finished::default(), BTreeSet::new());
        for n in 0..20_000 {
            let at = Timestamp(n / 3 + dice.below(50) as i64);
            finished.insert(Seq(n), at);
            model.insert((at, Seq(n)));
            let any = dice.below(model.len() as u64) as usize;
            let which = if n % 7_000 < 3_000 { Some(any) } else { dice.one_in(2).then_some(0) };
            if let Some(entry) = which.and_then(|i| model.iter().nth(i).copied()) {
                model.remove(&entry);
                finished.remove(entry.1);
            }
            assert_eq!((finished.len(), finished.is_empty()), (model.len(), model.is_empty()));
            let listed = finished.by_age.len() + finished.gone.len();
            assert!(
                listed <= model.len() + model.len() / 2 + 2 * LOOSE.0 + 2,
                "{listed} for {}",
                model.len()
            );
            assert!(finished.oldest().take(5).eq(model.iter().map(|(_, seq)| *seq).take(5)));
        }
        assert!(finished.oldest().eq(model.iter().map(|(_, seq)| *seq)));
    }
}
