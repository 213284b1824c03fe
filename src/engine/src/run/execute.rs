//! Execute: a sandbox is opened, runs the command to its end, and stops. A live base is imported beside the command,
//! and the directory is compared with a fork.

use std::thread::{Scope, ScopedJoinHandle};
use std::time::Duration;

use avfs_types::clock::FileTime;
use avfs_types::ids::ForkName;
use avfs_vault::import::Imported;
use avfs_vault::transfer;

use super::admit::wants_version;
use super::effective::Effective;
use super::left_behind::{note_end, scrub};
use super::plan::Planned;
use super::prepare::Prepared;
use super::record::Run;
use super::site::Site;
use super::state::{Failure, ProxyExecutionState, Stage, enter_in};
use crate::fork_behind::LookBeside;
use crate::launcher::{CommandPlan, Completion, LaunchError, Sandbox, SandboxPlan, Sandboxes, Upper};
use crate::mount_session::MountSession;
use crate::run_base::RunBase;
use crate::scratch_size::Scratch;
use crate::workspace_service::{import_for_run, wait_for_import};

/// A command that has ended, and its results. Values of secrets are removed from the completion.
pub(crate) struct Ended<'scope> {
    pub prepared: Prepared,
    pub base: RunBase,
    /// The parent of a fork created for the run.
    pub parent: ForkName,
    pub scratch_place: Scratch,
    pub completion: Completion,
    pub sandbox: Box<dyn Sandbox>,
    /// Where its changes are.
    pub upper: Upper,
    /// By the clock of file times; the command did not run before.
    pub launched_at: FileTime,
    /// The time from the request to the launch.
    pub resolving: Duration,
    /// The import that ran in parallel to the command.
    pub imported: Option<transfer::Result<Imported>>,
    /// The comparison of the directory with the fork, which runs in parallel.
    pub look: Option<LookBeside<'scope>>,
}

impl Stage for Ended<'_> {
    const STATE: ProxyExecutionState = ProxyExecutionState::Executing;
}

/// Runs the command. No process that could write to the upper is left when this returns.
#[tracing::instrument(level = "debug", skip_all)]
pub(super) fn execute<'scope, 'env>(
    site: &'env Site<'_>,
    launcher: &dyn Sandboxes,
    effective: &Effective<'_>,
    planned: Planned,
    mut prepared: Prepared,
    beside: &'scope Scope<'scope, 'env>,
) -> Result<Ended<'scope>, Failure> {
    let run = &effective.run;
    let Planned { base, parent, scratch_place, sandbox: plan, command } = planned;
    let resolving = run.begun.elapsed();
    prepared.session.mounted().map_err(Failure::at::<Planned>)?;
    let launched_at = prepared.session.file_time();
    let mut look = None;
    let mut meanwhile = || {
        // Only now: the thread must inherit the signals that the launcher has blocked.
        look = LookBeside::start(beside, site, &run.request.fork, &base);
        // An error will occur again where it matters.
        if let Err(error) = site.vault.backend().make_ready() {
            tracing::debug!(%error, "cannot prepare the vault");
        }
    };
    let launch = Launch { site, launcher, run, base: &base, session: &prepared.session };
    let Launched { ran, reached, imported } = launch.run(&plan, &command, &mut meanwhile);
    if let Some(look) = &look {
        look.command_ended();
    }
    prepared.session.released().map_err(|error| Failure { reached, error: error.into() })?;
    let Ran { mut completion, sandbox, upper } = match ran {
        Ok(ran) => ran,
        Err(error) => return Err(prepared.discard(Failure { reached, error: error.into() })),
    };
    scrub(&run.request.secrets(), &mut completion);
    Ok(Ended {
        prepared,
        base,
        parent,
        scratch_place,
        completion,
        sandbox,
        upper,
        launched_at,
        resolving,
        imported,
        look,
    })
}

/// A command that has ended, in a sandbox that has stopped.
struct Ran {
    completion: Completion,
    sandbox: Box<dyn Sandbox>,
    upper: Upper,
}

struct Launch<'a> {
    site: &'a Site<'a>,
    launcher: &'a dyn Sandboxes,
    run: &'a Run,
    base: &'a RunBase,
    session: &'a MountSession,
}

struct Launched {
    ran: Result<Ran, LaunchError>,
    /// Mounting, or executing once the command runs.
    reached: ProxyExecutionState,
    imported: Option<transfer::Result<Imported>>,
}

impl Launch<'_> {
    /// Runs the command, and imports a live base beside it.
    fn run(&self, plan: &SandboxPlan, command: &CommandPlan, meanwhile: &mut dyn FnMut()) -> Launched {
        let Self { site, run, session, .. } = *self;
        std::thread::scope(|scope| {
            let mut reached = Planned::STATE;
            let mut import: Option<(_, Option<ScopedJoinHandle<'_, _>>)> = None;
            let (ended, end) = std::sync::mpsc::channel();
            let mut ended = Some(ended);
            let mut started = || {
                enter_in::<Planned, Ended<'_>>(session);
                reached = Ended::STATE;
                if let (RunBase::Live(dir), true) = (self.base, wants_version(&run.request)) {
                    let (ended, span) = (ended.take(), tracing::Span::current());
                    let thread = std::thread::Builder::new().spawn_scoped(scope, move || {
                        let imported = span.in_scope(|| import_for_run(site, dir, session));
                        // Dropping the sender signals the end.
                        drop(ended);
                        imported
                    });
                    // If no thread can be created, import after the command has ended.
                    import = Some((dir, thread.ok()));
                }
            };
            let mut ran = self.command(plan, command, meanwhile, &mut started);
            // From here on a recovery can finish the run if this process is killed during the import.
            let mut note_end = || {
                if let Ok(Ran { completion, upper, .. }) = &mut ran {
                    note_end(site, run, completion, upper, session);
                }
            };
            let imported = import.map(|(dir, thread)| match thread {
                Some(thread) => {
                    wait_for_import(site, &end, note_end);
                    thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
                }
                None => {
                    note_end();
                    import_for_run(site, dir, session)
                }
            });
            Launched { ran, reached, imported }
        })
    }

    /// Executes the command in a new sandbox. `meanwhile` is called while the sandbox is being set up, `started` once
    /// the command runs, for work beside it.
    fn command(
        &self,
        plan: &SandboxPlan,
        command: &CommandPlan,
        meanwhile: &mut dyn FnMut(),
        started: &mut dyn FnMut(),
    ) -> Result<Ran, LaunchError> {
        let sandbox = self.launcher.open(plan)?;
        meanwhile();
        let mut exec = sandbox.exec(command)?;
        started();
        let completion = exec.wait().with(sandbox.stop());
        let upper = sandbox.upper();
        Ok(Ran { completion, sandbox, upper })
    }
}
