//! Sandboxes that start nothing: a script writes the files of a command and returns its exit status.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::path::{Path, PathBuf};
use std::sync::Mutex;

use avfs_types::diagnose::Diagnose;

use crate::launcher::{
    CommandPlan, Completion, Exec, Exit, LaunchError, Refused, Sandbox, SandboxPlan, Sandboxes, Stopped,
    Upper, UpperPlace, ViewStep, WorkspaceMount,
};

/// The actions of one command, given the directory that receives its writes.
type Script = Box<dyn FnOnce(&Path) -> Result<Completion, LaunchError> + Send>;

/// Runs one script per sandbox, in order.
#[derive(Default)]
pub struct ScriptedSandboxes {
    scripts: RefCell<VecDeque<Script>>,
    /// How the workspace was mounted, for each sandbox.
    pub mounts: RefCell<Vec<WorkspaceMount>>,
}

impl ScriptedSandboxes {
    pub fn then(
        self,
        script: impl FnOnce(&Path) -> Result<Completion, LaunchError> + Send + 'static,
    ) -> Self {
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

    /// A sandbox that the host refuses.
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

fn mount(plan: &SandboxPlan) -> WorkspaceMount {
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

impl Sandboxes for ScriptedSandboxes {
    fn open(&self, plan: &SandboxPlan) -> Result<Box<dyn Sandbox>, LaunchError> {
        let mount = mount(plan);
        let upper = written_to(&mount);
        self.mounts.borrow_mut().push(mount);
        let script = self.scripts.borrow_mut().pop_front().expect("a script for each sandbox");
        Ok(Box::new(ScriptedSandbox { upper, script: Mutex::new(Some(script)) }))
    }
}

struct ScriptedSandbox {
    upper: PathBuf,
    script: Mutex<Option<Script>>,
}

impl Sandbox for ScriptedSandbox {
    fn exec(&self, _: &CommandPlan) -> Result<Box<dyn Exec>, LaunchError> {
        let script = self.script.lock().unwrap().take().expect("one command for each sandbox");
        Ok(Box::new(ScriptedExec(Some(script(&self.upper)?))))
    }

    fn processes(&self) -> Vec<i32> {
        Vec::new()
    }

    fn stop(&self) -> Stopped {
        Stopped::default()
    }

    fn upper(&self) -> Upper {
        Upper::Disk(self.upper.clone())
    }

    fn close(self: Box<Self>) {}
}

struct ScriptedExec(Option<Completion>);

impl Exec for ScriptedExec {
    fn wait(&mut self) -> Completion {
        self.0.take().expect("waited for once")
    }

    fn signal(&self, _: i32) -> std::io::Result<()> {
        Err(std::io::ErrorKind::Unsupported.into())
    }

    fn resize(&self, _: u16, _: u16) -> std::io::Result<()> {
        Err(std::io::ErrorKind::Unsupported.into())
    }
}
