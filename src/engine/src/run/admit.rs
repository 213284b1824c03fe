//! Resolve and admit: the policy decides on the request as asked, a person may approve it, and caps make it the request
//! as granted.

use std::time::{Duration, Instant};

use avfs_hostfs::random;
use avfs_policy::ExecutionDecision;
use avfs_request::reproducible::clock_held;
use avfs_request::{ClockHeld, ExecutionRequest, FixedClock, ForkChoice, Retention, Writing};
use avfs_types::ids::{ForkName, RunId};
use avfs_types::redact;
use avfs_vault::{Vault, VaultError};

use super::notes::words_of;
use super::proxy::{Executed, Outcome, ProxyRuntime};
use super::record::{Run, message};
use super::result::Notes;
use super::site::{OLDER_COPY, Site};
use super::state::{ProxyExecutionState, Stage, enter};
use super::withheld;
use crate::error::ExecuteError;
use crate::git::repository::CommonDir;
use crate::permission::{Permission, decide, permit};
use crate::view::hidden_nowhere;
use crate::workspace_root::{Places, check_request};

/// Minimum grace period, however short the allowed time: programs need time to shut down.
const GRACE_KEPT: Duration = Duration::from_secs(5);

/// A request that became a run.
pub(crate) struct Resolved {
    pub id: RunId,
    pub places: Places,
    pub begun: Instant,
}

impl Stage for Resolved {
    const STATE: ProxyExecutionState = ProxyExecutionState::Resolving;
}

/// A run that may be executed. Its request is the one that was granted.
pub(crate) struct Admitted {
    pub run: Run,
    pub places: Places,
    /// The repository's common directory, if the workspace is a linked worktree.
    pub common_dir: Option<CommonDir>,
    pub notes: Notes,
}

impl Stage for Admitted {
    const STATE: ProxyExecutionState = ProxyExecutionState::Deciding;
}

/// Checks a request, finds its directories, and gives it an id.
#[tracing::instrument(level = "debug", skip_all)]
pub(super) fn resolve(site: &Site<'_>, request: &ExecutionRequest) -> Result<Resolved, ExecuteError> {
    let begun = Instant::now();
    request.check(site.arguments_bytes_max)?;
    check_request(request, site.bound.as_deref())?;
    let places = Places::find(request, site.bound.clone(), &site.cwd)?;
    enter::<ExecutionRequest, Resolved>();
    let id = RunId::from_random(random::bytes().map_err(VaultError::Input)?);
    Ok(Resolved { id, places, begun })
}

/// Admits a request. The error is the answer to a request that is not executed.
#[tracing::instrument(level = "debug", skip_all)]
pub(super) fn admit(
    proxy: &ProxyRuntime<'_>,
    request: &ExecutionRequest,
    resolved: Resolved,
) -> Result<Admitted, Box<Executed>> {
    enter::<Resolved, Admitted>();
    let site = proxy.site;
    let Resolved { id, places, begun } = resolved;
    let asked = Run {
        fork: match &request.fork {
            ForkChoice::Ephemeral { .. } => ForkName::of_run(&id),
            ForkChoice::Persistent { name, .. } => name.clone(),
        },
        id,
        message: message(&redact(&request.shown_command())),
        begun,
        started_at: site.vault.now(),
        decision: decide(proxy.policy, request, &places, site.home.as_deref()),
        approval: None,
        // Record the caller's working directory, so that the request can be repeated.
        request: ExecutionRequest { cwd: Some(places.cwd_below()), ..request.clone() },
    };
    let answer = |decision: ExecutionDecision, approval, outcome| {
        let run_id = Some(asked.id.clone());
        Box::new(Executed { run_id, decision: Some(decision), approval, outcome })
    };
    let (approval, net) = match permit(proxy, &asked, &places) {
        Ok(Permission::Granted { approval, net }) => (approval, net),
        Ok(Permission::Denied { denial, decision }) => {
            return Err(answer(decision, None, Ok(Outcome::Denied(denial))));
        }
        Ok(Permission::Wanted(approval)) => {
            let id = Some(approval.id.clone());
            return Err(answer(asked.decision.clone(), id, Ok(Outcome::ApprovalRequired(approval))));
        }
        Err(error) => return Err(answer(asked.decision.clone(), None, Err(error))),
    };
    let decision = ExecutionDecision { net: net.or(asked.decision.net.clone()), ..asked.decision.clone() };
    let request = capped(&asked.request, &decision);
    let mut notes = Notes::default();
    note_vault(site.vault, &mut notes);
    note_request(&asked.request, &places, &mut notes);
    note_caps(&asked.request, &request, &decision, &mut notes);
    let run = Run { request, decision, approval, ..asked };
    Ok(Admitted { run, common_dir: places.common_dir(), places, notes })
}

