//! `avfs completions`

use clap::{Args, ValueEnum};
use clap_complete::Shell;

use avfs_wire::Completions;

use crate::context::CommandContext;
use crate::help;
use crate::ui::Outcome;

/// Print a completion script for a shell
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  mkdir -p ~/.local/share/bash-completion/completions ~/.config/fish/completions
  avfs completions bash > ~/.local/share/bash-completion/completions/avfs
  avfs completions bash avfs-run > ~/.local/share/bash-completion/completions/avfs-run
  avfs completions fish > ~/.config/fish/completions/avfs.fish
  avfs completions zsh > _avfs        # then move it to a directory of $fpath")]
pub struct CompletionsArgs {
    /// The shell to complete for
    shell: Shell,
    /// The program that the script completes
    #[arg(default_value = "avfs")]
    program: Program,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum Program {
    Avfs,
    AvfsRun,
}

pub fn run(ctx: &CommandContext, args: &CompletionsArgs) -> Outcome {
    let mut script = Vec::new();
    let (mut command, name) = match args.program {
        Program::Avfs => (help::command(), "avfs"),
        Program::AvfsRun => (avfs_run::command_line(), "avfs-run"),
    };
    clap_complete::generate(args.shell, &mut command, name, &mut script);
    let result =
        Completions { shell: args.shell.to_string(), script: String::from_utf8_lossy(&script).into_owned() };
    ctx.ui.answer(&result, |out| out.own_bytes(&script))
}
