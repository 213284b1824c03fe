//! `avfs audit list|verify|export`

use clap::{Args, Subcommand};

use avfs_ops::OpError;
use avfs_ops::upkeep::audit::{self, AuditQuery, AuditVerdict};
use avfs_present::error_body;
use avfs_terminal::Tone;
use avfs_types::clock::Timestamp;
use avfs_types::ids::{AuditDigest, ForkName, RunPrefix, from_hex};
use avfs_types::{Since, Zone};
use avfs_wire::{AuditExport, AuditRow};

use crate::context::CommandContext;
use crate::ui::{Format, Out, Outcome};
use crate::view::{local_time, plural};

const DIGEST_HEX_SHOWN: usize = 12;

/// List, verify and export the audit log
///
/// The audit log has a row for every change of the vault; the rows are chained by digests.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  avfs audit list --limit 20
  avfs audit verify
  avfs audit export > audit.jsonl")]
pub struct AuditArgs {
    #[command(subcommand)]
    action: AuditAction,
}

#[derive(Debug, Subcommand)]
enum AuditAction {
    List(ListArgs),
    Verify(VerifyArgs),
    Export(ExportArgs),
}

/// List the rows of the audit log, oldest first
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  avfs audit list
  avfs audit list --since 24h --action run
  avfs audit list --run 3f9a
  avfs audit list --fork main --since 2026-01-31 --limit 100")]
struct ListArgs {
    /// List only rows about this run
    #[arg(long, value_name = "ID")]
    run: Option<RunPrefix>,
    /// List only rows about this fork and its checkpoints
    #[arg(long, value_name = "FORK")]
    fork: Option<ForkName>,
    /// List only this action (run.end), or all actions of a group (run)
    #[arg(long, value_name = "NAME")]
    action: Option<String>,
    /// List only rows since a duration before now, or since a time (local unless it has an offset)
    #[arg(long, value_name = "DURATION|TIME")]
    since: Option<Since>,
    /// List only the newest N rows
    #[arg(long, value_name = "N", default_value_t = 50)]
    limit: usize,
}

/// Verify the audit log
///
/// Checks every row against the chain, and the runs against their rows. Exits with 1 if a row was edited,
/// removed or reordered.
///
/// The printed digest covers the whole log. Keep it elsewhere: --expect then proves that nothing before it
/// has changed.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  avfs audit verify
  avfs audit verify --expect \"$(cat audit-head)\"")]
struct VerifyArgs {
    /// Require that this digest is part of the log
    #[arg(long, value_name = "DIGEST", value_parser = parse_digest)]
    expect: Option<AuditDigest>,
}

/// Export the audit log as JSON, one row per line, oldest first
///
/// Each line has its digest and the digest of the row before, which it covers. An older export is part of the
/// log if the log verifies and a new export begins with the same lines.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  avfs audit export > audit.jsonl
  avfs audit export --since 24h | jq -r .action
  avfs audit verify --expect \"$(tail -n 1 audit.jsonl | jq -r .digest)\"")]
struct ExportArgs {
    /// Start at a duration before now, or at a time (local unless it has an offset)
    #[arg(long, value_name = "DURATION|TIME")]
    since: Option<Since>,
}

fn parse_digest(text: &str) -> Result<AuditDigest, String> {
    let digest = from_hex(text.trim()).and_then(|bytes| AuditDigest::from_slice(&bytes));
    digest.ok_or_else(|| "expected a digest of 64 hex digits, as avfs audit verify prints it".to_owned())
}

pub fn run(ctx: &CommandContext, args: AuditArgs) -> Outcome {
    match args.action {
        AuditAction::List(args) => list(ctx, args),
        AuditAction::Verify(args) => verify(ctx, &args),
        AuditAction::Export(args) => export(ctx, &args),
    }
}

fn list(ctx: &CommandContext, args: ListArgs) -> Outcome {
    let ListArgs { run, fork, action, since, limit } = args;
    let query = AuditQuery { run, fork, action, since, zone: Zone::system(), limit };
    let result = audit::list(&ctx.client.open()?, query, &mut |rows| {
        if ctx.ui.format == Format::Human {
            let mut out = ctx.ui.out();
            rows.iter().try_for_each(|row| show_row(&mut out, row))?;
            out.flush()?;
        }
        Ok(())
    })?;
    if result.left_off > 0 {
        let left_off = result.left_off;
        ctx.ui.note(format_args!("note: {left_off} older rows omitted; show more with: --limit N"));
    }
    ctx.ui.answer(&result, |_| Ok(()))
}

fn export(ctx: &CommandContext, args: &ExportArgs) -> Outcome {
    let workplace = ctx.client.open()?;
    let (since, zone) = (args.since, Zone::system());
    if ctx.ui.format == Format::Json {
        let mut rows = Vec::new();
        audit::export(&workplace, since, &zone, &mut |line| {
            rows.push(line);
            Ok(())
        })?;
        return ctx.ui.answer(&AuditExport { rows }, |_| Ok(()));
    }
    ctx.ui.answer(&(), |out| audit::export(&workplace, since, &zone, &mut |line| out.json_line(&line)))
}

fn show_row(out: &mut Out, row: &AuditRow) -> Result<(), OpError> {
    let short = |digest: &String| digest.get(..DIGEST_HEX_SHOWN).unwrap_or(digest).to_owned();
    let moved = match (row.before.as_ref().map(short), row.after.as_ref().map(short)) {
        (Some(before), Some(after)) => format!("{before} -> {after}"),
        (None, Some(after)) => after,
        (Some(before), None) => format!("{before} -> gone"),
        (None, None) => String::new(),
    };
    let action = out.paint(Tone::Name, format_args!("{:<17}", row.action));
    out.line(format_args!(
        "{:>5}  {}  {}  {action} {}  {}  {}",
        row.seq,
        local_time(Timestamp(row.at_ns)),
        row.actor,
        row.subject,
        out.paint(Tone::Id, moved),
        row.detail.escape_debug(),
    ))
}

fn verify(ctx: &CommandContext, args: &VerifyArgs) -> Outcome {
    let AuditVerdict { verify, broken } = audit::verify(&ctx.client.open()?, args.expect.as_ref())?;
    let show = |out: &mut Out| {
        for problem in &verify.problems {
            out.line(format_args!("{} {problem}", out.paint(Tone::Deleted, "problem:")))?;
        }
        let rows = plural(verify.rows, "row", "rows");
        let problems = plural(verify.problems.len() as u64, "problem", "problems");
        match &verify.head {
            Some(head) => out.line(format_args!("{rows}, {problems}; the log ends in {}", head.digest)),
            None => out.line(format_args!("{rows}, {problems}")),
        }
    };
    match broken {
        None => ctx.ui.answer(&verify, show),
        Some(broken) => ctx.ui.answer_no(&verify, &error_body(&broken, &ctx.ui.avfs), show),
    }
}
