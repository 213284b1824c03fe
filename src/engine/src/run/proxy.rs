//! The boundary: one request in, one decision, one run, one result out.

use avfs_policy::{ExecutionDecision, Policy};
use avfs_request::ExecutionRequest;
use avfs_types::ids::{ApprovalId, RunId};
use avfs_vault::backend::{ApprovalRecord, RunRecord, RunState};

use super::admit::{Admitted, admit, resolve};
use super::base::base;
use super::capture::{Captured, capture};
use super::effective::Effective;
use super::execute::execute;
use super::land::land_captured;
use super::left_behind::{Unkept, leave_behind};
use super::plan::{plan, scratch_place};
use super::prepare::prepare;
use super::record::Run;
use super::report::report;
use super::result::ExecutionResult;
use super::site::Site;
use super::state::Failure;
use crate::cache_care::{is_cache_full, make_room};
use crate::error::ExecuteError;
use crate::journal;
use crate::launcher::Sandboxes;
use crate::permission::{Approver, Denial};
use crate::result_cache::{Recall, recall};

/// Executes requests.
pub struct ProxyRuntime<'a> {
    pub site: &'a Site<'a>,
    pub policy: &'a Policy,
    pub approver: &'a dyn Approver,
    pub launcher: &'a dyn Sandboxes,
}

/// The outcome of a request.
pub struct Executed {
    /// `None` if the request was refused before it became a run.
    pub run_id: Option<RunId>,
    pub decision: Option<ExecutionDecision>,
    /// The approval that permitted it, or that it waits for.
    pub approval: Option<ApprovalId>,
    pub outcome: Result<Outcome, ExecuteError>,
}

pub enum Outcome {
    Ran(Box<ExecutionResult>),
    Denied(Denial),
    ApprovalRequired(ApprovalRecord),
}

impl ProxyRuntime<'_> {
    /// Executes one request.
    pub fn execute(&self, request: &ExecutionRequest) -> Executed {
        let resolved = match resolve(self.site, request) {
            Ok(resolved) => resolved,
            Err(error) => {
                return Executed { run_id: None, decision: None, approval: None, outcome: Err(error) };
            }
        };
        // At the highest level, so that every logged event has the id of its run.
        let _span = tracing::error_span!("run", id = %resolved.id).entered();
        let admitted = match admit(self, request, resolved) {
            Ok(admitted) => admitted,
            Err(answer) => return *answer,
        };
        let outcome = self.run(&admitted).map(|result| Outcome::Ran(Box::new(result)));
        let Run { id, decision, approval, .. } = admitted.run;
        Executed { run_id: Some(id), decision: Some(decision), approval, outcome }
    }

    /// Uses a cached result or executes the command. Falls back to an alternative, with a note, if the host refuses a
    /// feature: nothing was executed by then.
    fn run(&self, admitted: &Admitted) -> Result<ExecutionResult, ExecuteError> {
        let lookup = match recall(self.site, self.launcher, admitted) {
            Ok(Recall::Hit(result)) => return Ok(*result),
            Ok(Recall::Miss(lookup)) => lookup,
            Err(failure) => return Err(self.fail(&admitted.run, failure)),
        };
        let mut effective = Effective::new(admitted, &lookup);
        let mut room_was_made = false;
        loop {
            let failure = match self.attempt(&effective) {
                Ok(result) => return Ok(result),
                Err(failure) => failure,
            };
            let is_full =
                !room_was_made && failure.error.is_of_no_run() && is_cache_full(self.site, &failure.error);
            let next = match is_full.then(|| make_room(self.site)).flatten() {
                Some(made_room) => {
                    room_was_made = true;
                    Some(effective.clone().noting(made_room))
                }
                None => self.fallback(&effective, &failure.error),
            };
            effective = match next {
                Some(next) => next,
                None => return Err(self.fail(&effective.run, failure)),
            };
        }
    }

    /// The plan without the feature that the host refused; `None` if it did not refuse one, or there is no alternative.
    fn fallback<'e>(&self, effective: &Effective<'e>, error: &ExecuteError) -> Option<Effective<'e>> {
        let ExecuteError::Launch(launch) = error else { return None };
        // If that fails, the error of the launch is the one to report.
        let place = scratch_place(self.site, &effective.run.request).ok()?;
        let next = effective.without(launch.refused, place)?;
        tracing::debug!(error = %launch, "falling back to an alternative");
        Some(next)
    }

    /// The steps from the admission to the result. Without a launched command the scratch is removed again.
    fn attempt(&self, effective: &Effective<'_>) -> Result<ExecutionResult, Failure> {
        let (site, launcher) = (self.site, self.launcher);
        let mut notes = effective.notes.clone();
        let prepared = prepare(site, effective)?;
        let planned = base(site, effective, &prepared, &mut notes)
            .and_then(|based| plan(site, effective, based, &prepared));
        let planned = match planned {
            Ok(planned) => planned,
            Err(failure) => return Err(prepared.discard(failure)),
        };
        std::thread::scope(|beside| {
            let mut ended = execute(site, launcher, effective, planned, prepared, beside)?;
            let kept = capture(site, effective, &mut ended, &mut notes).and_then(|captured| {
                let base = captured.before.map(|before| before.version);
                land_captured(site, effective, &ended, captured, &mut notes).map_err(Unkept::new(base))
            });
            match kept {
                Ok(kept) => {
                    // Nothing can be lost anymore, so a signal need not wait for the report.
                    launcher.take_signals();
                    report(site, launcher, effective, ended, kept, notes).map_err(Failure::at::<Captured>)
                }
                Err(unkept) => {
                    let error = leave_behind(site, &effective.run, ended, unkept);
                    launcher.take_signals();
                    Err(Failure::at::<Captured>(error))
                }
            }
        })
    }

    /// Ends a run with an error, and journals it unless another record of it exists. An error in that must not hide the
    /// original one.
    fn fail(&self, run: &Run, failure: Failure) -> ExecuteError {
        failure.enter();
        let Failure { reached, error } = failure;
        if error.is_of_no_run() {
            let vault = self.site.vault;
            let record = RunRecord {
                // Hints are made where errors are shown.
                result: journal::failure(reached, &error, None, &run.request.secrets()),
                ..run.row(vault, RunState::Failed)
            };
            if let Err(error) = run.journal(vault, &record) {
                tracing::warn!(%error, "cannot journal the failed run");
            }
        }
        error
    }
}
