//! The `avfs` command: reads the environment, parses the arguments, prints the answers.
//!
//! A thin layer: the library does the work, and [`ui`] prints all output.

mod cli;
mod commands;
mod context;
mod error;
mod given_path;
mod help;
mod lists;
mod progress;
mod run_options;
mod signals;
mod ui;
mod unknown_command;
mod usage;
mod view;
mod whole;
mod worker_pool;

use std::process::ExitCode;

use clap::FromArgMatches;
use cli::Cli;
use context::CommandContext;
use ui::{Format, Ui};

use avfs_hostfs::{mask, size_limit};
use avfs_terminal::LOG_VARIABLE;

fn main() -> ExitCode {
    let words: Vec<_> = std::env::args_os().collect();
    if let Some(code) = avfs_run::as_helper(&words) {
        return ExitCode::from(code);
    }
    avfs_terminal::start_log(std::env::var(LOG_VARIABLE).ok().as_deref());
    size_limit::handle_sigxfsz();
    mask::set_umask();
    let words = usage::help_of_help(words);
    let parsed = help::command().try_get_matches_from(&words);
    let parsed = parsed.and_then(|matches| Ok((usage::kind_of(&matches), Cli::from_arg_matches(&matches)?)));
    let code = match parsed {
        Ok((kind, cli)) => run(kind, cli),
        Err(error) => usage::explain(&error, &words),
    };
    avfs_types::pause::point("exit");
    ExitCode::from(code)
}

fn run(kind: String, cli: Cli) -> u8 {
    let ui = Ui::new(if cli.json.is_some() { Format::Json } else { Format::Human }, kind);
    let ui = ui.for_vault(cli.vault.as_deref());
    if let Err(code) = usage::check_form(&ui, cli.json, &cli.verb) {
        return code;
    }
    let outcome = CommandContext::gather(ui.clone(), cli.vault).and_then(|ctx| commands::run(&ctx, cli.verb));
    ui.conclude(outcome)
}
