//! Searches a host directory, or a part of it, for a difference from known versions of it.
//!
//! Compares names, kinds, modes, sizes and times: sufficient for a note, not for a decision. No file is read except
//! ignore files, and nothing is stored.

use std::cmp::Ordering;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;

use avfs_hostfs::beneath;
use avfs_hostfs::beneath::Listed;
use avfs_hostfs::cause::Cause;
use avfs_hostfs::stat::{HostKind, HostStat};
use avfs_types::path::TreePath;

use super::shared::{Outlet, Shared};
use super::{ImportError, ImportOptions, scan};
use crate::chunk::FILE_BYTES_MAX;
use crate::ignore::{FILE_NAME, Rules};
use crate::page::{Body, DirRef, Entry, Node};
use crate::tree::{Dir, Pages};
use crate::write_out::FreshPages;
use crate::{Result, Vault, set_ids, tree};

/// A directory with more names is not compared, nor is anything in it: listing it would take longer than a short run.
const DIR_NAMES_MAX: usize = 2000;
/// Pages of a directory of a version with about so many names.
const DIR_PAGES_MAX: usize = 64;

/// Separates the directory and the name of a place in its text; neither contains this byte.
const SEPARATOR: u8 = 0;

/// A place in a directory at which a look continues: a name, compared with the other names of its directory. The
/// directories beneath a directory follow its names.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LookPlace {
    dir: TreePath,
    name: Vec<u8>,
}

impl LookPlace {
    /// The place as text.
    #[must_use]
    pub fn to_bytes(&self) -> Vec<u8> {
        [self.dir.as_bytes(), &[SEPARATOR], &self.name].concat()
    }

    /// Reads the text of a place. `None` if it is not one.
    #[must_use]
    pub fn from_bytes(text: &[u8]) -> Option<Self> {
        let at = text.iter().position(|byte| *byte == SEPARATOR)?;
        let dir = TreePath::parse(&text[..at]).ok()?;
        Some(Self { dir, name: text[at + 1..].to_vec() })
    }
}

/// The result of a look.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Looked {
    /// The whole directory was compared, and nothing differs.
    Unchanged,
    /// An entry at or after this place differs from all known versions.
    Changed(LookPlace),
    /// Nothing differs so far; the look continues at this place.
    Unfinished(LookPlace),
}

/// Whether the metadata of a host file is that of an entry. Compares only the kind of a directory.
#[must_use]
pub fn looks_like(stat: &HostStat, node: &Node) -> bool {
    let HostStat { kind, mode, mtime, size, .. } = *stat;
    match node {
        Node::File(file) => {
            (kind, mtime, size) == (HostKind::File, file.mtime, file.size)
                && set_ids::has_mode(mode, file.mode)
        }
        Node::Symlink(link) => (kind, mtime) == (HostKind::Symlink, link.mtime),
        Node::Fifo(fifo) => (kind, mode, mtime) == (HostKind::Fifo, fifo.mode, fifo.mtime),
        Node::Dir(_) => kind == HostKind::Dir,
    }
}

impl Vault {
    /// Compares a host directory with versions of it, until the number of compared names is enough. Starts at a place,
    /// and continues at the root after the end. An entry is unchanged if it is as in any of the versions: each path is
    /// compared on its own. No difference: unversioned paths, paths that an import cannot read, and the content of
    /// directories with too many names.
    pub fn look_for_changes(
        &self,
        dir: &Path,
        known: &[DirRef],
        from: Option<&LookPlace>,
        is_enough: &dyn Fn(usize) -> bool,
        options: &ImportOptions<'_>,
    ) -> Result<Looked> {
        let pages = FreshPages::new(self);
        let shared = scan::host(self, dir, None, options, Outlet::Nowhere)?.shared;
        let mut look = Look { shared, pages, compared: 0, is_enough };
        if let Some(ended) = look.walk(known, from, None)? {
            return Ok(ended);
        }
        let rest = from.map(|from| look.walk(known, None, Some(from))).transpose()?;
        Ok(rest.flatten().unwrap_or(Looked::Unchanged))
    }
}

struct Look<'a> {
    shared: Shared<'a>,
    pages: FreshPages<'a>,
    /// Number of names that were compared.
    compared: usize,
    is_enough: &'a dyn Fn(usize) -> bool,
}

/// A directory to compare.
struct LookDir {
    path: TreePath,
    /// Its states in the known versions; `None` if a version has no such directory.
    states: Vec<Option<DirRef>>,
    /// The rules that apply to its parent.
    rules: Rules,
}

