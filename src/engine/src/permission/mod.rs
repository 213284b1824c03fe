//! Decides whether a request may run: by the policy, and by a person if the policy requires an approval.
//!
//! An approval is used up before the command runs, so that it permits exactly one run.

pub mod approval_rule;
pub mod net_offer;

use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use avfs_hostfs::random;
use avfs_policy::{
    Action, Asked, EDITOR_VARIABLES, ExecutionDecision, Explanation, NO_TERMINAL, Opening, OwnChoices,
    Policy, Widening, fills_screen,
};
use avfs_request::request::NamedVault;
use avfs_request::{ApprovalMode, ExecutionRequest, Extra, ForkChoice, Named, NetMode, Profile};
use avfs_types::diagnose::shell_word;
use avfs_types::ids::{ApprovalId, ApprovalPrefix, RequestDigest};
use avfs_types::redact;
use avfs_vault::VaultError;
use avfs_vault::approval::{Answer, Claim, Fault, Question};
use avfs_vault::backend::{ApprovalRecord, ApprovalState, RunState};

use crate::error::ExecuteError;
use crate::git::repository;
use crate::journal::{Recorded, RunDecision};
use crate::locate::Surroundings;
use crate::run::{ProxyRuntime, Run};
use crate::workspace_root::{Places, UNBOUND_PATH, WorkspaceRootError};

/// Interval between two checks of a pending approval.
const LOOK_EVERY: Duration = Duration::from_millis(200);

/// A person at a terminal.
pub trait Approver {
    /// The answer; `None` if there is no person to ask.
    fn ask(&self, approval: &ApprovalRecord, decision: &ExecutionDecision) -> Option<Answer>;

    /// Called once before a run waits for an answer from elsewhere.
    fn waits(&self, approval: &ApprovalRecord);
}

/// The outcome of the decision.
pub enum Permission {
    Granted {
        approval: Option<ApprovalId>,
        /// The granted network, if it differs from the requested one.
        net: Option<NetMode>,
    },
    Denied {
        denial: Denial,
        /// The decision that counts: a person may have changed it.
        decision: ExecutionDecision,
    },
    /// The request needs an approval first.
    Wanted(ApprovalRecord),
}

/// The answer to the question whether a request is approved.
enum Approval {
    Granted { approval: ApprovalId, net: Option<NetMode> },
    Denied(Denial),
    Wanted(ApprovalRecord),
}

/// Why a request is not run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Denial {
    /// The policy denies it.
    Policy,
    /// A full-screen program would have no terminal.
    NoTerminal,
    /// A person denied it.
    Person { approval: ApprovalId, by: String },
    /// The given approval is not valid.
    BadApproval { shown: ApprovalPrefix, fault: Fault },
}

/// Permits a request, or records why it is not permitted. `run` has the request as asked.
pub(crate) fn permit(
    proxy: &ProxyRuntime<'_>,
    run: &Run,
    places: &Places,
) -> Result<Permission, ExecuteError> {
    let mut decision = run.decision.clone();
    let denial = match decision.action {
        Action::Allow | Action::AllowWithCheckpoint => {
            return Ok(Permission::Granted { approval: None, net: None });
        }
        Action::Deny if decision.rule.as_deref() == Some(NO_TERMINAL) => Denial::NoTerminal,
        Action::Deny => Denial::Policy,
        Action::RequireApproval => match approval(proxy, run, &run.request.digest(&places.cwd))? {
            Approval::Denied(denial) => denial,
            Approval::Wanted(approval) => return Ok(Permission::Wanted(approval)),
            Approval::Granted { approval, net: None } => {
                return Ok(Permission::Granted { approval: Some(approval), net: None });
            }
            Approval::Granted { approval, net: Some(net) } => {
                let request = ExecutionRequest { net, ..run.request.clone() };
                decision = decide(proxy.policy, &request, places, proxy.site.home.as_deref());
                // A person can grant a network that was not requested, but not one that a cap forbids.
                if decision.action != Action::Deny {
                    return Ok(Permission::Granted { approval: Some(approval), net: Some(request.net) });
                }
                Denial::Policy
            }
        },
    };
    if let Denial::Person { approval, by } = &denial {
        decision.action = Action::Deny;
        decision.reason = format!("{by} denied it (approval {approval})");
        // The advice of the policy would be a way around this decision.
        decision.hint = None;
    }
    let denied = Run { decision, ..run.clone() };
    denied.journal(proxy.site.vault, &denied.row(proxy.site.vault, RunState::Denied))?;
    Ok(Permission::Denied { denial, decision: denied.decision })
}

