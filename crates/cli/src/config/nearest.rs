//! The known word that was probably meant.

/// The nearest of `known`, if one is near enough to be meant.
pub(crate) fn nearest<'a>(given: &str, known: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let bound = (given.chars().count() / 3).clamp(1, 3);
    let scored = known.into_iter().map(|k| (distance(given, k), k));
    scored.filter(|(d, _)| *d <= bound).min_by_key(|(d, _)| *d).map(|(_, k)| k)
}

/// Letters to add, drop, change or swap with their neighbour.
fn distance(a: &str, b: &str) -> usize {
    let (a, b): (Vec<char>, Vec<char>) = (a.chars().collect(), b.chars().collect());
    let mut rows = vec![(0..=b.len()).collect::<Vec<usize>>()];
    for i in 1..=a.len() {
        let mut row = vec![i];
        for j in 1..=b.len() {
            let changed = rows[i - 1][j - 1] + usize::from(a[i - 1] != b[j - 1]);
            let mut least = changed.min(rows[i - 1][j] + 1).min(row[j - 1] + 1);
            if i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1] {
                least = least.min(rows[i - 2][j - 2] + 1);
            }
            row.push(least);
        }
        rows.push(row);
    }
    rows[a.len()][b.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slips_are_recognised_and_strangers_are_not() {
        let known = ["concurrency", "lease", "drain", "queues"];
        assert_eq!(nearest("concurency", known), Some("concurrency"));
        assert_eq!(nearest("drian", known), Some("drain"));
        assert_eq!(nearest("leases", known), Some("lease"));
        assert_eq!(nearest("colour", known), None);
    }
}
