//! `avfs approvals list|show|approve|deny`

use clap::{Args, Subcommand};

use avfs_ops::OpError;
use avfs_ops::runs::{AlwaysAllow, AnsweredApproval, ApprovalsQuery, ShownApproval};
use avfs_policy::NETWORKED;
use avfs_request::NetMode;
use avfs_terminal::Tone;
use avfs_types::ids::ApprovalPrefix;
use avfs_wire::{ApprovalObject, ApprovalsList, ApprovalsShow, Recorded, RequestObject, asked_for};

use crate::commands::runs::show_decision;
use crate::context::CommandContext;
use crate::ui::{Format, Out, Outcome};
use crate::view::{first_line, local_time_of};

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
        ApprovalsAction::Deny(args) => answered(ctx, &avfs_ops::runs::deny(&ctx.client.open()?, &args.id)?),
    }
}

fn list(ctx: &CommandContext, args: &ListArgs) -> Outcome {
    let workplace = ctx.client.open()?;
    let (mut out, mut approvals) = (ctx.ui.out(), Vec::new());
    let mut shown = 0;
    let query = ApprovalsQuery { all: args.all, limit: args.limit };
    let more = avfs_ops::runs::each_approval(&workplace, &query, &mut |approval| {
        shown += 1;
        match ctx.ui.format {
            Format::Json => approvals.push(approval.approval),
            Format::Human => show_line(&mut out, &approval)?,
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

fn show_line(out: &mut Out, shown: &ApprovalsShow) -> Result<(), OpError> {
    let ApprovalsShow { approval, request, .. } = shown;
    let (id, at) = (out.paint(Tone::Id, &approval.id), local_time_of(&approval.created_at));
    out.line(format_args!("{id}  {at}  {:<8}  {}", approval.state.word(), whole_command(request)))?;
    for (name, text) in asked_for(request).into_iter().skip(1) {
        out.line(format_args!("            {name}: {text}"))?;
    }
    out.line(format_args!("            {}", first_line(&approval.reason)))
}

/// The command of a request, all of it: an approval is for every line.
fn whole_command(request: &Recorded<RequestObject>) -> String {
    asked_for(request).into_iter().next().map(|(_, command)| command).unwrap_or_default()
}

fn show(ctx: &CommandContext, args: &ShowArgs) -> Outcome {
    let ShownApproval { shown, networks } = avfs_ops::runs::approval(&ctx.client.open()?, &args.id)?;
    ctx.ui.answer(&shown, |out| {
        show_record(out, &shown.approval, &shown.request)?;
        if !networks.is_empty() {
            let offers: Vec<String> = networks.iter().map(|net| format!("--net {net}")).collect();
            out.line(format_args!("approve    with {}", offers.join(", or ")))?;
        }
        show_decision(out, &shown.decision)
    })
}

fn show_record(
    out: &mut Out,
    approval: &ApprovalObject,
    request: &Recorded<RequestObject>,
) -> Result<(), OpError> {
    out.line(format_args!("approval   {}", out.paint(Tone::Id, &approval.id)))?;
    for (name, text) in asked_for(request) {
        out.line(format_args!("{name:<10} {text}"))?;
    }
    out.line(format_args!("state      {}", approval.state.word()))?;
    out.line(format_args!("reason     {}", first_line(&approval.reason)))?;
    out.line(format_args!("asked by   run {}", approval.asked_by))?;
    out.line(format_args!("asked      {}", local_time_of(&approval.created_at)))?;
    out.line(format_args!("expires    {}", local_time_of(&approval.expires_at)))?;
    if let (Some(at), Some(by)) = (&approval.decided_at, &approval.decided_by) {
        out.line(format_args!("decided    {} by {by}", local_time_of(at)))?;
    }
    if let Some(run) = &approval.used_by {
        out.line(format_args!("used by    run {run}"))?;
    }
    out.line(format_args!("digest     {}", approval.request_digest))
}

fn approve(ctx: &CommandContext, args: &ApproveArgs) -> Outcome {
    let always = args.always.then(|| AlwaysAllow { prefix: args.prefix.clone() });
    let workplace = ctx.client.open()?;
    answered(ctx, &avfs_ops::runs::approve(&workplace, &args.id, args.net.as_ref(), always.as_ref())?)
}

fn answered(ctx: &CommandContext, answered: &AnsweredApproval) -> Outcome {
    let AnsweredApproval { answer, request, granted_net, lacks_network } = answered;
    ctx.ui.answer(answer, |out| {
        let (id, state) = (out.paint(Tone::Id, &answer.approval.id), answer.approval.state.word());
        out.line(format_args!("approval {id} is {state}: {}", whole_command(request)))?;
        if let Some(net) = granted_net {
            out.line(format_args!("it will run with --net {net}"))?;
        } else if *lacks_network {
            out.line(format_args!("it will run without a network: the request does not ask for one"))?;
            let (avfs, id) = (&ctx.ui.avfs, &answer.approval.id);
            let approve = avfs_present::approve_command(avfs, id, Some(NETWORKED));
            // A rule without a network would take precedence over an approval with one.
            let always = if answer.policy_file.is_some() { " --always" } else { "" };
            out.line(format_args!("to give it one: {avfs} approvals deny {id}, then {approve}{always}"))?;
        }
        for (rule, file) in answer.rules.iter().zip(answer.policy_file.iter().cycle()) {
            out.line(format_args!("from now on {rule:?} is allowed here, by a rule in {file}"))?;
        }
        Ok(())
    })
}