fn approval(proxy: &ProxyRuntime<'_>, run: &Run, digest: &RequestDigest) -> Result<Approval, ExecuteError> {
    let vault = proxy.site.vault;
    match vault.claim_approval(digest, run.request.approved.as_ref(), &run.id)? {
        Claim::Granted(approval) => Ok(granted(approval)),
        // A user at the terminal may change their mind.
        Claim::Denied(approval) if run.request.approval != ApprovalMode::Ask => {
            Ok(Approval::Denied(denied_by(&approval)))
        }
        Claim::Refused { shown, fault: Fault::Pending } => {
            let approval = vault.approval(&shown)?;
            run.journal(vault, &run.row(vault, RunState::ApprovalRequired))?;
            wait_or_leave(proxy, run, approval, digest)
        }
        Claim::Refused { shown, fault } => Ok(Approval::Denied(Denial::BadApproval { shown, fault })),
        Claim::Open | Claim::Denied(_) => {
            let question = Question {
                id: ApprovalId::from_random(random::bytes().map_err(VaultError::Input)?),
                digest: *digest,
                reason: redact(&run.decision.reason).into_owned(),
                expires_seconds: run.decision.approval_seconds,
            };
            let row = run.row(vault, RunState::ApprovalRequired);
            let decision = run.decision.audit_text();
            let approval = vault.ask_approval(&question, &row, run.audit_texts(&decision))?;
            wait_or_leave(proxy, run, approval, digest)
        }
    }
}

/// Waits for an answer, or returns the pending approval.
fn wait_or_leave(
    proxy: &ProxyRuntime<'_>,
    run: &Run,
    approval: ApprovalRecord,
    digest: &RequestDigest,
) -> Result<Approval, ExecuteError> {
    let (vault, prefix) = (proxy.site.vault, ApprovalPrefix::from(&approval.id));
    match run.request.approval {
        ApprovalMode::Fail => return Ok(Approval::Wanted(approval)),
        ApprovalMode::Ask => match proxy.approver.ask(&approval, &run.decision) {
            None => return Ok(Approval::Wanted(approval)),
            Some(answer) => match vault.answer_approval(&prefix, answer) {
                // Another person answered in the meantime: their answer counts.
                Ok(_) | Err(VaultError::ApprovalSettled { .. }) => {}
                Err(error) => return Err(error.into()),
            },
        },
        ApprovalMode::Wait => {
            proxy.approver.waits(&approval);
            let answered = |approval: &ApprovalRecord| {
                approval.state != ApprovalState::Pending || approval.expires_at <= vault.now()
            };
            while !answered(&vault.approval(&prefix)?) {
                std::thread::sleep(LOOK_EVERY);
            }
        }
    }
    match vault.claim_approval(digest, Some(&prefix), &run.id)? {
        Claim::Granted(approval) => Ok(granted(approval)),
        Claim::Refused { fault: Fault::Denied, .. } => {
            Ok(Approval::Denied(denied_by(&vault.approval(&prefix)?)))
        }
        Claim::Refused { shown, fault } => Ok(Approval::Denied(Denial::BadApproval { shown, fault })),
        Claim::Denied(_) | Claim::Open => Ok(Approval::Wanted(vault.approval(&prefix)?)),
    }
}

/// The decision of the policy on a request. Its texts contain no values of secrets.
pub(crate) fn decide(
    policy: &Policy,
    request: &ExecutionRequest,
    places: &Places,
    home: Option<&Path>,
) -> ExecutionDecision {
    let decision = put(policy, request, places, home, Policy::decide);
    let mut decision = only_where_approvals_count(decision, request.named.vault.as_ref());
    if request.named.net {
        decision.net = None;
    }
    let values = request.secrets();
    ExecutionDecision {
        reason: values.scrub_text(decision.reason),
        hint: decision.hint.map(|hint| values.scrub_text(hint)),
        // A rule with a redacted word would match a different command.
        allow_rule: decision.allow_rule.filter(|rule| values.scrub_text(rule.clone()) == *rule),
        ..decision
    }
}

/// Explains the decision of the policy, in a workspace bound to `bound`.
pub fn explain(
    policy: &Policy,
    request: &ExecutionRequest,
    bound: PathBuf,
    around: &Surroundings,
) -> Result<Explanation, WorkspaceRootError> {
    let places = Places::find(request, Some(bound), &around.cwd)?;
    Ok(put(policy, request, &places, around.home.as_deref(), Policy::explain))
}

