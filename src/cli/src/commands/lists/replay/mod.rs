//! `avfs replay`

mod drive;
mod error;
mod evidence;
mod source;

use std::path::PathBuf;

use clap::Args;
use drive::{Replayed, drive};
use source::Source;

use avfs_ops::OpError;
use avfs_request::CacheMode;
use avfs_terminal::Tone;
use avfs_types::exit_code;
use avfs_types::ids::ApprovalPrefix;
use avfs_vault::Vault;
use avfs_wire::{ErrorBody, ListNoise, OutputNoise, Replay, ReplayVerdict};

use crate::commands::patch;
use crate::context::CommandContext;
use crate::run_options::RunOptions;
use crate::ui::{Out, Outcome};
use crate::view::{command_line, plural};
use crate::worker_pool::WORKERS_MAX;

/// Run recorded commands again, and compare the results
///
/// Each run starts at the version it started at when it was recorded, so runs do not wait for each other. The
/// exit code, the output and the tree are compared; the verdict is identical, equivalent (only declared noise
/// differs) or diverged. Times are noise, unless an item of a list declares its own noise (key noise).
/// Options of avfs-run override the recorded ones.
///
/// To make runs repeatable, record them with avfs-run --reproducible or --clock-fixed. The order of directory
/// entries depends on the file system and is not fixed.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  avfs replay list.jsonl --verify
  avfs replay fix-1 --jobs 4
  avfs replay run:3f9a
  avfs replay nightly.jsonl --ignore 'build/**' --normalise '\\d+ ms'
  avfs replay nightly.jsonl --cache read")]
pub struct ReplayArgs {
    /// A list (a file, or - for standard input), a fork, a recording, run:ID or RUN..RUN
    #[arg(value_name = "LIST|FORK|run:ID")]
    what: String,
    /// Exit with 1 if a run diverged, or if no run has a recorded result
    #[arg(long)]
    verify: bool,
    /// Exit with 1 if a run is not identical
    #[arg(long)]
    exact: bool,
    /// Run N commands at once [default: the number of processors]
    #[arg(short, long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=WORKERS_MAX))]
    jobs: Option<u16>,
    /// Stop at the first run that diverges
    #[arg(long)]
    fail_fast: bool,
    /// Do not compare paths that match this glob; can be repeated
    #[arg(long, value_name = "GLOB")]
    ignore: Vec<String>,
    /// Replace matches of a regular expression with TEXT in both outputs before comparing them; can be
    /// repeated. Needs runs that were recorded with --cache write: otherwise only digests of their output are
    /// stored
    #[arg(long, value_name = "PATTERN[=>TEXT]")]
    normalise: Vec<String>,
    /// Compare a cached result, if there is one, instead of running the command (avfs cache) [possible
    /// values: off, read]
    #[arg(long, value_name = "MODE", default_value = "off")]
    cache: CacheMode,
    /// Write the result of each run to FILE, one line of JSON per run
    #[arg(long, value_name = "FILE", value_hint = clap::ValueHint::FilePath)]
    results: Option<PathBuf>,
    #[command(flatten)]
    options: RunOptions,
}

impl ReplayArgs {
    /// The noise that is declared for all runs.
    fn noise(&self) -> ListNoise {
        let output = self.normalise.iter().map(|word| {
            let (pattern, replace) = word.split_once("=>").unwrap_or((word, ""));
            OutputNoise { pattern: pattern.to_owned(), replace: replace.to_owned() }
        });
        ListNoise { mtimes: false, paths: self.ignore.clone(), output: output.collect() }
    }
}

pub fn run(ctx: &CommandContext, args: &ReplayArgs) -> Outcome {
    args.options.check_without_fork()?;
    let vault = ctx.client.open_unmapped()?.vault;
    let source = Source::open(ctx, args, &vault)?;
    let replayed = drive(ctx, args, &vault, &source)?;
    let code = show(ctx, args, &vault, &replayed)?;
    Ok(if replayed.interrupted { exit_code::INTERRUPTED } else { code })
}

