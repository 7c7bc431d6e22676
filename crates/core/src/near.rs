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

/// Whether one text is the other but for a slip of the finger: one letter more, less or other, or two swapped. Numbers count things and
/// are meant as they are.
pub fn is_slip(given: &str, meant: &str) -> bool {
    let (given, meant): (Vec<char>, Vec<char>) = (given.chars().collect(), meant.chars().collect());
    let same = given.iter().zip(&meant).take_while(|(a, b)| a == b).count();
    let (given, meant) = (&given[same..], &meant[same..]);
    let same = given.iter().rev().zip(meant.iter().rev()).take_while(|(a, b)| a == b).count();
    let (given, meant) = (&given[..given.len() - same], &meant[..meant.len() - same]);
    if given.iter().chain(meant).all(char::is_ascii_digit) {
        return false;
    }
    match (given, meant) {
        ([a, b], [c, d]) => a == d && b == c,
        _ => given.len() <= 1 && meant.len() <= 1,
    }
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

    #[test]
    fn a_slip_is_one_letter_or_two_that_are_swapped() {
        for given in ["mial.send", "mail.sen", "mail.sendd", "mail.semd", "aail.send"] {
            assert!(is_slip(given, "mail.send"), "{given}");
        }
        for given in ["mail.send", "mail.v2", "mail.void", "mali.sned", ""] {
            assert!(!is_slip(given, "mail.send"), "{given}");
        }
        assert!(!is_slip("mail.v2", "mail.v1") && !is_slip("mail.v10", "mail.v1"));
        assert!(is_slip("aab", "ab") && is_slip("ab", "aab"));
    }
}
