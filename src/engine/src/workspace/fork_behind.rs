//! Detects that the bound directory changed since a fork began or was last synced.
//!
//! The vault knows some changes: those of newer imports. Others are found by a look at the directory beside each run,
//! which compares a fixed number of names, or more while the command runs, and continues at the next run. Nothing is
//! imported.

use std::io::ErrorKind;
use std::os::fd::{AsFd, BorrowedFd};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{Scope, ScopedJoinHandle};

use avfs_changes::{ChangeSummary, EarlierApply};
use avfs_hostfs::beneath;
use avfs_request::ForkChoice;
use avfs_types::ids::ForkName;
use avfs_types::path::TreePath;
use avfs_vault::import::{LOOK_STEPS_MAX, Looked, looks_like};
use avfs_vault::page::{DirRef, Node};
use avfs_vault::sync::{LastSync, last_sync};
use avfs_vault::version::root_of;
use avfs_vault::{Result, require_version, transfer, tree};

use rustix::fs::OFlags;

use crate::fork_dirs::ForkDirs;
use crate::run::Site;
use crate::run_base::RunBase;
use crate::workspace_service::import_options;

/// A directory with at most this many names is compared completely beside each run.
const WHOLE_NAMES_MAX: usize = 500;
/// Names of a larger directory that are compared at least: that takes no longer than the start of a command, even if
/// neither they nor their pages in the vault are cached.
const PART_NAMES: usize = 25;
/// Maximum versions to search for the last sync of the fork; beyond that no change is detected.
const SYNC_VERSIONS_MAX: usize = 64;
/// Maximum paths changed by the run that are compared in addition.
const PATHS_COMPARED_MAX: usize = 100;

/// A look at the directory beside a run on a fork.
pub(crate) struct LookBeside<'scope> {
    thread: ScopedJoinHandle<'scope, Option<ForkBehind>>,
    command_ended: Arc<AtomicBool>,
}

impl<'scope> LookBeside<'scope> {
    /// `None` for a run without a fork or without a directory, or if no thread can be created.
    pub fn start<'env>(
        scope: &'scope Scope<'scope, 'env>,
        site: &'env Site<'_>,
        fork: &ForkChoice,
        run_base: &RunBase,
    ) -> Option<Self> {
        let ForkChoice::Persistent { name, .. } = fork else { return None };
        let (name, head, dir) = (name.clone(), run_base.version()?.root, site.bound.clone()?);
        let command_ended = Arc::<AtomicBool>::default();
        let ended = Arc::clone(&command_ended);
        let span = tracing::debug_span!("look_beside");
        let look = move || span.in_scope(|| ForkBehind::look(site, name, head, dir, &ended));
        let thread = std::thread::Builder::new().spawn_scoped(scope, look).ok()?;
        Some(Self { thread, command_ended })
    }

    /// From now on someone waits for the look.
    pub fn command_ended(&self) {
        self.command_ended.store(true, Ordering::Relaxed);
    }

    pub fn wait(self) -> Option<ForkBehind> {
        self.thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    }
}

/// What a run on a fork found out about the directory.
pub(crate) struct ForkBehind {
    fork: ForkName,
    dir: PathBuf,
    /// The states that the directory can have without a change by others: the start of the fork or its last sync, its
    /// head before the run, and states that were applied from it.
    known: Vec<DirRef>,
    is_behind: bool,
}

impl ForkBehind {
    /// Compares the newest import, then a part of the directory. `None` if the start of the fork is not known.
    fn look(
        site: &Site<'_>,
        fork: ForkName,
        head: DirRef,
        dir: PathBuf,
        command_ended: &AtomicBool,
    ) -> Option<Self> {
        // An error will occur again where it matters: when the directory is imported.
        let skip = |error: transfer::Error| tracing::debug!(%error, "cannot compare the directory");
        let (known, is_behind) = known_states(site, &fork, head).unwrap_or_else(|error| {
            skip(error.into());
            None
        })?;
        let mut found = Self { fork, dir, known, is_behind };
        if !found.is_behind {
            found.is_behind = found.look_at(site, command_ended).unwrap_or_else(|error| {
                skip(error);
                false
            });
        }
        Some(found)
    }