fn show(ctx: &CommandContext, args: &ReplayArgs, vault: &Vault, replayed: &Replayed) -> Outcome {
    let replay = &replayed.answer;
    let human = |out: &mut Out| {
        if let Some(first) = &replay.first_diverged {
            let id = out.paint(Tone::Deleted, &first.id);
            out.line(format_args!("first diverged run: {id}  {}", command_line(&first.command)))?;
            for difference in first.differences.iter().filter(|difference| !difference.noise) {
                out.line(format_args!("  {}: {}", difference.what, difference.text))?;
            }
            if !replayed.changes.changes.is_empty() {
                patch::show_summary(out, &replayed.changes)?;
            }
            if let (Some(old), Some(new)) = (&first.expected_version, &first.version) {
                let short = |id: &String| id.chars().take(12).collect::<String>();
                out.line(format_args!("  {} diff {} {}", ctx.ui.avfs, short(old), short(new)))?;
            }
        }
        let is_listed =
            |verdict: &str| verdict == "error" || args.exact && verdict != ReplayVerdict::Diverged.word();
        for other in replay.others.iter().filter(|other| is_listed(&other.verdict)) {
            out.line(format_args!("{}  {}", out.paint(Tone::Deleted, &other.id), other.ending()))?;
            if let Some(approval) = &other.approval_id {
                let approval = vault.approval(&ApprovalPrefix::parse(approval)?)?;
                let command = avfs_present::command_to_approve(&ctx.ui.avfs, &approval);
                out.line(format_args!("    approve with: {command}, then replay again"))?;
            }
        }
        if let Some(stopped) = &replay.stopped {
            out.line(format_args!("stopped: {stopped}"))?;
        }
        out.line(format_args!("{}: {}", replay.verdict, sentence(replay)))
    };
    let counts = &replay.counts;
    let failed = counts.error > 0
        || replay.stopped.is_some()
        || (args.verify || args.exact) && counts.diverged > 0
        || args.exact && counts.identical < counts.items;
    if args.verify && !failed && counts.unrecorded == counts.items {
        let avfs = &ctx.ui.avfs;
        let why = ErrorBody {
            code: "replay.unrecorded".to_owned(),
            message: format!("nothing was verified: {} has no recorded results", replay.source),
            hint: Some(format!(
                "record runs with: {avfs} record start, then {avfs} record stop; write their results to a list with: \
                 {avfs} record export RECORDING > list.jsonl"
            )),
        };
        return ctx.ui.answer_no(replay, &why, |out| {
            human(out)?;
            out.flush()?;
            ctx.ui.print_error_body(&why);
            Ok(())
        });
    }
    if !failed {
        return ctx.ui.answer(replay, human);
    }
    let why = ErrorBody {
        code: if counts.error > 0 || replay.stopped.is_some() { "replay.error" } else { "replay.diverged" }
            .to_owned(),
        message: format!("{}: {}", replay.verdict, sentence(replay)),
        hint: Some(hint(ctx, vault, replay)?),
    };
    ctx.ui.answer_no(replay, &why, human)
}

/// What to do about a replay that failed: an approval if a run needs one, else about the first run in error.
fn hint(ctx: &CommandContext, vault: &Vault, replay: &Replay) -> Result<String, OpError> {
    let avfs = &ctx.ui.avfs;
    if let Some(approval) = replay.others.iter().find_map(|other| other.approval_id.as_ref()) {
        let approval = vault.approval(&ApprovalPrefix::parse(approval)?)?;
        return Ok(format!(
            "approve a run with: {}, then replay again",
            avfs_present::command_to_approve(&ctx.ui.avfs, &approval)
        ));
    }
    Ok(match replay.others.iter().find_map(|other| Some((other.code.as_deref()?, other.run_id.as_deref()))) {
        Some((_, Some(run))) => format!("show the failed run with: {avfs} runs show {run}"),
        Some((_, None)) => "remove the cause, then replay again".to_owned(),
        None => "declare expected differences as noise with: --ignore GLOB, --normalise PATTERN".to_owned(),
    })
}

fn sentence(replay: &Replay) -> String {
    let counts = replay.counts;
    let mut parts = Vec::new();
    for (number, what) in [
        (counts.identical, "identical"),
        (counts.equivalent, "equivalent"),
        (counts.diverged, "diverged"),
        (counts.unrecorded, "unrecorded"),
        (counts.error, "in error"),
        (counts.not_run, "not run"),
        (counts.cached, "of them cached"),
    ] {
        if number > 0 {
            parts.push(format!("{number} {what}"));
        }
    }
    let runs = plural(counts.items, "run", "runs");
    format!("{} of {runs}, in {:.1} s", parts.join(", "), replay.duration_ms / 1e3)
}
