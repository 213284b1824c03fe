//! The workspaces of a vault: forks that are created on first use, the base of a run, and forks that expire.

use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::time::Duration;

use avfs_request::{BackendChoice, BaseChoice, ExecutionRequest, ForkChoice, Retention, Writing};
use avfs_types::ids::{ContentId, ForkName, TreeId};
use avfs_types::reference::Reference;
use avfs_types::show_bytes_size;
use avfs_vault::backend::{Life, VersionRecord};
use avfs_vault::import::{Foreign, ImportOptions, Imported, OnTrouble};
use avfs_vault::layers::{Distance, HostBase, Made, STANDS_ON_HOST_MAX, Stack};
use avfs_vault::meter::Announcement;
use avfs_vault::page::{DirRef, Totals};
use avfs_vault::version::full_root_of;
use avfs_vault::{VaultError, transfer};

use crate::cache_care::CacheOwners;
use crate::error::ExecuteError;
use crate::first_import::{DISCARD, LIVE, TOUCHED, WarnAbove, first_look};
use crate::fork_dirs::ForkDirs;
use crate::mount_session::MountSession;
use crate::run::{Based, Before, Effective, Notes, Site, note_foreign_files, note_import, wants_version};
use crate::run_base::{Files, RunBase, lower_dir};
use crate::workspace_root::{Places, WorkspaceRootError};

/// Maximum forks listed in the note about expired forks.
const NAMED_MAX: usize = 5;

/// Writing a smaller tree to the cache takes less time than the scans of the runs on its fork.
const ENTRIES_ON_HOST_MIN: u64 = 1000;
const BYTES_ON_HOST_MIN: u64 = 32 << 20;
/// Writing this many bytes to the cache takes about as long as scanning an entry of the directory 16 times.
const BYTES_PER_ENTRY: u64 = 64 << 10;

/// The note of a run that starts with the first import of a large directory. On stderr it is printed earlier.
pub const IMPORT_LARGE: &str = "import.large";

/// The note of a run that starts with writing a large base to the cache. On stderr it is printed earlier.
pub const BASE_LARGE: &str = "base.large";

/// The text about a large base that is about to be written to the cache.
#[must_use]
pub fn base_announcement(above: WarnAbove) -> Announcement {
    Announcement(Box::new(move |entries, bytes| {
        above.is_exceeded(entries, bytes).then(|| {
            let size = show_bytes_size(bytes);
            vec![
                format!("the base has {entries} files and directories, {size}"),
                "  all of it is written to the cache first; ^C stops that".to_owned(),
            ]
        })
    }))
}

/// The version that a run starts from.
#[derive(Clone, Debug)]
pub(crate) struct BaseVersion {
    pub record: VersionRecord,
    /// The parent of a fork created for the run.
    pub parent: ForkName,
    /// The directory as found by its import before this run.
    pub found: Option<HostBase>,
}

impl BaseVersion {
    fn of(record: VersionRecord) -> Self {
        Self { record, parent: ForkName::main(), found: None }
    }
}

/// Provides workspaces for runs.
#[derive(Clone, Copy)]
pub(crate) struct WorkspaceService<'a> {
    pub site: &'a Site<'a>,
}

