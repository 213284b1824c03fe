//! Errors of a race.

use avfs_present::hint;
use avfs_types::diagnose::Diagnose;
use avfs_wire::RaceAttempt;

#[derive(Debug, thiserror::Error)]
pub enum RaceError {
    #[error("none of {count} attempts won{}", first.as_ref().map(|first| format!(": {first}")).unwrap_or_default())]
    NoWinner {
        count: usize,
        /// Why the first of them could not be run, or has no score.
        first: Option<String>,
        /// The version that they started at, and the fork with the changes of the first.
        base: String,
        kept: Option<String>,
    },
    #[error("the list {} has no commands", list.display())]
    Empty { list: std::path::PathBuf },
    #[error("item {id} of the list needs other items, but all attempts start at once")]
    Needs { id: String },
    #[error("interrupted before there was a winner")]
    Interrupted,
}

impl RaceError {
    pub fn no_winner(base: String, attempts: &[RaceAttempt]) -> Self {
        let first_error =
            attempts.iter().find_map(|attempt| Some((attempt.attempt, attempt.error.as_ref()?)));
        Self::NoWinner {
            count: attempts.len(),
            first: first_error.map(|(number, error)| format!("attempt {number}: {}", error.message)),
            base,
            kept: attempts.iter().find_map(|attempt| attempt.fork.clone()),
        }
    }
}

impl Diagnose for RaceError {
    fn code(&self) -> &'static str {
        match self {
            Self::NoWinner { .. } => "race.no_winner",
            Self::Empty { .. } => "race.empty_list",
            Self::Needs { .. } => "race.needs",
            Self::Interrupted => "race.interrupted",
        }
    }
}

hint!(RaceError, |error, avfs| {
    let hint = match error {
        Self::NoWinner { base, kept, .. } => match kept {
            Some(fork) => format!("their changes are kept for review: {avfs} diff {base} {fork}"),
            None => "print their output with: --verbose".to_owned(),
        },
        Self::Empty { .. } => "write one command on each line".to_owned(),
        Self::Needs { .. } => format!("run the list with: {avfs} batch LIST"),
        Self::Interrupted => {
            format!("completed attempts are kept for review; list them with: {avfs} runs list")
        }
    };
    Some(hint)
});
