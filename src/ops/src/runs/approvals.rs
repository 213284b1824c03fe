//! Requests that wait for an approval, and their answers.

use std::path::Path;

use avfs_engine::journal::{Recorded, RunDecision, RunRequest};
use avfs_engine::{RememberFor, Remembered, UNBOUND_PATH, bound_dir, offered_networks};
use avfs_policy::Category;
use avfs_request::NetMode;
use avfs_types::ids::ApprovalPrefix;
use avfs_vault::approval::Answer;
use avfs_vault::backend::{ApprovalRecord, ApprovalState};
use avfs_wire::{ApprovalStateName, ApprovalsAnswer, ApprovalsShow};
use avfs_workplace::{OpError, Workplace};

/// The number of rows read at once.
const BATCH_ROWS: usize = 200;

/// The approvals to list.
pub struct ApprovalsQuery {
    /// Also used, denied and expired ones.
    pub all: bool,
    pub limit: usize,
}

/// Passes on the newest approvals. Returns true if there are more.
pub fn each_approval(
    workplace: &Workplace,
    query: &ApprovalsQuery,
    receive: &mut dyn FnMut(ApprovalsShow) -> Result<(), OpError>,
) -> Result<bool, OpError> {
    let (vault, now) = (&workplace.vault, workplace.vault.now());
    let is_listed = |approval: &ApprovalRecord| match avfs_present::approval_state(approval, now) {
        ApprovalStateName::Pending | ApprovalStateName::Approved => true,
        ApprovalStateName::Denied | ApprovalStateName::Used | ApprovalStateName::Expired => query.all,
    };
    let (mut shown, mut before) = (0, i64::MAX);
    loop {
        let batch = vault.approvals(before, BATCH_ROWS)?;
        let Some(last) = batch.last() else { return Ok(false) };
        before = last.seq;
        for approval in batch.iter().filter(|approval| is_listed(approval)) {
            if shown == query.limit {
                return Ok(true);
            }
            receive(avfs_present::approval_shown(approval, now))?;
            shown += 1;
        }
    }
}

pub struct ShownApproval {
    pub shown: ApprovalsShow,
    /// The networks with which a pending request that needs one can be approved, in the syntax of `--net`.
    pub networks: Vec<String>,
}

pub fn approval(workplace: &Workplace, id: &ApprovalPrefix) -> Result<ShownApproval, OpError> {
    let vault = &workplace.vault;
    let approval = vault.approval(id)?;
    let workspace = bound_dir(vault)?.unwrap_or_else(|| UNBOUND_PATH.into());
    let shown = avfs_present::approval_shown(&approval, vault.now());
    let offers = shown.request.read().map(|request| offered_networks(request, &workspace));
    let is_offered = approval.state == ApprovalState::Pending && is_networked(&shown.decision);
    let networks = offers.filter(|_| is_offered).unwrap_or_default();
    Ok(ShownApproval { shown, networks: networks.iter().map(NetMode::to_string).collect() })
}

fn is_networked(decision: &Recorded<RunDecision>) -> bool {
    let is_network = |category: &String| *category == Category::Networked.word();
    decision.read().is_some_and(|decision| decision.categories.iter().any(is_network))
}

/// A rule in the user's policy: commands of this workspace that begin with the same words need no approval.
pub struct AlwaysAllow {
    /// `None`: the program and its subcommand.
    pub prefix: Option<String>,
}

/// The answer to a request, with what happens next.
pub struct AnsweredApproval {
    pub answer: ApprovalsAnswer,
    pub request: Recorded<RunRequest>,
    /// The network that the approval gives.
    pub granted_net: Option<String>,
    /// The command needs a network, and neither the request nor the approval has one.
    pub lacks_network: bool,
}

/// Approves a request, with this network instead of the requested one if there is one.
pub fn approve(
    workplace: &Workplace,
    id: &ApprovalPrefix,
    net: Option<&NetMode>,
    always: Option<&AlwaysAllow>,
) -> Result<AnsweredApproval, OpError> {
    // The rule first: if it cannot be written, the request must stay unanswered.
    let remembered = always.map(|always| plan_rule(workplace, id, net, always)).transpose()?;
    let new_rules = remembered.as_ref().map(Remembered::prepare).transpose()?;
    let answer = match net {
        Some(net) => Answer::ApproveWith { net: net.to_string() },
        None => Answer::Approve,
    };
    let approval = workplace.vault.answer_approval(id, answer)?;
    if let Some(new_rules) = new_rules {
        new_rules.put()?;
    }
    Ok(answered(workplace, &approval, remembered.as_ref()))
}

fn plan_rule(
    workplace: &Workplace,
    id: &ApprovalPrefix,
    net: Option<&NetMode>,
    always: &AlwaysAllow,
) -> Result<Remembered, OpError> {
    let Workplace { client, vault } = workplace;
    let approval = vault.approval(id)?;
    let bound = bound_dir(vault)?;
    let workspace = bound.as_deref().unwrap_or(Path::new(UNBOUND_PATH));
    let place = RememberFor { around: &client.surroundings, vault: vault.path(), workspace };
    Ok(Remembered::plan(&approval, always.prefix.as_deref(), net, &place)?)
}

/// Denies a request, until its approval expires.
pub fn deny(workplace: &Workplace, id: &ApprovalPrefix) -> Result<AnsweredApproval, OpError> {
    let approval = workplace.vault.answer_approval(id, Answer::Deny)?;
    Ok(answered(workplace, &approval, None))
}

fn answered(
    workplace: &Workplace,
    approval: &ApprovalRecord,
    remembered: Option<&Remembered>,
) -> AnsweredApproval {
    let rules = remembered.map(|it| it.prefixes.iter().map(|words| words.join(" ")).collect());
    let ApprovalsShow { approval, request, decision } =
        avfs_present::approval_shown(approval, workplace.vault.now());
    let asks_for_none = request.read().is_some_and(|request| request.net == NetMode::None.to_string());
    let is_approved = approval.state == ApprovalStateName::Approved;
    let granted_net = decision.read().and_then(|decision| decision.granted_net.clone());
    AnsweredApproval {
        lacks_network: granted_net.is_none() && asks_for_none && is_networked(&decision) && is_approved,
        answer: ApprovalsAnswer {
            approval,
            rules: rules.unwrap_or_default(),
            policy_file: remembered.map(|it| it.file.display().to_string()),
        },
        request,
        granted_net,
    }
}
