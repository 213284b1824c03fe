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
use crate::conclude::note_foreign_files;
use crate::first_import::{DISCARD, LIVE, TOUCHED, WarnAbove, first_look};
use crate::fork_dirs::ForkDirs;
use crate::mount_session::MountSession;
use crate::proxy::{Site, wants_version};
use crate::run::Run;
use crate::workspace_root::{Beneath, Files, Places, WorkspaceRootError};

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

/// The base of a run.
pub(crate) enum RunBase {
    /// The directory itself; its version is created while the command runs.
    Live(PathBuf),
    /// The directory itself; the paths that the command touched are imported after the command has ended.
    Touched(PathBuf),
    Stacked {
        stack: Stack,
        version: VersionRecord,
        root: DirRef,
    },
    /// A copy in the scratch, which the command changes in place.
    Copied {
        version: VersionRecord,
        root: DirRef,
    },
}

/// Provides workspaces for runs.
#[derive(Clone, Copy)]
pub struct WorkspaceService<'a> {
    pub site: &'a Site<'a>,
}

impl WorkspaceService<'_> {
    /// The base of the command.
    pub(crate) fn run_base<E: From<WorkspaceRootError> + From<VaultError> + From<transfer::Error>>(
        &self,
        places: &Places,
        run: &mut Run,
        session: &MountSession,
    ) -> Result<RunBase, E> {
        let site = self.site;
        let request = run.request.clone();
        let request = &request;
        if let (Some(dir), Some(home)) = (&places.bound, &site.home)
            && home.starts_with(dir)
        {
            let text = "the workspace is or contains your home directory: the command can read all of it";
            run.note("workspace.home", text.to_owned());
        }
        if site.stat_cache.as_deref().is_some_and(|cache| Foreign::last_seen(cache).is_any()) {
            run.files = Files::Foreign;
        }
        let under_fork = match Beneath::choose(request, places, &site.cache_dir, run.files)? {
            Beneath::Live(dir) => {
                // A run that keeps its changes notes it with the import.
                if run.files == Files::Foreign && request.retention == Retention::Discard {
                    note_foreign_files(run);
                }
                return Ok(RunBase::Live(dir));
            }
            Beneath::Touched(dir) => return Ok(RunBase::Touched(dir)),
            Beneath::UnderFork(dir) => Some(dir),
            Beneath::Cached => None,
        };
        let version = match run.base.clone() {
            Some(version) => version,
            None => self.base(places, run)?,
        };
        let root = {
            let reader = site.vault.read()?;
            full_root_of(&*reader, &version)?
        };
        if request.backend == BackendChoice::Copy {
            return Ok(RunBase::Copied { version, root });
        }
        site.meter.restart();
        let is_first = site.meter.announced().is_none();
        if is_first {
            site.meter.announce_if_expected(base_announcement(site.warn_above));
        }
        let over_host = || match &under_fork {
            Some(dir) => self.stack_over_host(dir, run, &root, session),
            None => Ok(None),
        };
        let stack = site.meter.waited_for(|| match request.base {
            BaseChoice::Live => over_host(),
            BaseChoice::Auto | BaseChoice::Cached | BaseChoice::Touched => {
                site.vault.stack_unless(&root, &site.layers, site.meter, over_host).map(Some)
            }
        })?;
        // Later operations have nothing to announce.
        site.meter.restart();
        if let (true, Some(lines)) = (is_first, site.meter.announced()) {
            run.note(BASE_LARGE, lines.iter().map(|line| line.trim()).collect::<Vec<_>>().join("; "));
        }
        let Some(stack) = stack else {
            let dir = under_fork.unwrap_or_default();
            let why =
                "its version is not near to the fork's, or it has files that cannot be kept or changed in place"
                    .to_owned();
            return Err(WorkspaceRootError::NotLive { dir, why }.into());
        };
        if matches!(stack.made, Made::Materialized | Made::OverHost) {
            CacheOwners::new(&site.cache_dir).register(&site.vault_id, site.vault.path());
        }
        Ok(RunBase::Stacked { stack, version, root })
    }

    /// The directory itself as the lower layer of a run on a fork, if its version is near to the version of the fork.
    fn stack_over_host(
        &self,
        dir: &Path,
        run: &Run,
        root: &DirRef,
        session: &MountSession,
    ) -> avfs_vault::transfer::Result<Option<Stack>> {
        let site = self.site;
        let wanted = run.request.base == BaseChoice::Live;
        let Totals { entries, bytes, .. } = root.totals;
        if !wanted && entries < ENTRIES_ON_HOST_MIN && bytes < BYTES_ON_HOST_MIN {
            return Ok(None);
        }
        let found = match &run.found {
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
    pub(crate) fn announce_first_import<
        E: From<WorkspaceRootError> + From<VaultError> + From<transfer::Error>,
    >(
        &self,
        places: &Places,
        run: &mut Run,
    ) -> Result<(), E> {
        let site = self.site;
        let (Some(dir), ForkChoice::Ephemeral { from: None } | ForkChoice::Persistent { from: None, .. }) =
            (&places.bound, &run.request.fork)
        else {
            return Ok(());
        };
        // The common case: the stat cache exists, since the first import creates it.
        if site.stat_cache.as_ref().is_none_or(|cache| cache.exists())
            || self.head(&ForkName::main())?.entries > 0
        {
            return Ok(());
        }
        let imports = |request: &ExecutionRequest, files| match Beneath::choose(
            request,
            places,
            &site.cache_dir,
            files,
        )? {
            Beneath::Live(_) => Ok(wants_version(request)),
            Beneath::Touched(_) => Ok(false),
            Beneath::UnderFork(_) | Beneath::Cached => Ok::<bool, WorkspaceRootError>(true),
        };
        // A command that cannot write needs no files that it can write.
        let needs_writable =
            run.request.writing == Writing::Allowed && run.request.base != BaseChoice::Touched;
        if !needs_writable && !imports(&run.request, run.files)? {
            return Ok(());
        }
        let seen = site.meter.waited_for(|| first_look(dir, &site.cwd, &site.exclude, site.warn_above));
        if seen.is_foreign {
            run.files = Files::Foreign;
        }
        if imports(&run.request, run.files)? {
            let discarded = ExecutionRequest { retention: Retention::Discard, ..run.request.clone() };
            let mut ways = vec![TOUCHED, LIVE];
            if !imports(&discarded, run.files)? {
                ways.insert(1, DISCARD);
            }
            if let Some(announcement) = seen.announcement(ways) {
                site.meter.announce_when_due(announcement);
                site.meter.announce_if_due();
            }
        }
        Ok(())
    }

    /// The base version of a run without a live base. Imports the directory if necessary.
    pub(crate) fn base(&self, places: &Places, run: &mut Run) -> avfs_vault::transfer::Result<VersionRecord> {
        match run.request.fork.clone() {
            ForkChoice::Ephemeral { from: Some(from) } => {
                let (version, parent) = avfs_vault::version::resolve(&*self.site.vault.read()?, &from)?;
                run.parent = parent.unwrap_or_else(ForkName::main);
                Ok(version)
            }
            ForkChoice::Ephemeral { from: None } => {
                if let Some(dir) = &places.bound {
                    let imported = self.site.meter.waited_for(|| import_dir(self.site, dir))?;
                    run.note_import(&imported.scanned);
                }
                Ok(self.head(&ForkName::main())?)
            }
            ForkChoice::Persistent { name, from } => self.task_fork(&name, from.as_ref(), places, run),
        }
    }

    /// The digests of the files of the base, with and without times; nothing is imported or created.
    pub(crate) fn base_now(
        &self,
        request: &ExecutionRequest,
        places: &Places,
    ) -> avfs_vault::transfer::Result<(TreeId, ContentId)> {
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
        run: &mut Run,
    ) -> avfs_vault::transfer::Result<VersionRecord> {
        let (site, vault) = (self.site, self.site.vault);
        match vault.fork(name) {
            Ok(_) => {
                if let Some(from) = from {
                    avfs_vault::version::resolve(&*vault.read()?, from)?;
                    run.note("fork.exists", format!("fork {name} already exists, so --from is ignored"));
                }
                return Ok(self.head(name)?);
            }
            Err(VaultError::NoFork { .. }) => {}
            Err(error) => return Err(error.into()),
        }
        let main = Reference::parse(ForkName::main().as_str()).map_err(VaultError::from)?;
        let of_dir = from.is_none() && places.bound.is_some();
        let from = match (from, &places.bound) {
            (Some(from), _) => from,
            // Import the directory first: otherwise the first run would start without files.
            (None, Some(dir)) => {
                let imported = site.meter.waited_for(|| import_dir(site, dir))?;
                run.note_import(&imported.scanned);
                run.found = HostBase::of(dir, imported.committed.version.root, &imported.scanned);
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
            run.note("fork.made", format!("created fork {name} from {begins}"));
        }
        Ok(head)
    }

    /// Deletes expired forks, except the fork of this run, which is in use. An error does not prevent the run.
    pub(crate) fn expire_forks(&self, run: &mut Run) {
        let text = match self.site.vault.expire_forks(std::slice::from_ref(&run.fork)) {
            Ok(gone) if gone.is_empty() => return,
            Ok(gone) => {
                let names: Vec<&str> = gone.iter().take(NAMED_MAX).map(|name| name.as_str()).collect();
                let more = gone.len() - names.len();
                let more = if more > 0 { format!(" and {more} more") } else { String::new() };
                format!("deleted expired forks: {}{more}", names.join(", "))
            }
            Err(error) => format!("cannot delete expired forks: {error}"),
        };
        run.note("fork.expired", text);
    }
}

/// Imports the current state of the bound directory to the main fork.
pub(crate) fn import_dir(site: &Site<'_>, dir: &Path) -> avfs_vault::transfer::Result<Imported> {
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
pub(crate) fn stand_on_import(
    site: &Site<'_>,
    dir: &Path,
    session: &MountSession,
) -> avfs_vault::transfer::Result<Imported> {
    let imported = import_dir(site, dir)?;
    if let Err(error) = session.note_base(&imported.committed.version.id) {
        tracing::warn!(%error, "cannot record the base of the run");
    }
    Ok(imported)
}