impl WorkspaceService<'_> {
    /// The base of the command. `known` is its version, if that was found before.
    pub fn run_base(
        &self,
        effective: &Effective<'_>,
        session: &MountSession,
        mut files: Files,
        notes: &mut Notes,
    ) -> Result<Based, ExecuteError> {
        let site = self.site;
        let (request, places) = (&effective.run.request, &effective.admitted.places);
        if let (Some(dir), Some(home)) = (&places.bound, &site.home)
            && home.starts_with(dir)
        {
            notes.add(
                "workspace.home",
                "the workspace is or contains your home directory: the command can read all of it",
            );
        }
        if site.stat_cache.as_deref().is_some_and(|cache| Foreign::last_seen(cache).is_any()) {
            files = Files::Foreign;
        }
        let lower = lower_dir(request, places, &site.cache_dir, files)?;
        if let Some(base) = RunBase::of_dir(request, lower.clone()) {
            // A run that keeps its changes notes it with the import.
            if matches!(base, RunBase::Live(_))
                && files == Files::Foreign
                && request.retention == Retention::Discard
            {
                note_foreign_files(request, notes);
            }
            return Ok(Based { base, parent: ForkName::main() });
        }
        let base = match &effective.lookup.base {
            Some(known) => known.clone(),
            None => self.base(places, request, notes)?,
        };
        let root = full_root_of(&*site.vault.read()?, &base.record)?;
        let version = Before { version: base.record.id, root };
        if request.backend == BackendChoice::Copy {
            return Ok(Based { base: RunBase::Copied { version }, parent: base.parent });
        }
        let stack = self.stack(request, lower, &base, &root, session, notes)?;
        if matches!(stack.made, Made::Materialized | Made::OverHost) {
            CacheOwners::new(&site.cache_dir).register(&site.vault_id, site.vault.path());
        }
        Ok(Based { base: RunBase::Stacked { stack, version }, parent: base.parent })
    }

    /// The layers of a version. `lower` is the directory, which can be the lowest.
    fn stack(
        &self,
        request: &ExecutionRequest,
        lower: Option<PathBuf>,
        base: &BaseVersion,
        root: &DirRef,
        session: &MountSession,
        notes: &mut Notes,
    ) -> Result<Stack, ExecuteError> {
        let site = self.site;
        site.meter.restart();
        let is_first = site.meter.announced().is_none();
        if is_first {
            site.meter.announce_if_expected(base_announcement(site.warn_above));
        }
        let over_host = || match &lower {
            Some(dir) => self.stack_over_host(dir, request, base, root, session),
            None => Ok(None),
        };
        let stack = site.meter.waited_for(|| match request.base {
            BaseChoice::Live => over_host(),
            BaseChoice::Auto | BaseChoice::Cached | BaseChoice::Touched => {
                site.vault.stack_unless(root, &site.layers, site.meter, over_host).map(Some)
            }
        })?;
        // Later operations have nothing to announce.
        site.meter.restart();
        if let (true, Some(lines)) = (is_first, site.meter.announced()) {
            notes.add(BASE_LARGE, lines.iter().map(|line| line.trim()).collect::<Vec<_>>().join("; "));
        }
        stack.ok_or_else(|| {
            let why =
                "its version is not near to the fork's, or it has files that cannot be kept or changed in place";
            let (dir, why) = (lower.unwrap_or_default(), why.to_owned());
            WorkspaceRootError::NotLive { dir, why }.into()
        })
    }

    /// The directory itself as the lower layer of a run on a fork, if its version is near to the version of the fork.
    fn stack_over_host(
        &self,
        dir: &Path,
        request: &ExecutionRequest,
        base: &BaseVersion,
        root: &DirRef,
        session: &MountSession,
    ) -> transfer::Result<Option<Stack>> {
        let site = self.site;
        let wanted = request.base == BaseChoice::Live;
        let Totals { entries, bytes, .. } = root.totals;
        if !wanted && entries < ENTRIES_ON_HOST_MIN && bytes < BYTES_ON_HOST_MIN {
            return Ok(None);
        }
        let found = match &base.found {
            Some(found) => Some(found.clone()),
            None => {
                let (now, _, scanned) = site.vault.survey(dir, &ForkName::main(), &import_options(site))?;
                HostBase::of(dir, now.tree, &scanned)
            }
        };
        let Some(found) = found else { return Ok(None) };
        let uses_max = STANDS_ON_HOST_MAX.saturating_mul(1 + bytes / entries.max(1) / BYTES_PER_ENTRY);
        if site.layers.count_host_use(&found)? > uses_max && !wanted {
            return Ok(None);
        }
        let distance = if wanted { Distance::Any } else { Distance::Near };
        site.vault.stack_over_host(root, &found, distance, &site.layers, &session.veil_dir(), site.meter)
    }

    /// Announces the cost of the first import of the directory, if the run imports it and it is large. Does not wait
    /// for an answer. The survey also detects files that cannot be mapped or written; later that is known from the
    /// last import.
    pub fn announce_first_import(
        &self,
        places: &Places,
        request: &ExecutionRequest,
        files: Files,
    ) -> Result<Files, ExecuteError> {
        let site = self.site;
        let (Some(dir), ForkChoice::Ephemeral { from: None } | ForkChoice::Persistent { from: None, .. }) =
            (&places.bound, &request.fork)
        else {
            return Ok(files);
        };
        // The common case: the stat cache exists, since the first import creates it.
        if site.stat_cache.as_ref().is_none_or(|cache| cache.exists())
            || self.head(&ForkName::main())?.entries > 0
        {
            return Ok(files);
        }
        let imports = |request: &ExecutionRequest, files| {
            let lower = lower_dir(request, places, &site.cache_dir, files)?;
            Ok::<bool, WorkspaceRootError>(match RunBase::of_dir(request, lower) {
                Some(RunBase::Touched(_)) => false,
                Some(RunBase::Live(_)) => wants_version(request),
                Some(RunBase::Stacked { .. } | RunBase::Copied { .. }) | None => true,
            })
        };
        // A command that cannot write needs no files that it can write.
        let needs_writable = request.writing == Writing::Allowed && request.base != BaseChoice::Touched;
        if !needs_writable && !imports(request, files)? {
            return Ok(files);
        }
        let seen = site.meter.waited_for(|| first_look(dir, &site.cwd, &site.exclude, site.warn_above));
        let files = if seen.is_foreign { Files::Foreign } else { files };
        if imports(request, files)? {
            let discarded = ExecutionRequest { retention: Retention::Discard, ..request.clone() };
            let mut ways = vec![TOUCHED, LIVE];
            if !imports(&discarded, files)? {
                ways.insert(1, DISCARD);
            }
            if let Some(announcement) = seen.announcement(ways) {
                site.meter.announce_when_due(announcement);
                site.meter.announce_if_due();
            }
        }
        Ok(files)
    }

    /// The base version of a run without a live base. Imports the directory if necessary.
    #[tracing::instrument(level = "debug", name = "base_version", skip_all)]
    pub fn base(
        &self,
        places: &Places,
        request: &ExecutionRequest,
        notes: &mut Notes,
    ) -> transfer::Result<BaseVersion> {
        match &request.fork {
            ForkChoice::Ephemeral { from: Some(from) } => {
                let (record, parent) = avfs_vault::version::resolve(&*self.site.vault.read()?, from)?;
                Ok(BaseVersion { parent: parent.unwrap_or_else(ForkName::main), ..BaseVersion::of(record) })
            }
            ForkChoice::Ephemeral { from: None } => {
                if let Some(dir) = &places.bound {
                    let imported = self.site.meter.waited_for(|| import_dir(self.site, dir))?;
                    note_import(&imported.scanned, notes);
                }
                Ok(BaseVersion::of(self.head(&ForkName::main())?))
            }
            ForkChoice::Persistent { name, from } => self.task_fork(name, from.as_ref(), places, notes),
        }
    }

    /// The digests of the files of the base, with and without times; nothing is imported or created.
    pub fn base_now(
        &self,
        request: &ExecutionRequest,
        places: &Places,
    ) -> transfer::Result<(TreeId, ContentId)> {
        let of = |version: VersionRecord| (version.root, version.content);
        let from = match &request.fork {
            ForkChoice::Ephemeral { from } => from.as_ref(),
            ForkChoice::Persistent { name, from } => match self.site.vault.fork(name) {
                Ok(_) => return Ok(of(self.head(name)?)),
                Err(VaultError::NoFork { .. }) => from.as_ref(),
                Err(error) => return Err(error.into()),
            },
        };
        match (from, &places.bound) {
            (Some(from), _) => Ok(of(avfs_vault::version::resolve(&*self.site.vault.read()?, from)?.0)),
            (None, Some(dir)) => {
                let (root, _, _) =
                    self.site.vault.survey(dir, &ForkName::main(), &import_options(self.site))?;
                Ok((root.tree, root.content))
            }
            (None, None) => Ok(of(self.head(&ForkName::main())?)),
        }
    }

    fn head(&self, fork: &ForkName) -> avfs_vault::Result<VersionRecord> {
        let reader = self.site.vault.read()?;
        let reference = Reference::parse(fork.as_str())?;
        Ok(avfs_vault::version::resolve(&*reader, &reference)?.0)
    }

    /// The head of a fork, which is created on first use.
    fn task_fork(
        &self,
        name: &ForkName,
        from: Option<&Reference>,
        places: &Places,
        notes: &mut Notes,
    ) -> transfer::Result<BaseVersion> {
        let (site, vault) = (self.site, self.site.vault);
        match vault.fork(name) {
            Ok(_) => {
                if let Some(from) = from {
                    avfs_vault::version::resolve(&*vault.read()?, from)?;
                    notes.add("fork.exists", format!("fork {name} already exists, so --from is ignored"));
                }
                return Ok(BaseVersion::of(self.head(name)?));
            }
            Err(VaultError::NoFork { .. }) => {}
            Err(error) => return Err(error.into()),
        }
        let main = Reference::parse(ForkName::main().as_str()).map_err(VaultError::from)?;
        let mut found = None;
        let of_dir = from.is_none() && places.bound.is_some();
        let from = match (from, &places.bound) {
            (Some(from), _) => from,
            // Import the directory first: otherwise the first run would start without files.
            (None, Some(dir)) => {
                let imported = site.meter.waited_for(|| import_dir(site, dir))?;
                note_import(&imported.scanned, notes);
                found = HostBase::of(dir, imported.committed.version.root, &imported.scanned);
                &main
            }
            (None, None) => &main,
        };
        let made = match vault.create_fork_for_run(name, from, Life::Persistent) {
            // Another process created it first; that fork is equivalent.
            Err(VaultError::ForkExists { .. }) => false,
            made => made.map(|_| true)?,
        };
        let head = self.head(name)?;
        if made {
            ForkDirs::new(&site.cache_dir, &site.vault_id).forget_notes(name);
            // Makes a mistyped name visible.
            let version = || format!("version {}", head.id.short());
            let begins = if of_dir { "the current state of the directory".to_owned() } else { version() };
            notes.add("fork.made", format!("created fork {name} from {begins}"));
        }
        Ok(BaseVersion { found, ..BaseVersion::of(head) })
    }

    /// Deletes expired forks, except the fork of this run, which is in use. An error does not prevent the run.
    pub fn expire_forks(&self, in_use: &ForkName, notes: &mut Notes) {
        let text = match self.site.vault.expire_forks(std::slice::from_ref(in_use)) {
            Ok(gone) if gone.is_empty() => return,
            Ok(gone) => {
                let names: Vec<&str> = gone.iter().take(NAMED_MAX).map(|name| name.as_str()).collect();
                let more = gone.len() - names.len();
                let more = if more > 0 { format!(" and {more} more") } else { String::new() };
                format!("deleted expired forks: {}{more}", names.join(", "))
            }
            Err(error) => format!("cannot delete expired forks: {error}"),
        };
        notes.add("fork.expired", text);
    }
}

