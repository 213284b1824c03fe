//! `avfs cache explain|list|forget`

use std::ffi::OsString;

use clap::{ArgGroup, Args, Subcommand};

use avfs_ops::{OpError, quoted};
use avfs_terminal::Tone;
use avfs_types::Zone;
use avfs_types::ids::RunPrefix;
use avfs_wire::CacheExplain;

use crate::commands::execute::run_as;
use crate::context::CommandContext;
use crate::ui::{Format, Outcome};
use crate::view::{command_line, local_time_of, plural};

/// Explain, list and forget cached results
///
/// With `avfs-run --cache write`, the output, exit code and changes of a run are cached. Another run of
/// the same command on the same files, with the same variables, sandbox and system, reuses the result and
/// executes nothing.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  avfs cache explain -- make test
  avfs cache explain run:3f9a
  avfs cache list
  avfs cache forget --all")]
pub struct CacheArgs {
    #[command(subcommand)]
    action: CacheAction,
}

#[derive(Debug, Subcommand)]
enum CacheAction {
    Explain(ExplainArgs),
    List(ListArgs),
    Forget(ForgetArgs),
}

/// Explain why a result is or is not reused
///
/// For a run (run:ID, its ID, last or last~N), prints the record of the journal. For a command, looks up the
/// result now, with the given options of avfs-run; executes and writes nothing. A single word that can be both is
/// a run, except digits that are the name of a program; write -- before a command to be sure.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  avfs cache explain last
  avfs cache explain run:3f9a
  avfs cache explain -- make test
  avfs cache explain --json --fork fix-1 --input ~/data --shell 'make && make test'")]
struct ExplainArgs {
    /// A run, or arguments of avfs-run (see: avfs-run --help)
    #[arg(trailing_var_arg = true, allow_hyphen_values = true, required = true)]
    #[arg(value_name = "RUN|AVFS-RUN ARGUMENTS")]
    words: Vec<OsString>,
}

/// List cached results, newest first
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  avfs cache list
  avfs cache list --limit 5 --json")]
struct ListArgs {
    /// List at most N results
    #[arg(long, value_name = "N", default_value_t = 50)]
    limit: usize,
}

/// Forget the result of a run, or all results
///
/// The runs and their versions stay. The next gc removes the stored output.
#[derive(Debug, Args)]
#[command(group = ArgGroup::new("which").required(true).args(["id", "all"]))]
#[command(after_help = "\
Examples:
  avfs cache forget run:3f9a
  avfs cache forget --all")]
struct ForgetArgs {
    /// Forget the result of this run: the first four or more digits of its id
    #[arg(value_name = "run:ID")]
    id: Option<RunPrefix>,
    /// Forget all results
    #[arg(long)]
    all: bool,
}

pub fn run(ctx: &CommandContext, args: &CacheArgs) -> Outcome {
    match &args.action {
        CacheAction::Explain(args) => explain(ctx, args),
        CacheAction::List(args) => list(ctx, args),
        CacheAction::Forget(args) => forget(ctx, args),
    }
}

fn explain(ctx: &CommandContext, args: &ExplainArgs) -> Outcome {
    let Some(explained) = explained_run(ctx, args)? else {
        return Ok(run_as(&["cache", "explain"], &["--explain-cache"]));
    };
    let mut ui = ctx.ui.clone();
    if args.words.iter().any(|word| word == "--json") {
        ui.format = Format::Json;
    }
    ui.answer(&explained, |out| {
        explained.lines(&Zone::system()).iter().try_for_each(|line| out.line(format_args!("{line}")))
    })
}

/// Explains the run that the arguments name; `None` if they are a command. After `--`, only `run:ID` names a run.
fn explained_run(ctx: &CommandContext, args: &ExplainArgs) -> Result<Option<CacheExplain>, OpError> {
    let explain = |run: &RunPrefix| avfs_ops::runs::explain_cache(&ctx.client.open()?, run);
    let mut words = args.words.iter();
    let Some(word) = words.next().and_then(|word| word.to_str()) else { return Ok(None) };
    if words.any(|more| more != "--json") {
        return Ok(None);
    }
    if word.starts_with("run:") {
        return Ok(Some(explain(&RunPrefix::parse(word)?)?));
    }
    let is_escaped = std::env::args_os().any(|word| word == "--");
    let Some(prefix) = RunPrefix::parse(word).ok().filter(|_| !is_escaped) else { return Ok(None) };
    if word.starts_with("last") {
        return Ok(Some(explain(&prefix)?));
    }
    // Digits can also be the name of a command. Without a vault, or without such a run, they are one.
    let Ok(explained) = explain(&prefix) else { return Ok(None) };
    if is_program(word) {
        let run = explained.run_id.as_deref().unwrap_or(word);
        ctx.ui.note(format_args!("note: {word} is interpreted as a command; did you mean run:{run}?"));
        return Ok(None);
    }
    Ok(Some(explained))
}

/// Whether PATH has a file of this name.
fn is_program(name: &str) -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path).any(|dir| dir.join(name).is_file())
}

fn list(ctx: &CommandContext, args: &ListArgs) -> Outcome {
    let list = avfs_ops::runs::cached_results(&ctx.client.open()?, args.limit)?;
    if list.more {
        ctx.ui.note(format_args!("note: there are older results; show more with: --limit N"));
    }
    ctx.ui.answer(&list, |out| {
        for memo in &list.results {
            let id = out.paint(Tone::Id, &memo.run_id);
            let lost = memo.lost.as_ref().map(|lost| format!("  ({lost})")).unwrap_or_default();
            let changed = if memo.version_after.is_some() { "" } else { "  (no changes)" };
            let (at, exit) = (local_time_of(&memo.created_at), memo.exit_code);
            let command = command_line(&quoted(memo.command.as_ref()));
            out.line(format_args!("{id}  {at}  exit {exit:<3}{changed}{lost}  {command}"))?;
        }
        Ok(())
    })
}

fn forget(ctx: &CommandContext, args: &ForgetArgs) -> Outcome {
    let gone = avfs_ops::runs::forget_results(&ctx.client.open()?, args.id.as_ref())?;
    let count = plural(gone.forgotten.len() as u64, "result", "results");
    ctx.ui.answer(&gone, |out| out.line(format_args!("forgot {count}")))
}