/// Evaluates the policy for a request.
fn put<T>(
    policy: &Policy,
    request: &ExecutionRequest,
    places: &Places,
    home: Option<&Path>,
    answer: impl FnOnce(&Policy, &Asked<'_>) -> T,
) -> T {
    let writable = request.extras.iter().filter(|extra| matches!(extra, Extra::ReadWrite(_)));
    // Rules apply to the real path: a symlink created by a command must not lead outside the allowed paths.
    let rw: Vec<&Path> = writable.map(Extra::source).collect();
    let provided = request.provided(home, &places.workspace);
    let provided: Vec<&Path> = provided.iter().map(PathBuf::as_path).collect();
    let secrets = request.handed_over();
    let secrets: Vec<&str> = secrets.iter().map(String::as_str).collect();
    let profiled;
    let policy = if request.policy.is_empty() {
        policy
    } else {
        profiled = policy.clone().with_profiles(&request.policy);
        &profiled
    };
    let openings = openings(request, places);
    let variables: Vec<(&str, &str)> = request
        .environment
        .brought()
        .filter_map(|(name, value)| Some((name.to_str()?, value.to_str().unwrap_or("\u{fffd}"))))
        // The value of a preset is known to be harmless.
        .filter(|(name, value)| !request.presets.iter().any(|preset| preset.sets(name, value)))
        .collect();
    let asked = Asked {
        command: &request.command,
        fork: match &request.fork {
            ForkChoice::Ephemeral { .. } => None,
            ForkChoice::Persistent { name, .. } => Some(name),
        },
        cwd: &places.cwd,
        workspace: &places.workspace,
        project: places.bound.as_deref().unwrap_or(Path::new(UNBOUND_PATH)),
        home,
        net: &request.net,
        confinement: request.confinement,
        profile: request.profile,
        timeout: request.timeout,
        rw: &rw,
        provided: &provided,
        secrets: &secrets,
        variables: &variables,
        openings: &openings,
        terminal: request.terminal,
        editor: has_editor(request, places),
        own: OwnChoices {
            net: request.named.net && request.net != NetMode::None,
            variables: request.named.variables,
            profile: request.named.profile.unwrap_or(Profile::Strict),
            confinement: request.named.confinement,
        },
    };
    answer(policy, &asked)
}

/// Whether git may start an editor that works without a terminal: one of a variable that the command gets, of the
/// system's settings, or of a repository between the working directory and the bound directory.
fn has_editor(request: &ExecutionRequest, places: &Places) -> bool {
    let works = |value: &OsStr| !value.to_str().is_some_and(fills_screen);
    let bound = places.bound.as_deref();
    let within = |dir: &&Path| bound.is_some_and(|bound| dir.starts_with(bound) && *dir != bound);
    let repositories = places.cwd.ancestors().take_while(within);
    EDITOR_VARIABLES.iter().any(|name| request.environment.get(name).is_some_and(works))
        || repository::system_sets_editor(|name| request.environment.get(name))
        || repositories.chain(bound).any(repository::sets_editor)
}

/// The openings that the request asks for.
fn openings(request: &ExecutionRequest, places: &Places) -> Vec<Opening> {
    let covers: Vec<(&'static str, &Path)> = request
        .extras
        .iter()
        .filter_map(|extra| match extra {
            Extra::Tmpfs(path) => Some(("--tmpfs", path.as_path())),
            Extra::Hide(path) => Some(("--hide", path.as_path())),
            Extra::ReadOnly(_) | Extra::ReadWrite(_) | Extra::Cache { .. } => None,
        })
        .collect();
    let Named { vault, ro, env_files, net: _, presets, variables: _, profile: _, confinement: _ } =
        &request.named;
    let widening = Widening {
        vault: vault.clone(),
        ro,
        env_files,
        inputs: &request.inputs,
        retention: request.retention,
        at: request.at.as_deref(),
        degradation: request.degradation,
        home: request.home,
        tmp: request.tmp,
        covers: &covers,
        presets,
        workspace: &places.workspace,
        project: places.bound.as_deref().unwrap_or(Path::new(UNBOUND_PATH)),
    };
    widening.openings()
}

/// A caller who can choose any file as the vault could put an approval into it: in an untrusted vault, requests
/// that need an approval are denied.
fn only_where_approvals_count(decision: ExecutionDecision, vault: Option<&NamedVault>) -> ExecutionDecision {
    match vault {
        Some(NamedVault { path, is_trusted: false }) if decision.action == Action::RequireApproval => {
            ExecutionDecision {
                action: Action::Deny,
                reason: format!(
                    "{}; approvals are valid only in a vault that you created or trust",
                    decision.reason
                ),
                hint: Some(format!("run: avfs vault trust {}", shell_word(path.as_os_str()))),
                ..decision
            }
        }
        Some(_) | None => decision,
    }
}

fn granted(approval: ApprovalRecord) -> Approval {
    let decision = Recorded::<RunDecision>::parse(&approval.decision);
    let net = decision.read().and_then(|decision| decision.granted_net.as_ref()?.parse().ok());
    Approval::Granted { approval: approval.id, net }
}

fn denied_by(approval: &ApprovalRecord) -> Denial {
    let by = approval.decided_by.clone().unwrap_or_default();
    Denial::Person { approval: approval.id.clone(), by }
}
