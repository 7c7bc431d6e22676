//! Runs of consecutive numbers: what was stored together is read and deleted together, and the server walks its index once
//! for each run instead of once for each number.

use tidegate_core::ids::Seq;

/// First and last numbers of runs, as two params.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Runs {
    pub(super) first: Vec<i64>,
    pub(super) last: Vec<i64>,
}

impl Runs {
    /// Runs of exactly these numbers, in order.
    pub(super) fn of(seqs: impl IntoIterator<Item = Seq>) -> Self {
        let mut numbers: Vec<i64> = seqs.into_iter().map(|seq| seq.0).collect();
        numbers.sort_unstable();
        let mut runs = Self::default();
        for number in numbers {
            match runs.last.last_mut() {
                Some(last) if number <= last.saturating_add(1) => *last = number,
                _ => {
                    runs.first.push(number);
                    runs.last.push(number);
                }
            }
        }
        runs
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn runs_hold_exactly_the_numbers_they_were_made_of() {
        let runs = Runs::of([7, 3, 4, 5, 9, 8, 3, i64::MAX].map(Seq));
        assert_eq!(runs, Runs { first: vec![3, 7, i64::MAX], last: vec![5, 9, i64::MAX] });
        assert_eq!(Runs::of([]), Runs::default());
    }
}