/// The request, limited to the maximums of the policy.
pub(crate) fn capped(asked: &ExecutionRequest, decision: &ExecutionDecision) -> ExecutionRequest {
    let max = decision.timeout_max;
    // A command that ignores SIGTERM must not exceed the allowed time through a long grace period.
    let grace = max.duration().map_or(asked.grace, |max| asked.grace.min(max.max(GRACE_KEPT)));
    ExecutionRequest {
        timeout: asked.timeout.at_most(max),
        grace,
        limits: asked.limits.at_most(&decision.limits_max),
        net: decision.net.clone().unwrap_or_else(|| asked.net.clone()),
        ..asked.clone()
    }
}

/// True if the changes of the command should be kept, which requires a version that they are relative to.
pub(crate) fn wants_version(request: &ExecutionRequest) -> bool {
    request.retention != Retention::Discard && request.writing == Writing::Allowed
}

fn note_vault(vault: &Vault, notes: &mut Notes) {
    if let Some(rollback) = vault.older_copy() {
        notes.add(OLDER_COPY, format!("the vault was replaced by an older copy: it lacks {rollback}"));
    }
}

/// Notes what of the request has no effect, or another one than it seems.
fn note_request(request: &ExecutionRequest, places: &Places, notes: &mut Notes) {
    for name in &request.environment.missing {
        let held_back = request.environment.only_credentials.iter().find(|(pattern, _)| pattern == name);
        let name = name.to_string_lossy();
        let text = match held_back {
            Some((_, variable)) => {
                let variable = variable.to_string_lossy();
                format!(
                    "{name} passes no variable: {variable} looks like a credential; \
                     pass it with --secret {variable}"
                )
            }
            None => format!("{name} is not set, so it is not passed"),
        };
        notes.add("env.missing", text);
    }
    for path in hidden_nowhere(request, places) {
        notes.add("hide.missing", format!("--hide {}: the path does not exist", path.display()));
    }
    withheld::note_in_text(request, notes);
    // Without libfaketime, programs see the time of the host, which is later than that of any file.
    if request.clock == Some(FixedClock::DEFAULT)
        && clock_held(request) == Some(ClockHeld::Programs)
        && words_of(&request.command).any(|word| word == "make")
    {
        notes.add(
            "clock.skew",
            "make may warn about clock skew: the files are newer than the fixed time; \
             choose a later time with --clock-fixed=TIME",
        );
    }
    for name in request.secrets().not_searched() {
        notes.add("secret.short", format!("{name} is too short to search for in files"));
    }
}

/// Notes how the granted request differs from the one that was asked.
fn note_caps(
    asked: &ExecutionRequest,
    granted: &ExecutionRequest,
    decision: &ExecutionDecision,
    notes: &mut Notes,
) {
    if granted.timeout != asked.timeout {
        let max = decision.timeout_max;
        notes.add("timeout.capped", format!("the policy allows {max} at most, not {}", asked.timeout));
    }
    if granted.grace < asked.grace {
        let seconds = granted.grace.as_secs();
        notes.add("grace.capped", format!("the grace period after SIGTERM is limited to {seconds} s"));
    }
    if granted.net != asked.net {
        notes.add("net.granted", format!("the network is {}, as granted", granted.net));
    }
    for (kind, value) in granted.limits.set().filter(|(kind, value)| asked.limits.get(*kind) != Some(*value))
    {
        let (option, max) = (kind.option(), kind.show(value));
        let text = match asked.limits.get(kind) {
            Some(wanted) => format!("the policy allows --{option} {max} at most, not {}", kind.show(wanted)),
            None => format!("the policy sets --{option} {max}"),
        };
        notes.add("limit.capped", text);
    }
}
