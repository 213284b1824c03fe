//! A launcher that starts nothing: a script writes the files of a command and returns its exit status.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::path::{Path, PathBuf};

use avfs_types::diagnose::Diagnose;

use crate::launcher::{
    Completion, Exit, LaunchError, LaunchPlan, Launcher, Refused, UpperPlace, ViewStep, WorkspaceMount,
};

/// The actions of one launch, given the directory that receives the command's writes.
type Script = Box<dyn FnOnce(&Path) -> Result<Completion, LaunchError>>;

/// Runs one script per launch, in order.
#[derive(Default)]
pub struct ScriptedLauncher {
    scripts: RefCell<VecDeque<Script>>,
    /// How the workspace was mounted, for each launch.
    pub mounts: RefCell<Vec<WorkspaceMount>>,
}

impl ScriptedLauncher {
    pub fn then(self, script: impl FnOnce(&Path) -> Result<Completion, LaunchError> + 'static) -> Self {
        self.scripts.borrow_mut().push_back(Box::new(script));
        self
    }

    /// A command that writes files and exits with 0.
    pub fn writing(self, files: &'static [(&'static str, &'static str)]) -> Self {
        self.then(move |upper| {
            files.iter().for_each(|(name, text)| std::fs::write(upper.join(name), text).unwrap());
            Ok(exited(0))
        })
    }

    /// A launch that the host refuses.
    pub fn refusing(self, refused: Refused) -> Self {
        self.then(move |_| {
            Err(LaunchError { refused, exit_code: 121, remedy: None, error: Box::new(NoSandbox) })
        })
    }
}

#[derive(Debug, thiserror::Error)]
#[error("the host refuses a feature of the sandbox")]
struct NoSandbox;

impl Diagnose for NoSandbox {
    fn code(&self) -> &'static str {
        "sandbox.test"
    }
}

/// A command that ended with this exit status and did nothing else.
pub fn exited(code: u8) -> Completion {
    Completion::of(Exit::Code(code))
}

fn mount(plan: &LaunchPlan) -> WorkspaceMount {
    let mount =
        |step: &ViewStep| if let ViewStep::Workspace(mount) = step { Some(mount.clone()) } else { None };
    plan.view.iter().find_map(mount).unwrap()
}

/// The directory that receives writes to the workspace.
fn written_to(mount: &WorkspaceMount) -> PathBuf {
    match mount {
        WorkspaceMount::Overlay { upper: UpperPlace::Disk { dir }, .. } => dir.join("upper"),
        WorkspaceMount::Copy { source, .. } => source.clone(),
        WorkspaceMount::Overlay { upper: UpperPlace::Memory { .. }, .. } => panic!("scripts write to disk"),
        WorkspaceMount::ReadOnly { .. } => panic!("nothing can be written"),
    }
}

impl Launcher for ScriptedLauncher {
    fn launch(
        &self,
        plan: &LaunchPlan,
        meanwhile: &mut dyn FnMut(),
        started: &mut dyn FnMut(),
    ) -> Result<Completion, LaunchError> {
        let mount = mount(plan);
        let upper = written_to(&mount);
        self.mounts.borrow_mut().push(mount);
        meanwhile();
        let script = self.scripts.borrow_mut().pop_front().expect("a script for each launch");
        let completion = script(&upper)?;
        started();
        Ok(completion)
    }

    fn wait_until_gone(&self) {}

    fn take_signals(&self) {}

    fn asked_to_end(&self) -> Option<i32> {
        None
    }
}
