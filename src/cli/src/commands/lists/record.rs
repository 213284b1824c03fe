//! `avfs record`: records runs, and exports them as a command list.

use std::io::Write;
use std::path::PathBuf;

use clap::{Args, Subcommand};

use avfs_engine::{UNBOUND_PATH, bound_dir};
use avfs_lists::list::ListWriter;
use avfs_lists::record::{Exported, Selection, count, export};
use avfs_ops::{OpError, WorkplaceError};
use avfs_terminal::Tone;
use avfs_types::clock::time_text;
use avfs_types::ids::{ForkName, RecordingName, RunPrefix};
use avfs_vault::Vault;
use avfs_vault::backend::RecordingRecord;
use avfs_vault::backend::sqlite::Mapped;
use avfs_wire::{LIST_VERSION, ListHeader, RecordExport, RecordList, RecordOne, RecordStop};

use crate::context::CommandContext;
use crate::ui::{Format, Out, Outcome};
use crate::view::{local_time, plural};
use crate::whole::write_whole;

/// Record runs, and export them as a list of commands to run again
///
/// Every run is in the journal, so runs that were not recorded can be exported too. While a recording is
/// open, runs with streamed output also store the digest of their output, so that a replay can compare it.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  avfs record start build
  avfs-run --fork work -- make
  avfs record stop build
  avfs record export build > list.jsonl")]
pub struct RecordArgs {
    #[command(subcommand)]
    action: RecordAction,
}

#[derive(Debug, Subcommand)]
enum RecordAction {
    Start(StartArgs),
    Stop(StopArgs),
    List(ListArgs),
    Delete(DeleteArgs),
    Export(ExportArgs),
}

/// Start recording the runs of this vault
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  avfs record start
  avfs record start build
  avfs record start build --fork work")]
struct StartArgs {
    /// The name of the recording [default: recording-1, recording-2 and so on]
    #[arg(value_name = "NAME")]
    name: Option<RecordingName>,
    /// Record only runs of this fork, which need not exist yet
    #[arg(long, value_name = "FORK")]
    fork: Option<ForkName>,
}

/// Stop a recording
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  avfs record stop
  avfs record stop build")]
struct StopArgs {
    /// The recording to stop [default: the only open one]
    #[arg(value_name = "NAME")]
    name: Option<RecordingName>,
}

/// List recordings, oldest first
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  avfs record list
  avfs record list --json")]
struct ListArgs {}

/// Delete a recording
///
/// Its runs stay.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  avfs record delete build")]
struct DeleteArgs {
    /// The recording to delete
    #[arg(value_name = "NAME")]
    name: RecordingName,
}

/// Export runs as a command list, oldest first
///
/// A list has one JSON object per line: a header, then an item for each run, with the request and the recorded
/// results. `avfs schema` has them as ListHeader and ListItem.
///
/// Each item has the command, its options, the version it started at, and digests of its result; it needs the
/// run that made its start version. Denied, failed and interrupted runs are left out. Only the names of
/// secrets are exported.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  avfs record export work > list.jsonl
  avfs record export build --output list.jsonl
  avfs record export 3f9a..77c0 > list.jsonl
  avfs record export --runs 3f9a,77c0 | jq -c .command")]
struct ExportArgs {
    /// A fork, a recording, a run, or a range of runs; use fork:NAME or recording:NAME if a name is both
    #[arg(value_name = "FORK|RECORDING|RUN..RUN", required_unless_present = "runs", conflicts_with = "runs")]
    what: Option<String>,
    /// Export these runs, separated by commas
    #[arg(long, value_name = "ID", value_delimiter = ',')]
    runs: Vec<RunPrefix>,
    /// Write to this file atomically [default: standard output]
    #[arg(long, short, value_name = "FILE")]
    output: Option<PathBuf>,
}

pub fn run(ctx: &CommandContext, args: &RecordArgs) -> Outcome {
    match &args.action {
        RecordAction::Start(args) => start(ctx, args),
        RecordAction::Stop(args) => stop(ctx, args),
        RecordAction::List(ListArgs {}) => list(ctx),
        RecordAction::Delete(args) => delete(ctx, args),
        RecordAction::Export(args) => export_list(ctx, args),
    }
}

fn start(ctx: &CommandContext, args: &StartArgs) -> Outcome {
    let recording = ctx
        .client
        .open_or_make(Mapped::Yes)?
        .vault
        .start_recording(args.name.as_ref(), args.fork.as_ref())?;
    let result = RecordOne { recording: avfs_present::recording(&recording) };
    ctx.ui.answer(&result, |out| {
        let name = out.paint(Tone::Name, &recording.name);
        let of = recording.fork.as_ref().map_or(String::new(), |fork| format!(" of fork {fork}"));
        out.line(format_args!("recording {name}: all runs{of} until {} record stop {name}", ctx.ui.avfs))
    })
}

fn stop(ctx: &CommandContext, args: &StopArgs) -> Outcome {
    let vault = ctx.open_vault()?;
    let recording = vault.stop_recording(args.name.as_ref())?;
    let runs = count(&vault, &Selection::Recording(recording.clone()))?;
    let result = RecordStop { recording: avfs_present::recording(&recording), runs };
    ctx.ui.answer(&result, |out| {
        let (name, runs) = (out.paint(Tone::Name, &recording.name), plural(runs, "run", "runs"));
        out.line(format_args!(
            "{name} has {runs}; export it with: {} record export {} > list.jsonl",
            ctx.ui.avfs, recording.name
        ))
    })
}

