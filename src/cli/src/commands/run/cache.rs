//! `avfs cache explain|list|forget`

use std::ffi::OsString;

use clap::{ArgGroup, Args, Subcommand};

use avfs_ops::OpError;
use avfs_terminal::Tone;
use avfs_types::Zone;
use avfs_types::ids::RunPrefix;
use avfs_vault::Vault;
use avfs_vault::backend::{MemoRecord, RunRecord};
use avfs_vault::memo::{Forget, lost, of_run};
use avfs_wire::{CacheForget, CacheList, MemoObject};

use crate::commands::execute::run_as;
use crate::context::CommandContext;
use crate::ui::{Format, Outcome};
use crate::view::{command_line, local_time, plural};
use avfs_ops::quoted;

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
    let Some(run) = named_run(ctx, args)? else {
        return Ok(run_as(&["cache", "explain"], &["--explain-cache"]));
    };
    let mut ui = ctx.ui.clone();
    if args.words.iter().any(|word| word == "--json") {
        ui.format = Format::Json;
    }
    let vault = ctx.open_vault()?;
    let remembered = of_run(&*vault.read()?, &run.id)?;
    let result = avfs_present::cache_explained_of_run(&run, remembered.is_some());
    ui.answer(&result, |out| {
        result.lines(&Zone::system()).iter().try_for_each(|line| out.line(format_args!("{line}")))
    })
}

/// The run that the arguments name; `None` if they are a command. After `--`, only `run:ID` names a run.
fn named_run(ctx: &CommandContext, args: &ExplainArgs) -> Result<Option<RunRecord>, OpError> {
    let mut words = args.words.iter();
    let Some(word) = words.next().and_then(|word| word.to_str()) else { return Ok(None) };
    if words.any(|more| more != "--json") {
        return Ok(None);
    }
    if word.starts_with("run:") {
        return Ok(Some(ctx.open_vault()?.run(&RunPrefix::parse(word)?)?));
    }
    let is_escaped = std::env::args_os().any(|word| word == "--");
    let Some(prefix) = RunPrefix::parse(word).ok().filter(|_| !is_escaped) else { return Ok(None) };
    if word.starts_with("last") {
        return Ok(Some(ctx.open_vault()?.run(&prefix)?));
    }
    // Digits can also be the name of a command. Without a vault, or without such a run, they are one.
    let Some(run) = ctx.open_vault().ok().and_then(|vault| vault.run(&prefix).ok()) else { return Ok(None) };
    if is_program(word) {
        ctx.ui.note(format_args!("note: {word} is interpreted as a command; did you mean run:{}?", run.id));
        return Ok(None);
    }
    Ok(Some(run))
}

/// Whether PATH has a file of this name.
fn is_program(name: &str) -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path).any(|dir| dir.join(name).is_file())
}

fn object(vault: &Vault, memo: &MemoRecord) -> Result<MemoObject, OpError> {
    let reader = vault.read()?;
    let run = reader.run(&memo.run)?;
    Ok(avfs_present::memo(memo, run.as_ref(), lost(&*reader, memo, vault.now())?))
}

fn list(ctx: &CommandContext, args: &ListArgs) -> Outcome {
    let vault = ctx.open_vault()?;
    let mut memos = vault.memos(i64::MAX, args.limit.saturating_add(1))?;
    let more = memos.len() > args.limit;
    memos.truncate(args.limit);
    let results = memos.iter().map(|memo| object(&vault, memo)).collect::<Result<Vec<_>, _>>()?;
    if results.is_empty() && !more {
        ctx.ui.note(format_args!("no cached results"));
    }
    if more {
        ctx.ui.note(format_args!("note: there are older results; show more with: --limit N"));
    }
    let result = CacheList { results, more };
    ctx.ui.answer(&result, |out| {
        for (memo, shown) in memos.iter().zip(&result.results) {
            let id = out.paint(Tone::Id, &memo.run);
            let lost = shown.lost.as_ref().map(|lost| format!("  ({lost})")).unwrap_or_default();
            let changed = if memo.version_after.is_some() { "" } else { "  (no changes)" };
            let (at, exit) = (local_time(memo.created_at), memo.exit_code);
            let command = command_line(&quoted(shown.command.as_ref()));
            out.line(format_args!("{id}  {at}  exit {exit:<3}{changed}{lost}  {command}"))?;
        }
        Ok(())
    })
}

fn forget(ctx: &CommandContext, args: &ForgetArgs) -> Outcome {
    let vault = ctx.open_vault()?;
    let which = match &args.id {
        Some(id) => Forget::OfRun(vault.run(id)?.id),
        None => Forget::All,
    };
    let gone = vault.forget(&which)?;
    let forgotten = gone.iter().map(|memo| object(&vault, memo)).collect::<Result<Vec<_>, _>>()?;
    let count = forgotten.len() as u64;
    ctx.ui.answer(&CacheForget { forgotten }, |out| {
        out.line(format_args!("forgot {}", plural(count, "result", "results")))
    })
}
