//! The threads that answer renames.
//!
//! One resolves the paths of each call, and answers those that need no helper. Another makes directories movable, in
//! the order of the calls. Only one helper runs at a time: with a directory and one inside it, two would move each
//! other's entries. Both resolve paths, which can take for ever, so nothing waits for them; only a running helper is
//! waited for.

use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

use rustix::fs::{Mode, OFlags, open};

use avfs_types::pause;
use avfs_types::renamed::RenamedNames;

use super::Workspace;
use super::helper::WORD;
use super::names::{Called, Rename};
use super::place::Place;
use crate::sys::{Notification, continue_notification, is_waiting};

/// The maximum number of calls that wait. Usually the sandbox has fewer threads, but a killed caller stays in the
/// queue.
const CALLS_MAX: usize = 65_536;

/// A call that waits for its answer, and the listener that has received it. The last copy of a listener is closed when
/// the calls that it has received are answered.
struct Waiting {
    call: Notification,
    listener: Arc<OwnedFd>,
}

/// The threads, and their queue.
#[derive(Debug)]
pub struct Threads {
    calls: Option<Sender<Waiting>>,
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    workspace: Workspace,
    helper: PathBuf,
    /// The number of calls that were not answered yet.
    waiting: AtomicUsize,
    failed: AtomicU64,
    names: Mutex<RenamedNames>,
    helping: Mutex<Helping>,
    helped: Condvar,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Helping {
    No,
    Now,
    /// The run has ended: no helper may be started.
    NoMore,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Threads {
    pub fn start(workspace: Workspace, helper: PathBuf) -> Option<Self> {
        let shared = Arc::new(Shared {
            workspace,
            helper,
            waiting: AtomicUsize::new(0),
            failed: AtomicU64::new(0),
            names: Mutex::default(),
            helping: Mutex::new(Helping::No),
            helped: Condvar::new(),
        });
        let (calls, waiting) = channel();
        let resolver = Answering { shared: Arc::clone(&shared) };
        std::thread::Builder::new().spawn(move || resolver.resolve_all(&waiting)).ok()?;
        Some(Self { calls: Some(calls), shared })
    }

    /// False if the call cannot be taken.
    pub fn take(&self, call: Notification, listener: &Arc<OwnedFd>) -> bool {
        let Some(calls) = &self.calls else { return false };
        self.shared.waiting.load(Ordering::Relaxed) < CALLS_MAX && {
            self.shared.waiting.fetch_add(1, Ordering::Relaxed);
            calls.send(Waiting { call, listener: Arc::clone(listener) }).is_ok()
        }
    }

    /// Waits for a running helper, and prevents others. Returns the number of failures, and the names.
    pub fn finish(mut self) -> (u64, RenamedNames) {
        self.calls = None;
        let mut helping = lock(&self.shared.helping);
        while *helping == Helping::Now {
            pause::point("rename-awaited");
            helping = self.shared.helped.wait(helping).unwrap_or_else(PoisonError::into_inner);
        }
        *helping = Helping::NoMore;
        drop(helping);
        let names = std::mem::take(&mut *lock(&self.shared.names));
        (self.shared.failed.load(Ordering::Relaxed), names)
    }
}

/// The state of one of the threads.
struct Answering {
    shared: Arc<Shared>,
}

impl Answering {
    fn resolve_all(self, calls: &Receiver<Waiting>) {
        let mut moves: Option<Sender<Waiting>> = None;
        for waiting in calls {
            pause::point("rename");
            match self.called(&waiting) {
                Called::Within(rename) if self.needs_helper(&rename) => {
                    // Resolved again when it is its turn: until then a rename holds no descriptors.
                    drop(rename);
                    if moves.is_none() {
                        moves = self.start_mover();
                    }
                    let unsent = match &moves {
                        Some(moves) => moves.send(waiting).err().map(|error| error.0),
                        None => Some(waiting),
                    };
                    if let Some(waiting) = unsent {
                        self.fail(&waiting);
                    }
                }
                Called::Within(rename) => {
                    self.note(&rename);
                    self.answer(&waiting);
                }
                Called::Elsewhere => self.answer(&waiting),
                Called::Unknown => self.fail(&waiting),
            }
        }
    }

    fn called(&self, waiting: &Waiting) -> Called {
        Called::of(&waiting.call, waiting.listener.as_fd(), &self.shared.workspace)
    }

    fn start_mover(&self) -> Option<Sender<Waiting>> {
        let (moves, calls) = channel();
        let mover = Self { shared: Arc::clone(&self.shared) };
        std::thread::Builder::new().spawn(move || mover.move_all(&calls)).ok()?;
        Some(moves)
    }

    fn move_all(self, calls: &Receiver<Waiting>) {
        for waiting in calls {
            match self.called(&waiting) {
                Called::Within(rename) => {
                    self.help(&waiting, &rename);
                    self.answer(&waiting);
                }
                Called::Elsewhere => self.answer(&waiting),
                Called::Unknown => self.fail(&waiting),
            }
        }
    }

    /// Lets the kernel execute the call. A caller that was killed needs no answer.
    fn answer(&self, waiting: &Waiting) {
        self.shared.waiting.fetch_sub(1, Ordering::Relaxed);
        let _ = continue_notification(waiting.listener.as_fd(), waiting.call.id);
    }

    fn fail(&self, waiting: &Waiting) {
        self.shared.failed.fetch_add(1, Ordering::Relaxed);
        self.answer(waiting);
    }

    fn needs_helper(&self, rename: &Rename) -> bool {
        let workspace = &self.shared.workspace;
        rename.looks().is_some_and(|looks| !rename.unmovable(&looks, workspace).is_empty())
    }

    fn note(&self, rename: &Rename) {
        if let Some(looks) = rename.looks() {
            rename.note(&looks, &mut lock(&self.shared.names), &self.shared.workspace);
        }
    }

    /// Makes the directories of a rename movable, and notes it. The end of the run waits for this.
    fn help(&self, Waiting { call, listener }: &Waiting, rename: &Rename) {
        let workspace = &self.shared.workspace;
        let Some(looks) = rename.looks() else { return };
        let dirs = rename.unmovable(&looks, workspace);
        let namespace =
            |kind| open(format!("/proc/{}/ns/{kind}", call.thread), OFlags::CLOEXEC, Mode::empty());
        let namespaces = namespace("user").and_then(|user| Ok((user, namespace("mnt")?)));
        // The caller may be dead, and its id may be that of another thread, in other namespaces.
        if !is_waiting(listener.as_fd(), call.id) || !self.begin() {
            return;
        }
        pause::point("rename-helper");
        let mut dirs = dirs.into_iter();
        let is_movable =
            namespaces.is_ok_and(|inside| dirs.all(|dir| make_movable(dir, &inside, &self.shared.helper)));
        self.shared.failed.fetch_add(u64::from(!is_movable), Ordering::Relaxed);
        {
            let mut names = lock(&self.shared.names);
            rename.note_copies(&mut names, workspace);
        }
        if is_movable {
            // Only now: the rename is executed after those that were noted in the meantime.
            self.note(rename);
        }
        self.end();
    }

    /// False if the run has ended.
    fn begin(&self) -> bool {
        let mut helping = lock(&self.shared.helping);
        if *helping == Helping::No {
            *helping = Helping::Now;
        }
        *helping == Helping::Now
    }

    fn end(&self) {
        *lock(&self.shared.helping) = Helping::No;
        self.shared.helped.notify_all();
    }
}

/// True if the directory is in the upper afterwards.
fn make_movable(dir: &Place, (user, mount): &(OwnedFd, OwnedFd), helper: &Path) -> bool {
    let [user, mount, parent] = [user, mount, &dir.parent].map(|fd| fd.try_clone().map(Stdio::from));
    let status = user.and_then(|user| {
        Command::new(helper)
            .arg(WORD)
            .arg(&dir.name)
            .env_clear()
            .current_dir("/")
            .stdin(user)
            .stdout(mount?)
            .stderr(parent?)
            .status()
    });
    match status {
        Ok(status) => status.success(),
        Err(error) => {
            tracing::warn!(%error, "cannot start a helper to move a directory");
            false
        }
    }
}