fn list(ctx: &CommandContext) -> Outcome {
    let recordings = ctx.open_vault()?.recordings()?;
    if recordings.is_empty() {
        ctx.ui.note(format_args!("no recordings; start one with: {} record start", ctx.ui.avfs));
    }
    let result = RecordList { recordings: recordings.iter().map(avfs_present::recording).collect() };
    ctx.ui.answer(&result, |out| recordings.iter().try_for_each(|recording| show_line(out, recording)))
}

fn show_line(out: &mut Out, recording: &RecordingRecord) -> Result<(), OpError> {
    let name = out.paint(Tone::Name, format_args!("{:<16}", recording.name.as_str()));
    let ended = recording.stopped_at.map_or_else(|| "open".to_owned(), local_time);
    let fork = recording.fork.as_ref().map_or("all forks", ForkName::as_str);
    out.line(format_args!("{name}  {}  {ended:<19}  {fork}", local_time(recording.started_at)))
}

fn delete(ctx: &CommandContext, args: &DeleteArgs) -> Outcome {
    let recording = ctx.open_vault()?.delete_recording(&args.name)?;
    let result = RecordOne { recording: avfs_present::recording(&recording) };
    ctx.ui.answer(&result, |out| out.line(format_args!("deleted recording {}", recording.name)))
}

fn export_list(ctx: &CommandContext, args: &ExportArgs) -> Outcome {
    let vault = ctx.open_vault()?;
    let selection = match &args.what {
        Some(what) => Selection::find(&vault, what)?,
        None => Selection::runs(&vault, &args.runs)?,
    };
    let header = header(&vault, args)?;
    match (&args.output, ctx.ui.format) {
        (Some(path), _) => {
            let failed = |source| OpError::from(WorkplaceError::host("write", path)(source));
            let exported = write_whole(path, |to| write_list(&vault, &selection, &header, to, failed))?;
            print_notes(ctx, &exported);
            let items = plural(exported.items, "item", "items");
            let result = answer(exported, Some(path), None);
            ctx.ui.answer(&result, |out| out.line(format_args!("{}: {items}", path.display())))
        }
        (None, Format::Json) => {
            let mut lines = Vec::new();
            let exported = write_list(&vault, &selection, &header, &mut lines, OpError::of_output)?;
            let lines = lines.split(|byte| *byte == b'\n').filter(|line| !line.is_empty());
            let list = lines.map(serde_json::from_slice).collect::<Result<_, _>>();
            let list = list.map_err(|error| OpError::of_output(error.into()))?;
            ctx.ui.answer(&answer(exported, None, Some(list)), |_| Ok(()))
        }
        (None, Format::Human) => {
            let mut out = ctx.ui.out();
            let exported =
                out.content(|to| write_list(&vault, &selection, &header, to, OpError::of_output))?;
            out.flush()?;
            print_notes(ctx, &exported);
            Ok(avfs_types::exit_code::OK)
        }
    }
}

fn header(vault: &Vault, args: &ExportArgs) -> Result<ListHeader, OpError> {
    let ids = args.runs.iter().map(RunPrefix::as_str).collect::<Vec<_>>();
    let at = bound_dir(vault)?.unwrap_or_else(|| UNBOUND_PATH.into());
    Ok(ListHeader {
        avfs_list: LIST_VERSION,
        vault_id: Some(vault.id()?),
        recorded_at: Some(time_text(vault.now())),
        at: at.to_str().map(str::to_owned),
        source: Some(args.what.clone().unwrap_or_else(|| ids.join(","))),
    })
}

fn write_list(
    vault: &Vault,
    selection: &Selection,
    header: &ListHeader,
    to: &mut dyn Write,
    failed: impl Fn(std::io::Error) -> OpError,
) -> Result<Exported, OpError> {
    let mut list = ListWriter::new(to, header).map_err(&failed)?;
    let exported = export(vault, selection, |item| list.item(item).map_err(&failed))?;
    list.finish().map_err(&failed)?;
    Ok(exported)
}

/// Prints notes about the runs that are not in the list.
fn print_notes(ctx: &CommandContext, exported: &Exported) {
    for (why, count) in &exported.left_out {
        ctx.ui.note(format_args!("note: {} left out: {why}", plural(*count, "run", "runs")));
    }
    if exported.without_versions > 0 {
        let items = plural(exported.without_versions, "item has", "items have");
        ctx.ui
            .note(format_args!("note: {items} no digests of trees: their versions were deleted or not kept"));
    }
    if exported.redacted > 0 {
        let items = plural(exported.redacted, "command", "commands");
        ctx.ui.note(format_args!("note: credentials were removed from {items}"));
    }
}

fn answer(
    exported: Exported,
    output: Option<&PathBuf>,
    list: Option<Vec<serde_json::Value>>,
) -> RecordExport {
    let Exported { items, left_out, without_versions, redacted } = exported;
    RecordExport {
        output: output.map(|path| path.display().to_string()),
        list,
        items,
        left_out: left_out.into_iter().map(|(why, count)| (why.to_owned(), count)).collect(),
        without_versions,
        redacted,
    }
}