/// A directory of the host that is open.
struct OpenedDir {
    path: TreePath,
    fd: OwnedFd,
    stat: HostStat,
    rules: Rules,
    /// Its entries in each of the known versions.
    states: Vec<Vec<Entry>>,
}

/// The comparison of a directory or of an entry.
enum Compared<T> {
    Same(T),
    Differs,
    /// It is not compared: an import cannot read it, or it has too many names.
    Skipped,
}

/// The comparison of the names of a directory.
enum Names {
    /// All are unchanged; these are the directories in it.
    Same(Vec<LookDir>),
    /// The entry of this name differs.
    Changed(Vec<u8>),
    /// Enough names were compared; continues at this name.
    Spent(Vec<u8>),
}

impl Look<'_> {
    /// Walks the directory between two places. `None` at the end.
    fn walk(
        &mut self,
        known: &[DirRef],
        from: Option<&LookPlace>,
        until: Option<&LookPlace>,
    ) -> Result<Option<Looked>> {
        let states = distinct(known.iter().copied().map(Some));
        let mut waiting = vec![LookDir { path: TreePath::root(), states, rules: Rules::default() }];
        while let Some(dir) = waiting.pop() {
            let is_end = |until: &LookPlace| match until.dir.components().cmp(dir.path.components()) {
                Ordering::Less => true,
                Ordering::Equal => until.name.is_empty(),
                Ordering::Greater => false,
            };
            if until.is_some_and(is_end) {
                return Ok(None);
            }
            let toward =
                from.and_then(|from| from.dir.below(&dir.path)?.components().next().map(<[u8]>::to_vec));
            let here = |place: Option<&LookPlace>| {
                place.filter(|place| place.dir == dir.path).map(|place| place.name.clone())
            };
            let last = here(until);
            let place = LookPlace { dir: dir.path.clone(), name: here(from).unwrap_or_default() };
            if (self.is_enough)(self.compared) || self.shared.failed() {
                return Ok(Some(Looked::Unfinished(place)));
            }
            let opened = match self.open(dir)? {
                Compared::Same(opened) => opened,
                Compared::Differs => return Ok(Some(Looked::Changed(place))),
                Compared::Skipped => continue,
            };
            let names = match toward {
                Some(name) => Names::Same(self.dirs_from(&opened, &name)),
                None => self.compare_names(&opened, &place.name, last.as_deref()),
            };
            match names {
                Names::Same(dirs) => waiting.extend(dirs.into_iter().rev()),
                Names::Changed(name) => return Ok(Some(Looked::Changed(LookPlace { name, ..place }))),
                Names::Spent(name) => return Ok(Some(Looked::Unfinished(LookPlace { name, ..place }))),
            }
            if last.is_some() {
                return Ok(None);
            }
        }
        Ok(None)
    }

    /// Opens a directory and compares its own metadata and its ignore file.
    fn open(&self, dir: LookDir) -> Result<Compared<OpenedDir>> {
        let LookDir { path, states, rules } = dir;
        let io = |operation| {
            let path = path.clone();
            move |source| ImportError::Io { operation, path, source }
        };
        let fd = match beneath::open(self.shared.root.as_fd(), path.as_bytes(), beneath::DIR) {
            Ok(fd) => fd,
            Err(error) => {
                return match Cause::of(&error) {
                    // A version without the directory has the right names in the parent directory.
                    Cause::NotFound | Cause::NotADirectory | Cause::Link if states.contains(&None) => {
                        Ok(Compared::Skipped)
                    }
                    Cause::NotFound | Cause::NotADirectory | Cause::Link => Ok(Compared::Differs),
                    Cause::NoPermission | Cause::Unreadable => Ok(Compared::Skipped),
                    Cause::Exists | Cause::ReadOnly | Cause::DiskFull | Cause::Other => {
                        Err(io("open")(error).into())
                    }
                };
            }
        };
        let stat = beneath::fstat(fd.as_fd()).map_err(io("stat"))?;
        let open =
            |state: &Option<DirRef>| state.map(|state| tree::open(&self.pages, &state, &path)).transpose();
        let tops = states.iter().map(open).collect::<Result<Vec<_>>>()?;
        for (_, body) in tops.iter().flatten() {
            if pages_with_names(&self.pages, body)? > DIR_PAGES_MAX {
                return Ok(Compared::Skipped);
            }
        }
        let whole = |top: Option<_>| top.map(|top| tree::whole(&self.pages, top, &mut Err)).transpose();
        let dirs = tops.into_iter().map(whole).collect::<Result<Vec<Option<Dir>>>>()?;
        // A directory that an apply creates can inherit setgid.
        let has_mode = |dir: &Dir| (dir.meta.mode ^ stat.mode) & !set_ids::SET_ID_BITS == 0;
        if !dirs.iter().flatten().any(has_mode) {
            return Ok(Compared::Differs);
        }
        let mut ignore_files = dirs.iter().flatten().filter_map(|dir| dir.entry(FILE_NAME));
        let (rules, has_new_rules) = match beneath::stat(fd.as_fd(), FILE_NAME) {
            Ok(file) => {
                let is_new = !ignore_files.any(|entry| looks_like(&file, &entry.node));
                match self.shared.with_ignore_file(&rules, &fd, &path) {
                    Ok(rules) => (rules, is_new),
                    Err(_) if is_new => return Ok(Compared::Differs),
                    Err(error) => return Err(error),
                }
            }
            Err(_) => (rules, false),
        };
        let states = dirs.into_iter().map(|dir| dir.map(|dir| dir.entries).unwrap_or_default()).collect();
        let opened = OpenedDir { path, fd, stat, rules, states };
        // Its own rules can make an ignore file unversioned.
        let is_same = !has_new_rules || self.is_left_out(&opened, FILE_NAME, false);
        Ok(if is_same { Compared::Same(opened) } else { Compared::Differs })
    }

    /// The directories in a directory of the known versions, starting with this name.
    fn dirs_from(&self, opened: &OpenedDir, first: &[u8]) -> Vec<LookDir> {
        let names = Merged::of(&[], &opened.states).filter(|merged| merged.name >= first);
        names.filter_map(|merged| self.dir_of(opened, merged.name, &merged.nodes)).collect()
    }

    /// Compares the names of a directory from `first` up to `last`. The directory counts with its first name.
    fn compare_names(&mut self, opened: &OpenedDir, first: &[u8], last: Option<&[u8]>) -> Names {
        if first.is_empty() {
            self.compared += 1;
        }
        let Ok(Some(listed)) = beneath::names_up_to(opened.fd.as_fd(), DIR_NAMES_MAX) else {
            return Names::Same(Vec::new());
        };
        let mut dirs = Vec::new();
        for MergedName { name, on_host, nodes } in Merged::of(&listed, &opened.states) {
            if last.is_some_and(|last| name >= last) {
                break;
            }
            if on_host.is_some_and(|listed| opened.is_dir(listed))
                && let Some(subdir) = self.dir_of(opened, name, &nodes)
            {
                dirs.push(subdir);
                continue;
            }
            if name < first {
                continue;
            }
            if (self.is_enough)(self.compared) {
                return Names::Spent(name.to_vec());
            }
            self.compared += 1;
            if let Compared::Differs = self.compare(opened, name, on_host.is_some(), &nodes) {
                return Names::Changed(name.to_vec());
            }
        }
        Names::Same(dirs)
    }

    /// A directory in a directory, if it is versioned and a known version has it.
    fn dir_of(&self, opened: &OpenedDir, name: &[u8], nodes: &[Option<&Node>]) -> Option<LookDir> {
        let states = distinct(nodes.iter().map(|node| match node {
            Some(Node::Dir(dir)) => Some(*dir),
            Some(Node::File(_) | Node::Symlink(_) | Node::Fifo(_)) | None => None,
        }));
        let is_known = states.iter().any(Option::is_some);
        let (path, rules) = (opened.path.join(name), opened.rules.clone());
        (is_known && !self.is_left_out(opened, name, true)).then_some(LookDir { path, states, rules })
    }

    /// Compares an entry that is not a directory of a known version.
    fn compare(
        &self,
        opened: &OpenedDir,
        name: &[u8],
        is_listed: bool,
        nodes: &[Option<&Node>],
    ) -> Compared<()> {
        let stat = match is_listed.then(|| beneath::stat(opened.fd.as_fd(), name)) {
            None => None,
            Some(Ok(stat)) => Some(stat),
            Some(Err(error)) if Cause::of(&error) == Cause::NotFound => None,
            Some(Err(_)) => return Compared::Skipped,
        };
        let is_as = |node: &Option<&Node>| match (node, &stat) {
            (None, None) => true,
            (Some(node), Some(stat)) => looks_like(stat, node),
            (None, Some(_)) | (Some(_), None) => false,
        };
        if nodes.iter().any(is_as) {
            return Compared::Same(());
        }
        let is_dir = match &stat {
            Some(stat) => stat.kind == HostKind::Dir,
            None => nodes.iter().flatten().any(|node| matches!(node, Node::Dir(_))),
        };
        if self.is_left_out(opened, name, is_dir) {
            return Compared::Same(());
        }
        match stat {
            Some(stat) if !self.can_import(opened.fd.as_fd(), name, &stat) => Compared::Skipped,
            Some(_) | None => Compared::Differs,
        }
    }

    fn is_left_out(&self, opened: &OpenedDir, name: &[u8], is_dir: bool) -> bool {
        let own_file = &self.shared.own_file;
        let listed = Listed { name: name.to_vec(), is_dir: Some(is_dir) };
        own_file.is_in(&opened.stat) && own_file.is_called(name)
            || self.shared.is_left_out(&opened.path, &opened.rules, opened.fd.as_fd(), &listed)
    }

    /// Whether an import can keep a file.
    fn can_import(&self, dir: BorrowedFd<'_>, name: &[u8], stat: &HostStat) -> bool {
        let can_open = |flags| match beneath::open(dir, name, flags) {
            Ok(_) => true,
            Err(error) => !matches!(Cause::of(&error), Cause::NoPermission | Cause::Unreadable),
        };
        match stat.kind {
            HostKind::File => {
                !self.shared.own_file.is_file(stat) && stat.size <= FILE_BYTES_MAX && can_open(beneath::READ)
            }
            HostKind::Dir => can_open(beneath::DIR),
            HostKind::Symlink | HostKind::Fifo => true,
            HostKind::Whiteout | HostKind::Special(_) => false,
        }
    }
}

