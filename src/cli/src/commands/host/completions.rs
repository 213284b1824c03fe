//! `avfs completions`

use clap::Args;
use clap_complete::Shell;

use avfs_wire::Completions;

use crate::context::CommandContext;
use crate::help;
use crate::ui::Outcome;

/// Print a completion script for a shell
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  avfs completions bash > ~/.local/share/bash-completion/completions/avfs
  avfs completions fish > ~/.config/fish/completions/avfs.fish")]
pub struct CompletionsArgs {
    /// The shell to complete for
    shell: Shell,
}

pub fn run(ctx: &CommandContext, args: &CompletionsArgs) -> Outcome {
    let mut script = Vec::new();
    clap_complete::generate(args.shell, &mut help::command(), "avfs", &mut script);
    let result =
        Completions { shell: args.shell.to_string(), script: String::from_utf8_lossy(&script).into_owned() };
    ctx.ui.answer(&result, |out| out.own_bytes(&script))
}
