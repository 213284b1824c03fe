//! Chooses the winner of several attempts. Pure: works on numbers and printed output.

use avfs_types::diagnose::Diagnose;

/// The criterion for the best successful attempt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Aim {
    HighestScore,
    LowestScore,
}

#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub enum ScoreError {
    #[error("the score command printed nothing")]
    Nothing,
    #[error("the score command printed {line:?} as its last line, which is not a finite decimal number")]
    NotANumber { line: String },
}

impl Diagnose for ScoreError {
    fn code(&self) -> &'static str {
        match self {
            Self::Nothing | Self::NotANumber { .. } => "race.bad_score",
        }
    }
}

/// The number in the last line that a score command printed.
pub fn score_of(stdout: &str) -> Result<f64, ScoreError> {
    /// Maximum characters shown of a line that is not a number.
    const SHOWN_CHARS_MAX: usize = 80;
    let line = stdout.trim_end().lines().last().unwrap_or_default().trim();
    if line.is_empty() {
        return Err(ScoreError::Nothing);
    }
    let number = line.parse::<f64>().ok().filter(|number| number.is_finite());
    number.ok_or_else(|| ScoreError::NotANumber { line: line.chars().take(SHOWN_CHARS_MAX).collect() })
}

/// The attempt with the best score; the lowest-numbered attempt if several are equal.
pub fn best(aim: Aim, scores: impl IntoIterator<Item = (usize, f64)>) -> Option<usize> {
    let mut best: Option<(usize, f64)> = None;
    for (number, score) in scores {
        let better = best.is_none_or(|(other, held)| match aim {
            _ if score == held => number < other,
            Aim::HighestScore => score > held,
            Aim::LowestScore => score < held,
        });
        if better {
            best = Some((number, score));
        }
    }
    best.map(|(number, _)| number)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn score_is_the_last_line() {
        for (printed, score) in [
            ("1", 1.0),
            ("a\n b 7\n-2.5e3\n", -2500.0),
            ("4 \n\n\n", 4.0),
            ("x\r\n12\r\n", 12.0),
            ("-0", 0.0),
        ] {
            assert_eq!(score_of(printed), Ok(score), "{printed:?}");
        }
        for nothing in ["", "\n \n"] {
            assert_eq!(score_of(nothing), Err(ScoreError::Nothing));
        }
        for bad in ["1\nall good", "NaN", "inf", "1 2", "0x10", "12%"] {
            assert!(matches!(score_of(bad), Err(ScoreError::NotANumber { .. })), "{bad:?}");
        }
    }

    #[test]
    fn first_of_equal_scores_wins() {
        let scores = [(3, 7.0), (1, 2.0), (2, 7.0), (4, -0.0), (0, 0.0)];
        assert_eq!(best(Aim::HighestScore, scores), Some(2));
        assert_eq!(best(Aim::LowestScore, scores), Some(0));
        assert_eq!(best(Aim::LowestScore, []), None);
    }
}