/// Imports the current state of the bound directory to the main fork.
pub(crate) fn import_dir(site: &Site<'_>, dir: &Path) -> transfer::Result<Imported> {
    if site.stat_cache.as_ref().is_some_and(|cache| !cache.exists()) {
        CacheOwners::new(&site.cache_dir).register(&site.vault_id, site.vault.path());
    }
    site.vault.import_for_run(dir, &ForkName::main(), "import before a run", &import_options(site))
}

/// The options for importing the bound directory.
pub(crate) fn import_options<'a>(site: &'a Site<'_>) -> ImportOptions<'a> {
    ImportOptions {
        on_trouble: OnTrouble::KeepGoing,
        stat_cache: site.stat_cache.as_deref(),
        exclude: &site.exclude,
        meter: site.meter,
    }
}

/// Interval between two checks of an import that is waited for.
const LOOK_EVERY: Duration = Duration::from_millis(50);

/// Waits for the import to finish after the command has ended; calls `begins` first if that takes long. A signal stops
/// the import: then the changes of the command are kept for a recovery.
pub(crate) fn wait_for_import(site: &Site<'_>, end: &Receiver<()>, begins: impl FnOnce()) {
    let has_ended = |patience| !matches!(end.recv_timeout(patience), Err(RecvTimeoutError::Timeout));
    // Usually the import is finished by now or very soon, so no progress is shown.
    if has_ended(LOOK_EVERY) {
        return;
    }
    begins();
    site.meter.waited_for(|| {
        avfs_types::pause::point("waits-for-import");
        while !has_ended(LOOK_EVERY) {
            site.meter.look();
        }
    });
}

/// Imports the directory that the run works on, and records the version.
#[tracing::instrument(level = "debug", skip_all)]
pub(crate) fn import_for_run(
    site: &Site<'_>,
    dir: &Path,
    session: &MountSession,
) -> transfer::Result<Imported> {
    let imported = import_dir(site, dir)?;
    if let Err(error) = session.note_base(&imported.committed.version.id) {
        tracing::warn!(%error, "cannot record the base of the run");
    }
    Ok(imported)
}
