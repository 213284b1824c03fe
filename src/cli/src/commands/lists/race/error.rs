//! Why a race has no winner.

use avfs_present::hint;
use avfs_types::diagnose::Diagnose;
use avfs_wire::RaceAttempt;

#[derive(Debug, thiserror::Error)]
pub enum RaceError {
    #[error("none of {count} attempts has won{}", first.as_ref().map(|first| format!(": {first}")).unwrap_or_default())]
    NoWinner {
        count: usize,
        /// Why the first of them could not be run, or has no score.
        first: Option<String>,
        /// What they began with, and where the first has its changes.
        base: String,
        kept: Option<String>,
    },
    #[error("the list {} has no commands", list.display())]
    Empty { list: std::path::PathBuf },
    #[error("item {id} of the list needs others, but attempts begin all at once")]
    Needs { id: String },
    #[error("it was interrupted before there was a winner")]
    Interrupted,
}

impl RaceError {
    pub fn no_winner(base: String, attempts: &[RaceAttempt]) -> Self {
        let told = attempts.iter().find_map(|attempt| Some((attempt.attempt, attempt.error.as_ref()?)));
        Self::NoWinner {
            count: attempts.len(),
            first: told.map(|(number, error)| format!("attempt {number}: {}", error.message)),
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
            Some(fork) => format!("what they changed is kept for review: {avfs} diff {base} {fork}"),
            None => "see what they print with: --verbose".to_owned(),
        },
        Self::Empty { .. } => "write one command on each line".to_owned(),
        Self::Needs { .. } => format!("run such a list with: {avfs} batch LIST"),
        Self::Interrupted => {
            format!("attempts that had ended are kept for review; see them with: {avfs} runs list")
        }
    };
    Some(hint)
});
