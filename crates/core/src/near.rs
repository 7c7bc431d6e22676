//! Guessing what was meant.

/// The candidate nearest to what was given, if it is near enough to be what was meant.
pub fn nearest<'a>(given: &str, candidates: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let given: String = given.chars().take(64).flat_map(char::to_lowercase).collect();
    candidates
        .into_iter()
        .map(|c| (distance(&given, &c.to_lowercase()), c))
        .filter(|(d, c)| *d <= c.len().min(given.len()) / 3 + 1)
        .min()
        .map(|(_, c)| c)
}

/// Edits from one text to the other.
fn distance(a: &str, b: &str) -> usize {
    let b: Vec<char> = b.chars().collect();
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, x) in a.chars().enumerate() {
        let mut diagonal = std::mem::replace(&mut row[0], i + 1);
        for (j, y) in b.iter().enumerate() {
            let change = diagonal + usize::from(x != *y);
            diagonal = row[j + 1];
            row[j + 1] = change.min(row[j] + 1).min(diagonal + 1);
        }
    }
    row[b.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slip_of_the_finger_is_understood_and_nonsense_is_not() {
        let known = ["kind", "queue", "payload", "priority"];
        assert_eq!(nearest("prioritty", known), Some("priority"));
        assert_eq!(nearest("Payload", known), Some("payload"));
        assert_eq!(nearest("color", known), None);
        assert_eq!(nearest("", known), None);
    }
}