impl OpenedDir {
    fn is_dir(&self, listed: &Listed) -> bool {
        listed.is_dir.unwrap_or_else(|| {
            let looked = beneath::stat(self.fd.as_fd(), &listed.name);
            looked.is_ok_and(|stat| stat.kind == HostKind::Dir)
        })
    }
}

/// The number of pages with the names of a directory. Beyond the maximum it does not count on.
fn pages_with_names(pages: &dyn Pages, body: &Body) -> Result<usize> {
    let Body::Inner { level, pages: children } = body else { return Ok(1) };
    if *level == 1 {
        return Ok(children.len());
    }
    let mut count = 0;
    for child in children {
        count += pages_with_names(pages, &tree::beneath(pages, *level, child)?)?;
        if count > DIR_PAGES_MAX {
            break;
        }
    }
    Ok(count)
}

/// The states without repetition: most directories are the same in all versions.
fn distinct(states: impl Iterator<Item = Option<DirRef>>) -> Vec<Option<DirRef>> {
    let mut distinct = Vec::new();
    for state in states {
        if !distinct.contains(&state) {
            distinct.push(state);
        }
    }
    distinct
}

/// A name in a directory.
struct MergedName<'a> {
    name: &'a [u8],
    on_host: Option<&'a Listed>,
    /// Its entry in each of the known versions.
    nodes: Vec<Option<&'a Node>>,
}

/// The names of a directory of the host and of the same directory in versions, merged in order.
struct Merged<'a> {
    listed: &'a [Listed],
    states: Vec<&'a [Entry]>,
}

impl<'a> Merged<'a> {
    fn of(listed: &'a [Listed], states: &'a [Vec<Entry>]) -> Self {
        Self { listed, states: states.iter().map(Vec::as_slice).collect() }
    }
}

impl<'a> Iterator for Merged<'a> {
    type Item = MergedName<'a>;

    fn next(&mut self) -> Option<MergedName<'a>> {
        let on_host = self.listed.first();
        let known = self.states.iter().filter_map(|state| state.first()).map(|entry| entry.name.as_slice());
        let name = known.chain(on_host.map(|listed| listed.name.as_slice())).min()?;
        let on_host = on_host.filter(|listed| listed.name == name);
        if on_host.is_some() {
            self.listed = &self.listed[1..];
        }
        let nodes = self.states.iter_mut().map(|state| {
            let (first, rest) = state.split_first().filter(|(first, _)| first.name == name)?;
            *state = rest;
            Some(&first.node)
        });
        Some(MergedName { name, on_host, nodes: nodes.collect() })
    }
}
