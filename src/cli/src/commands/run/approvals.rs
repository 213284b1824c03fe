//! `avfs approvals list|show|approve|deny`

use std::path::Path;

use clap::{Args, Subcommand};

use avfs_engine::journal::{Recorded, RunDecision, RunRequest};
use avfs_engine::{RememberFor, Remembered, UNBOUND_PATH, bound_dir, offered_networks};
use avfs_ops::OpError;
use avfs_policy::{Category, NETWORKED};
use avfs_request::NetMode;
use avfs_terminal::Tone;
use avfs_types::clock::Timestamp;
use avfs_types::ids::ApprovalPrefix;
use avfs_vault::Vault;
use avfs_vault::approval::Answer;
use avfs_vault::backend::{ApprovalRecord, ApprovalState};
use avfs_wire::{ApprovalStateName, ApprovalsAnswer, ApprovalsList, asked_for};

use crate::commands::runs::show_decision;
use crate::context::CommandContext;
use crate::ui::{Format, Out, Outcome};
use crate::view::{first_line, local_time};

/// The number of rows read at once.
const BATCH_ROWS: usize = 200;

/// List and answer requests that need an approval
///
/// An approval is valid for one run of one exact request. A request consists of its command, working
/// directory, options and environment variables, without the values of secrets.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  avfs approvals list
  avfs approvals show 3f9a
  avfs approvals approve 3f9a
  avfs approvals deny 3f9a")]
pub struct ApprovalsArgs {
    #[command(subcommand)]
    action: ApprovalsAction,
}

#[derive(Debug, Subcommand)]
enum ApprovalsAction {
    List(ListArgs),
    Show(ShowArgs),
    Approve(ApproveArgs),
    Deny(DenyArgs),
}

/// List pending and unused approvals, newest first
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  avfs approvals list
  avfs approvals list --all --json")]
struct ListArgs {
    /// Also list used, denied and expired approvals
    #[arg(long)]
    all: bool,
    /// List at most N approvals
    #[arg(long, value_name = "N", default_value_t = 50)]
    limit: usize,
}

/// Show an approval: its request, the reason and the answer
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  avfs approvals show 3f9a
  avfs approvals show 3f9a --json | jq .result.request")]
struct ShowArgs {
    /// The approval: the first four or more digits of its id
    #[arg(value_name = "ID")]
    id: ApprovalPrefix,
}

/// Deny a request
///
/// The same request is denied until the approval expires.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  avfs approvals deny 3f9a")]
struct DenyArgs {
    /// The approval: the first four or more digits of its id
    #[arg(value_name = "ID")]
    id: ApprovalPrefix,
}

/// Approve a request
///
/// The same request may run once, until the approval expires.
///
/// A command that needs the network but did not request it runs without it, unless --net gives it one.
///
/// With --always, also writes a rule to your own policy.toml: commands of this workspace that begin with the
/// same words no longer need an approval.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  avfs approvals approve 3f9a
  avfs approvals approve 3f9a --net allow=github.com
  avfs approvals approve 3f9a --always
  avfs approvals approve 3f9a --always --prefix 'npm install'")]
struct ApproveArgs {
    /// The approval: the first four or more digits of its id
    #[arg(value_name = "ID")]
    id: ApprovalPrefix,
    /// Run with this network instead of the requested one [possible values: none, host, allow=PLACE,...]
    #[arg(long, value_name = "NET")]
    net: Option<NetMode>,
    /// From now on, allow commands of this workspace that begin with the same words
    #[arg(long)]
    always: bool,
    /// Allow commands that begin with these words [default: the program and its subcommand]
    #[arg(long, value_name = "WORDS", requires = "always")]
    prefix: Option<String>,
}

pub fn run(ctx: &CommandContext, args: &ApprovalsArgs) -> Outcome {
    match &args.action {
        ApprovalsAction::List(args) => list(ctx, args),
        ApprovalsAction::Show(args) => show(ctx, args),
        ApprovalsAction::Approve(args) => approve(ctx, args),
        ApprovalsAction::Deny(args) => deny(ctx, args),
    }
}

