//! Suggests the known word that a misspelt word probably means.

/// The known word with the most similar spelling, if it is close enough to be a typing error.
pub fn nearest<'a>(word: &str, known: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let near = known.into_iter().map(|candidate| (strsim::osa_distance(word, candidate), candidate));
    let near = near.filter(|(distance, candidate)| *distance <= (candidate.chars().count() / 3).clamp(1, 3));
    near.min_by_key(|(distance, _)| *distance).map(|(_, candidate)| candidate)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_close_words_are_suggested() {
        let known = ["run.timeout", "run.grace", "fork.expires"];
        assert_eq!(nearest("run.timout", known), Some("run.timeout"));
        // Two swapped letters are one mistake.
        assert_eq!(nearest("rnu", ["run", "runs"]), Some("run"));
        assert_eq!(nearest("fork.expire", known), Some("fork.expires"));
        assert_eq!(nearest("colour", known), None);
        assert_eq!(nearest("x", ["ro"]), None);
    }
}