    /// Compares a part of the directory, starting where the last run ended.
    fn look_at(&self, site: &Site<'_>, command_ended: &AtomicBool) -> transfer::Result<bool> {
        let (name, dir) = (&self.fork, &self.dir);
        let kept = ForkDirs::new(&site.cache_dir, &site.vault_id);
        let from = kept.looked(name);
        let options = import_options(site);
        // The root counts too.
        let is_small = self.known.iter().all(|root| root.totals.entries < WHOLE_NAMES_MAX as u64);
        let names_min = if is_small { WHOLE_NAMES_MAX } else { PART_NAMES };
        let steps_min = LOOK_STEPS_MAX * names_min;
        let is_enough = |steps| steps >= steps_min && command_ended.load(Ordering::Relaxed);
        let looked = site.vault.look_for_changes(dir, &self.known, from.as_ref(), &is_enough, &options)?;
        let (is_changed, next) = match looked {
            Looked::Unchanged => (false, None),
            Looked::Unfinished(place) => (false, Some(place)),
            // The next look finds it again.
            Looked::Changed(place) => (true, Some(place).filter(|_| !is_small)),
        };
        if next != from
            && let Err(error) = kept.keep_looked(name, next.as_ref())
        {
            tracing::debug!(%error, "cannot keep the place of the look at the directory");
        }
        Ok(is_changed)
    }

    /// Whether a change is known, or a path that the run changed differs from all known states.
    pub fn is_behind(&self, site: &Site<'_>, changes: &ChangeSummary) -> Result<bool> {
        if self.is_behind {
            return Ok(true);
        }
        let Ok(host) = beneath::open_root(&self.dir) else { return Ok(false) };
        let reader = site.vault.read()?;
        for change in changes.changes.first(PATHS_COMPARED_MAX) {
            let mut known = vec![change.after.as_ref().map(|side| side.node.clone())];
            for root in &self.known {
                known.push(tree::lookup(&&*reader, root, &change.path)?);
            }
            if !is_one_of(host.as_fd(), &change.path, &known) {
                return Ok(true);
            }
        }
        Ok(false)
    }
}

/// The states that the directory can have without a change by others, and whether its newest import has another one.
/// `None` if the start of the fork is not known.
fn known_states(site: &Site<'_>, fork: &ForkName, head: DirRef) -> Result<Option<(Vec<DirRef>, bool)>> {
    let reader = site.vault.read()?;
    let (Some(fork), Some(main)) = (reader.fork(fork)?, reader.fork(&ForkName::main())?) else {
        return Ok(None);
    };
    let base = match fork.base == main.head {
        true => fork.base,
        false => match last_sync(&*reader, &fork, SYNC_VERSIONS_MAX)? {
            LastSync::Found { merged, .. } => merged,
            LastSync::Never => fork.base,
            LastSync::Unknown => return Ok(None),
        },
    };
    let (base, main) = (require_version(&*reader, &base)?, require_version(&*reader, &main.head)?);
    let mut known = vec![head];
    known.extend(EarlierApply::all(&*reader, &fork.name)?.into_iter().map(|of| of.after));
    let is_behind = base.content != main.content && known.iter().all(|root| root.content != main.content);
    // Only the times of the newest import can differ from the start of the fork, which may be pruned.
    for version in [&base, &main].into_iter().filter(|version| version.pruned_at.is_none()) {
        known.push(root_of(version)?);
    }
    Ok(Some((known, is_behind)))
}

/// Whether a path on the host looks like one of these entries.
fn is_one_of(dir: BorrowedFd<'_>, path: &TreePath, known: &[Option<Node>]) -> bool {
    let flags = OFlags::PATH | OFlags::NOFOLLOW;
    let file = beneath::open(dir, path.as_bytes(), flags).and_then(|file| beneath::fstat(file.as_fd()));
    match file {
        Ok(stat) => known.iter().flatten().any(|node| looks_like(&stat, node)),
        Err(error) if error.kind() == ErrorKind::NotFound => known.contains(&None),
        Err(_) => true,
    }
}
