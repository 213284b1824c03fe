//! `avfs audit list|verify|export`

use clap::{Args, Subcommand};

use avfs_ops::OpError;
use avfs_terminal::Tone;
use avfs_types::ids::{AuditDigest, ForkName, RunPrefix, from_hex, to_hex};
use avfs_types::{Since, Zone};
use avfs_vault::audit;
use avfs_vault::audit_query::{AuditQuery, newest};
use avfs_vault::backend::AuditRecord;
use avfs_wire::{AuditExport, AuditList, AuditVerify, AuditVerifyHead, ErrorBody};

use crate::commands::runs::note_fork;
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

pub fn run(ctx: &CommandContext, args: &AuditArgs) -> Outcome {
    match &args.action {
        AuditAction::List(args) => list(ctx, args),
        AuditAction::Verify(args) => verify(ctx, args),
        AuditAction::Export(args) => export(ctx, args),
    }
}

fn list(ctx: &CommandContext, args: &ListArgs) -> Outcome {
    let vault = ctx.open_vault()?;
    let query = AuditQuery {
        since: args.since.map(|since| since.at(vault.now(), &Zone::system())).transpose()?,
        run: match &args.run {
            Some(run) if run.steps_back().is_some() => Some(RunPrefix::from(&vault.run(run)?.id)),
            run => run.clone(),
        },
        fork: args.fork.clone(),
        action: args.action.clone(),
    };
    let reader = vault.read()?;
    let found = newest(&*reader, &query, args.limit)?;
    if ctx.ui.format == Format::Human {
        // Count afterwards: counting takes time proportional to the length of the log.
        let mut out = ctx.ui.out();
        found.rows.iter().try_for_each(|row| show_row(&mut out, row))?;
        out.flush()?;
    }
    let left_off = found.left_off(&*reader, &query)?;
    if found.rows.is_empty() && left_off == 0 {
        ctx.ui.note(format_args!("no rows found"));
        note_fork(ctx, &vault, args.fork.as_ref());
        if let Some(run) = &args.run {
            ctx.ui.note(format_args!(
                "note: the log has no rows about run {run}; list runs with: {} runs list",
                ctx.ui.avfs
            ));
        }
    }
    if left_off > 0 {
        ctx.ui.note(format_args!("note: {left_off} older rows omitted; show more with: --limit N"));
    }
    let result = AuditList { rows: found.rows.iter().map(avfs_present::audit_row).collect(), left_off };
    ctx.ui.answer(&result, |_| Ok(()))
}

fn export(ctx: &CommandContext, args: &ExportArgs) -> Outcome {
    let vault = ctx.open_vault()?;
    let since = args.since.map(|since| since.at(vault.now(), &Zone::system())).transpose()?;
    if ctx.ui.format == Format::Json {
        let mut rows = Vec::new();
        vault.export_audit(since, |link| {
            rows.push(avfs_present::audit_line(&link));
            Ok::<(), OpError>(())
        })?;
        return ctx.ui.answer(&AuditExport { rows }, |_| Ok(()));
    }
    ctx.ui
        .answer(&(), |out| vault.export_audit(since, |link| out.json_line(&avfs_present::audit_line(&link))))
}

fn show_row(out: &mut Out, row: &AuditRecord) -> Result<(), OpError> {
    let short = |digest: [u8; 32]| to_hex(&digest)[..DIGEST_HEX_SHOWN].to_owned();
    let moved = match (row.before.map(short), row.after.map(short)) {
        (Some(before), Some(after)) => format!("{before} -> {after}"),
        (None, Some(after)) => after,
        (Some(before), None) => format!("{before} -> gone"),
        (None, None) => String::new(),
    };
    let action = out.paint(Tone::Name, format_args!("{:<17}", row.action));
    out.line(format_args!(
        "{:>5}  {}  {}  {action} {}  {}  {}",
        row.seq,
        local_time(row.at),
        row.actor,
        row.subject,
        out.paint(Tone::Id, moved),
        row.detail.escape_debug(),
    ))
}

fn verify(ctx: &CommandContext, args: &VerifyArgs) -> Outcome {
    let vault = ctx.open_vault()?;
    let verdict = audit::verify(&*vault.read()?, args.expect.as_ref())?;
    let result = AuditVerify {
        rows: verdict.rows,
        head: verdict.head.map(|head| AuditVerifyHead { seq: head.seq, digest: head.digest.to_hex() }),
        problems: verdict.problems.iter().map(ToString::to_string).collect(),
    };
    let show = |out: &mut Out| {
        for problem in &result.problems {
            out.line(format_args!("{} {problem}", out.paint(Tone::Deleted, "problem:")))?;
        }
        let rows = plural(result.rows, "row", "rows");
        let problems = plural(result.problems.len() as u64, "problem", "problems");
        match &result.head {
            Some(head) => out.line(format_args!("{rows}, {problems}; the log ends in {}", head.digest)),
            None => out.line(format_args!("{rows}, {problems}")),
        }
    };
    if result.problems.is_empty() {
        return ctx.ui.answer(&result, show);
    }
    let message = format!("the audit log does not verify: {}", result.problems.join("; "));
    let hint = Some("compare the vault with a trusted copy".to_owned());
    ctx.ui.answer_no(&result, &ErrorBody { code: "audit.broken".to_owned(), message, hint }, show)
}