fn list(ctx: &CommandContext, args: &ListArgs) -> Outcome {
    let vault = ctx.open_vault()?;
    let now = vault.now();
    let (mut out, mut approvals) = (ctx.ui.out(), Vec::new());
    let mut shown = 0;
    let more = newest(&vault, args, now, |approval| {
        shown += 1;
        match ctx.ui.format {
            Format::Json => approvals.push(avfs_present::approval(&approval, now)),
            Format::Human => show_line(&mut out, &approval, now)?,
        }
        // Show the first one at once, however many follow.
        if shown == 1 { out.flush() } else { Ok(()) }
    })?;
    out.flush()?;
    drop(out);
    if shown == 0 {
        ctx.ui.note(format_args!("no pending approvals"));
    }
    ctx.ui.answer(&ApprovalsList { approvals, more }, |_| Ok(()))
}

/// Passes the newest approvals to `show`. Returns true if there are more.
fn newest(
    vault: &Vault,
    args: &ListArgs,
    now: Timestamp,
    mut show: impl FnMut(ApprovalRecord) -> Result<(), OpError>,
) -> Result<bool, OpError> {
    let open = |approval: &ApprovalRecord| match avfs_present::approval_state(approval, now) {
        ApprovalStateName::Pending | ApprovalStateName::Approved => true,
        ApprovalStateName::Denied | ApprovalStateName::Used | ApprovalStateName::Expired => args.all,
    };
    let (mut shown, mut before) = (0, i64::MAX);
    loop {
        let batch = vault.approvals(before, BATCH_ROWS)?;
        let Some(last) = batch.last() else { return Ok(false) };
        before = last.seq;
        for approval in batch.into_iter().filter(open) {
            if shown == args.limit {
                return Ok(true);
            }
            show(approval)?;
            shown += 1;
        }
    }
}

fn show_line(out: &mut Out, approval: &ApprovalRecord, now: Timestamp) -> Result<(), OpError> {
    let state = avfs_present::approval_state(approval, now);
    let id = out.paint(Tone::Id, &approval.id);
    let (at, request) = (local_time(approval.created_at), Recorded::parse(&approval.request));
    out.line(format_args!("{id}  {at}  {:<8}  {}", state.word(), whole_command(&request)))?;
    for (name, text) in asked_for(&request).into_iter().skip(1) {
        out.line(format_args!("            {name}: {text}"))?;
    }
    out.line(format_args!("            {}", first_line(&approval.reason)))
}

/// The command of a request, all of it: an approval is for every line.
fn whole_command(request: &Recorded<RunRequest>) -> String {
    asked_for(request).into_iter().next().map(|(_, command)| command).unwrap_or_default()
}

fn show(ctx: &CommandContext, args: &ShowArgs) -> Outcome {
    let vault = ctx.open_vault()?;
    let (approval, now) = (vault.approval(&args.id)?, vault.now());
    let workspace = bound_dir(&vault)?.unwrap_or_else(|| UNBOUND_PATH.into());
    let result = avfs_present::approval_shown(&approval, now);
    ctx.ui.answer(&result, |out| {
        show_record(out, &approval, now)?;
        let offers = result.request.read().map(|request| offered_networks(request, &workspace));
        let offers = offers.unwrap_or_default();
        if approval.state == ApprovalState::Pending && is_networked(&result.decision) && !offers.is_empty() {
            let offers: Vec<String> = offers.iter().map(|net| format!("--net {net}")).collect();
            out.line(format_args!("approve    with {}", offers.join(", or ")))?;
        }
        show_decision(out, &result.decision)
    })
}

fn is_networked(decision: &Recorded<RunDecision>) -> bool {
    let is_network = |category: &String| *category == Category::Networked.word();
    decision.read().is_some_and(|decision| decision.categories.iter().any(is_network))
}

