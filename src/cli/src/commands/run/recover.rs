//! `avfs recover`

use clap::Args;

use avfs_ops::runs::{Doubt, RecoverAction, RecoverQuery};
use avfs_request::SecretsInFiles;
use avfs_terminal::Tone;
use avfs_types::ids::RunPrefix;

use crate::context::CommandContext;
use crate::ui::Outcome;
use crate::view::plural;

/// Finish runs whose changes could not be captured
///
/// Use it after avfs-run ended with exit code 123, after it or the machine was killed during a capture, or when a
/// run prints that another one is recoverable. If a capture fails, for example because the disk is full, the
/// files that the command wrote are kept. This verb captures them and completes the run; review its changes with
/// `avfs diff RUN`.
///
/// Only the names of a run's secrets are stored, not their values. To leave out files that contain a secret,
/// give its value again in the variable of that name.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  avfs recover --list             # list the runs, and change nothing
  avfs recover                    # capture the changes of all of them
  avfs recover 3f9a               # capture the changes of one run
  NPM_TOKEN=… avfs recover 3f9a   # leave out files that contain this secret of the run
  avfs recover --discard 3f9a     # drop the changes of the run")]
pub struct RecoverArgs {
    /// Recover this run: the first four or more digits of its id [default: all recoverable runs]
    #[arg(value_name = "ID")]
    id: Option<RunPrefix>,
    /// Only list recoverable runs
    #[arg(long, conflicts_with_all = ["discard", "force"])]
    list: bool,
    /// Discard the changes
    #[arg(long, requires = "id")]
    discard: bool,
    /// Capture the changes even if the machine was restarted since and they may be incomplete
    #[arg(long)]
    force: bool,
    /// Keep every file, even if it may contain a secret of the run
    #[arg(long, conflicts_with_all = ["list", "discard"])]
    allow_secret_files: bool,
}

impl RecoverArgs {
    fn action(&self) -> RecoverAction {
        if self.list {
            return RecoverAction::List;
        }
        if self.discard {
            return RecoverAction::Discard;
        }
        let doubt = if self.force { Doubt::Accepted } else { Doubt::Refused };
        let secrets_in_files = match self.allow_secret_files {
            true => SecretsInFiles::Allowed,
            false => SecretsInFiles::Refused,
        };
        RecoverAction::Capture { doubt, secrets_in_files }
    }
}

pub fn run(ctx: &CommandContext, args: &RecoverArgs) -> Outcome {
    let query = RecoverQuery { run: args.id.clone(), action: args.action() };
    let result = avfs_ops::runs::recover(&ctx.client.open()?, &query)?;
    ctx.ui.answer(&result, |out| {
        for run in &result.runs {
            let id = out.paint(Tone::Id, format_args!("run:{}", run.run_id));
            let what = match (&run.fork, &*run.action) {
                (_, "listed") => format!("kept in {}", run.scratch),
                (_, "discarded") => "discarded".to_owned(),
                (Some(fork), _) => format!("captured on fork {fork}"),
                (None, _) => "captured: no changes".to_owned(),
            };
            out.line(format_args!("{id}  {what}"))?;
        }
        if result.runs.is_empty() {
            out.line(format_args!("nothing to recover"))
        } else {
            out.line(format_args!("{}", plural(result.runs.len() as u64, "run", "runs")))
        }
    })
}
