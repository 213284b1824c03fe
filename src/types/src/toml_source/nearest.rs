//! Which known word somebody may have meant.

/// The nearest of the words that are known, if it is near enough to be a slip of the fingers.
pub fn nearest<'a>(word: &str, known: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let near = known.into_iter().map(|candidate| (distance(word, candidate), candidate));
    let near = near.filter(|(distance, candidate)| *distance <= (candidate.chars().count() / 3).clamp(1, 3));
    near.min_by_key(|(distance, _)| *distance).map(|(_, candidate)| candidate)
}

/// Letters to add, drop or replace between two words.
fn distance(a: &str, b: &str) -> usize {
    let b: Vec<char> = b.chars().collect();
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (at, letter) in a.chars().enumerate() {
        let mut diagonal = std::mem::replace(&mut row[0], at + 1);
        for (column, other) in b.iter().enumerate() {
            let replaced = diagonal + usize::from(letter != *other);
            diagonal = row[column + 1];
            row[column + 1] = replaced.min(diagonal + 1).min(row[column] + 1);
        }
    }
    row[b.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn distances_count_single_letters() {
        for (a, b, steps) in [
            ("", "", 0),
            ("", "abc", 3),
            ("run", "run", 0),
            ("kitten", "sitting", 3),
            ("tiemout", "timeout", 2),
        ] {
            assert_eq!(distance(a, b), steps, "{a} {b}");
            assert_eq!(distance(b, a), steps, "{b} {a}");
        }
    }

    #[test]
    fn only_what_is_near_is_suggested() {
        let known = ["run.timeout", "run.grace", "fork.expires"];
        assert_eq!(nearest("run.timout", known), Some("run.timeout"));
        assert_eq!(nearest("fork.expire", known), Some("fork.expires"));
        assert_eq!(nearest("colour", known), None);
        assert_eq!(nearest("x", ["ro"]), None);
    }
}