fn show_record(out: &mut Out, approval: &ApprovalRecord, now: Timestamp) -> Result<(), OpError> {
    let state = avfs_present::approval_state(approval, now);
    out.line(format_args!("approval   {}", out.paint(Tone::Id, &approval.id)))?;
    for (name, text) in asked_for(&Recorded::parse(&approval.request)) {
        out.line(format_args!("{name:<10} {text}"))?;
    }
    out.line(format_args!("state      {}", state.word()))?;
    out.line(format_args!("reason     {}", first_line(&approval.reason)))?;
    out.line(format_args!("asked by   run {}", approval.asked_by))?;
    out.line(format_args!("asked      {}", local_time(approval.created_at)))?;
    out.line(format_args!("expires    {}", local_time(approval.expires_at)))?;
    if let (Some(at), Some(by)) = (approval.decided_at, &approval.decided_by) {
        out.line(format_args!("decided    {} by {by}", local_time(at)))?;
    }
    if let Some(run) = &approval.used_by {
        out.line(format_args!("used by    run {run}"))?;
    }
    out.line(format_args!("digest     {}", approval.request_digest))
}

fn approve(ctx: &CommandContext, args: &ApproveArgs) -> Outcome {
    let vault = ctx.open_vault()?;
    // The rule first: if it cannot be written, the request must stay unanswered.
    let remembered = match args.always {
        true => Some(remember(ctx, &vault, args)?),
        false => None,
    };
    let new_rules = remembered.as_ref().map(Remembered::prepare).transpose()?;
    let answer = match &args.net {
        Some(net) => Answer::ApproveWith { net: net.to_string() },
        None => Answer::Approve,
    };
    let approval = vault.answer_approval(&args.id, answer)?;
    if let Some(new_rules) = new_rules {
        new_rules.put()?;
    }
    answered(ctx, &approval, vault.now(), remembered.as_ref())
}

fn remember(ctx: &CommandContext, vault: &Vault, args: &ApproveArgs) -> Result<Remembered, OpError> {
    let approval = vault.approval(&args.id)?;
    let bound = bound_dir(vault)?;
    let workspace = bound.as_deref().unwrap_or(Path::new(UNBOUND_PATH));
    let place = RememberFor { around: &ctx.client.surroundings, vault: vault.path(), workspace };
    Ok(Remembered::plan(&approval, args.prefix.as_deref(), args.net.as_ref(), &place)?)
}

fn deny(ctx: &CommandContext, args: &DenyArgs) -> Outcome {
    let vault = ctx.open_vault()?;
    let approval = vault.answer_approval(&args.id, Answer::Deny)?;
    answered(ctx, &approval, vault.now(), None)
}

/// Whether a command that needs the network was requested without it.
fn runs_without_network(approval: &ApprovalRecord) -> bool {
    let request = Recorded::<RunRequest>::parse(&approval.request);
    request.read().is_some_and(|request| request.net == NetMode::None.to_string())
        && is_networked(&Recorded::parse(&approval.decision))
}

fn answered(
    ctx: &CommandContext,
    approval: &ApprovalRecord,
    now: Timestamp,
    remembered: Option<&Remembered>,
) -> Outcome {
    let rules = remembered.map(|it| it.prefixes.iter().map(|words| words.join(" ")).collect());
    let result = ApprovalsAnswer {
        approval: avfs_present::approval(approval, now),
        rules: rules.unwrap_or_default(),
        policy_file: remembered.map(|it| it.file.display().to_string()),
    };
    ctx.ui.answer(&result, |out| {
        let (id, state) = (out.paint(Tone::Id, &approval.id), result.approval.state.word());
        let command = whole_command(&Recorded::parse(&approval.request));
        out.line(format_args!("approval {id} is {state}: {command}"))?;
        let decision = Recorded::<RunDecision>::parse(&approval.decision);
        if let Some(net) = decision.read().and_then(|decision| decision.granted_net.as_ref()) {
            out.line(format_args!("it will run with --net {net}"))?;
        } else if runs_without_network(approval) && result.approval.state.word() == "approved" {
            out.line(format_args!("it will run without a network: the request does not ask for one"))?;
            let (avfs, id) = (&ctx.ui.avfs, &approval.id);
            let approve = avfs_present::approve_command(avfs, id.as_str(), Some(NETWORKED));
            // A rule without a network would take precedence over an approval with one.
            let always = if remembered.is_some() { " --always" } else { "" };
            out.line(format_args!("to give it one: {avfs} approvals deny {id}, then {approve}{always}"))?;
        }
        for (rule, file) in result.rules.iter().zip(result.policy_file.iter().cycle()) {
            out.line(format_args!("from now on {rule:?} is allowed here, by a rule in {file}"))?;
        }
        Ok(())
    })
}
