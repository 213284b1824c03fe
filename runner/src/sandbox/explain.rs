//! The error for a step that failed inside: init and the payload report it as a number and an errno.

use std::path::Path;

use rustix::io::Errno;

use avfs_engine::{CommandPlan, Lookup, ViewStep, WorkspaceMount};

use super::error::{Interpreter, SandboxError};
use crate::remedy::Piece;
use crate::stage::{CARRIAGE_RETURN, Failed, NO_INTERPRETER, REPLACED, Stage};

/// The error message for a failure inside.
pub fn explain(failed: Failed, view: &[ViewStep], plan: &CommandPlan) -> SandboxError {
    let Failed { stage, errno } = failed;
    if let (Stage::View(number), REPLACED) = (stage, errno)
        && let Some(path) = judged(view, number)
    {
        return SandboxError::Replaced { path: path.to_owned() };
    }
    let command = || plan.argv.first().map(|word| word.to_string_lossy().into_owned()).unwrap_or_default();
    match stage {
        Stage::Exec if errno == Errno::NOENT || errno == Errno::NOTDIR => {
            let path = plan.environment.iter().find(|(name, _)| name == "PATH").map(|(_, path)| path.clone());
            let path = path.filter(|path| Some(path) != std::env::var_os("PATH").as_ref());
            SandboxError::NotFound { command: command(), path }
        }
        Stage::Exec if errno == NO_INTERPRETER => {
            SandboxError::NoInterpreter { command: command(), interpreter: Interpreter::Missing }
        }
        Stage::Exec if errno == CARRIAGE_RETURN => {
            SandboxError::NoInterpreter { command: command(), interpreter: Interpreter::CarriageReturn }
        }
        Stage::Exec => SandboxError::NotExecutable { command: command(), source: errno.into() },
        Stage::Cwd => SandboxError::NoCwd { cwd: plan.cwd.clone() },
        Stage::Start
        | Stage::Hostname
        | Stage::Private
        | Stage::Memory
        | Stage::Layers
        | Stage::Root
        | Stage::View(_)
        | Stage::Pivot
        | Stage::Loopback
        | Stage::Listener
        | Stage::Terminal
        | Stage::Limits
        | Stage::Fork
        | Stage::Session
        | Stage::Confine
        | Stage::Userns
        | Stage::Landlock
        | Stage::Seccomp => {
            let (piece, what) = what(stage, view);
            SandboxError::Setup { piece, what, source: errno.into() }
        }
    }
}

/// The path of a step that shows a file which the policy has checked.
fn judged(view: &[ViewStep], step: u16) -> Option<&Path> {
    match view.get(usize::from(step))? {
        ViewStep::Overlaid { source, .. } | ViewStep::Bind { source, lookup: Lookup::Same { .. }, .. } => {
            Some(source)
        }
        ViewStep::Bind { lookup: Lookup::FollowLinks | Lookup::NoLinks, .. }
        | ViewStep::Dir { .. }
        | ViewStep::File { .. }
        | ViewStep::Symlink { .. }
        | ViewStep::Tmpfs { .. }
        | ViewStep::Proc { .. }
        | ViewStep::Devices { .. }
        | ViewStep::Workspace(_)
        | ViewStep::Hide { .. }
        | ViewStep::Pin { .. }
        | ViewStep::MountPoint { .. }
        | ViewStep::Secrets { .. }
        | ViewStep::Seal { .. } => None,
    }
}

/// The feature of the sandbox that a stage sets up, and the error text.
fn what(stage: Stage, view: &[ViewStep]) -> (Piece, String) {
    let (piece, what) = match stage {
        Stage::Start => (Piece::Process, "cannot start the sandbox's first process"),
        Stage::Hostname => (Piece::Process, "cannot set the sandbox's host name"),
        Stage::Private => (Piece::Mounts, "cannot make the sandbox's mounts private"),
        Stage::Memory => (Piece::Memory, "cannot create a file system in memory for the command's writes"),
        Stage::Layers => (Piece::Layers, "cannot open the layers of the workspace"),
        Stage::Root => (Piece::Mounts, "cannot mount the sandbox's root"),
        Stage::View(number) => match view.get(usize::from(number)) {
            Some(step) => return what_of_step(step),
            None => (Piece::Mounts, "cannot set up the sandbox's root"),
        },
        Stage::Pivot => (Piece::Mounts, "cannot enter the sandbox's root"),
        Stage::Loopback => (Piece::Net, "cannot bring up the sandbox's loopback interface"),
        Stage::Listener => (Piece::Net, "cannot listen inside the sandbox for the command's connections"),
        Stage::Terminal => (Piece::Process, "cannot open a pseudo terminal"),
        Stage::Limits => (Piece::Proc, "cannot inspect the sandbox's processes"),
        Stage::Fork => (Piece::Process, "cannot create the command's process"),
        Stage::Session => (Piece::Process, "cannot create the command's session"),
        Stage::Confine => (Piece::Process, "cannot drop the command's privileges"),
        Stage::Userns => (Piece::Userns, "cannot forbid nested user namespaces"),
        Stage::Landlock => (Piece::Landlock, "cannot apply the Landlock rules"),
        Stage::Seccomp => (Piece::Seccomp, "cannot install the seccomp filter"),
        Stage::Cwd => (Piece::Process, "cannot enter the working directory"),
        Stage::Exec => (Piece::Process, "cannot execute the command"),
    };
    (piece, what.to_owned())
}

fn what_of_step(step: &ViewStep) -> (Piece, String) {
    let at = |what: &str, path: &std::path::Path| format!("cannot {what} {}", path.display());
    match step {
        ViewStep::Dir { path, .. } | ViewStep::MountPoint { path } => {
            (Piece::Mounts, at("create the directory", path))
        }
        ViewStep::File { path, .. } => (Piece::Mounts, at("write", path)),
        ViewStep::Symlink { path, .. } => (Piece::Mounts, at("create the symlink", path)),
        ViewStep::Bind { source, .. } => (Piece::Mounts, at("show inside the sandbox", source)),
        ViewStep::Overlaid { source, .. } => (Piece::Shown, at("show inside the sandbox", source)),
        ViewStep::Tmpfs { path, .. } => (Piece::Mounts, at("mount a private", path)),
        ViewStep::Proc { path } => (Piece::Proc, at("mount", path)),
        ViewStep::Devices { path } => (Piece::Mounts, at("set up", path)),
        ViewStep::Workspace(WorkspaceMount::Copy { path, .. }) => {
            (Piece::Mounts, at("show the workspace at", path))
        }
        ViewStep::Workspace(WorkspaceMount::Overlay { path, .. } | WorkspaceMount::ReadOnly { path, .. }) => {
            (Piece::Overlay, at("mount the workspace as an overlay at", path))
        }
        ViewStep::Hide { path } => (Piece::Mounts, at("hide", path)),
        ViewStep::Pin { path } => (Piece::Mounts, at("mount over itself", path)),
        ViewStep::Secrets { path } => (Piece::Mounts, at("write the secrets to", path)),
        ViewStep::Seal { path } => (Piece::Mounts, format!("cannot make {} read-only", path.display())),
    }
}
