//! Searches a host directory, or a part of it, for a difference from known versions of it.
//!
//! Compares names, kinds, modes, sizes and times: sufficient for a note, not for a decision. No file is read except
//! ignore files, and nothing is stored. No directory is read as a whole, so the cost follows the number of compared
//! names, however large a directory is.

use std::cmp::Ordering;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;

use avfs_hostfs::beneath;
use avfs_hostfs::beneath::Listed;
use avfs_hostfs::cause::Cause;
use avfs_hostfs::stat::{HostKind, HostStat};
use avfs_types::path::TreePath;

use super::host::Host;
use super::{ImportError, ImportOptions, host};
use crate::chunk::FILE_BYTES_MAX;
use crate::ignore::{FILE_NAME, Rules};
use crate::page::{Body, DirMeta, DirRef, Node};
use crate::transfer::Result;
use crate::transfer::scan::{Outlet, Shared};
use crate::tree::{CachedPages, Entries, Pages};
use crate::write_out::FreshPages;
use crate::{Vault, set_ids, tree};

/// Steps of a name in a list that is searched in several pages of a version. Any other comparison is one step.
const PAGED_NAME_STEPS: usize = 4;
/// Maximum steps of a look for each name: in the list of its directory, and as an entry of a version.
pub const LOOK_STEPS_MAX: usize = PAGED_NAME_STEPS + 1;

/// Separates the parts of the text of a place; no name contains this byte.
const SEPARATOR: u8 = 0;

/// A place in a directory at which a look continues.
///
/// A look searches the list of a directory for new names, then compares the entries that the versions have, sorted; the
/// content of a subdirectory follows its entry.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LookPlace {
    dir: TreePath,
    at: At,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum At {
    /// Searches for new names, starting at this position of the directory.
    Listing(u64),
    /// Compares the known entries, starting with this name.
    Entry(Vec<u8>),
}

impl Default for At {
    fn default() -> Self {
        Self::Listing(0)
    }
}

/// A step from a directory toward a place in it, in the order of a look.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
enum Step<'a> {
    Listing,
    Entry(&'a [u8]),
}

impl LookPlace {
    /// The place as text.
    #[must_use]
    pub fn to_bytes(&self) -> Vec<u8> {
        let dir = self.dir.as_bytes();
        match &self.at {
            At::Entry(name) => [dir, &[SEPARATOR], name].concat(),
            At::Listing(position) => [dir, &[SEPARATOR, SEPARATOR], position.to_string().as_bytes()].concat(),
        }
    }

    /// Reads the text of a place. `None` if it is not one.
    #[must_use]
    pub fn from_bytes(text: &[u8]) -> Option<Self> {
        let end = text.iter().position(|byte| *byte == SEPARATOR)?;
        let (dir, rest) = (TreePath::parse(&text[..end]).ok()?, &text[end + 1..]);
        let at = match rest.strip_prefix(&[SEPARATOR]) {
            Some(position) => At::Listing(std::str::from_utf8(position).ok()?.parse().ok()?),
            None => At::Entry(rest.to_vec()),
        };
        Some(Self { dir, at })
    }

    /// Whether a second look that reaches this place has done everything before `end`, where the first one started.
    /// The first part of a list is compared again as a whole: positions have no order.
    fn is_end(&self, end: &Self) -> bool {
        match self.steps().cmp(end.steps()) {
            Ordering::Less => false,
            Ordering::Equal => matches!(end.at, At::Entry(_)),
            Ordering::Greater => true,
        }
    }

    /// Whether this is the entry of a directory that contains the other place.
    fn contains(&self, other: &Self) -> bool {
        matches!(&self.at, At::Entry(name) if self.dir.join(name).contains(&other.dir))
    }

    fn steps(&self) -> impl Iterator<Item = Step<'_>> {
        let last = match &self.at {
            At::Listing(_) => Step::Listing,
            At::Entry(name) => Step::Entry(name),
        };
        self.dir.components().map(Step::Entry).chain([last])
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
    /// Compares a host directory with versions of it, until `is_enough` of the number of steps, at most
    /// [`LOOK_STEPS_MAX`] for each name. Starts at a place, and continues at the root after the end. An entry is
    /// unchanged if it is as in any of the versions: each path is compared on its own. No difference: unversioned paths
    /// and paths that an import cannot read. The list of a directory of several pages is searched for new names only if
    /// the directory has another time than in all versions.
    pub fn look_for_changes(
        &self,
        dir: &Path,
        known: &[DirRef],
        from: Option<&LookPlace>,
        is_enough: &dyn Fn(usize) -> bool,
        options: &ImportOptions<'_>,
    ) -> Result<Looked> {
        let fresh = FreshPages::new(self);
        let pages = CachedPages::new(&fresh);
        let shared = host::scan(self, dir, None, options, Outlet::Nowhere)?.shared;
        let mut look = Look { shared, pages: &pages, steps: 0, is_enough };
        if let Some(ended) = look.walk(known, from, None)? {
            return Ok(ended);
        }
        let rest = from.map(|from| look.walk(known, None, Some(from))).transpose()?;
        Ok(rest.flatten().unwrap_or(Looked::Unchanged))
    }
}

struct Look<'a> {
    shared: Shared<'a, Host<'a>>,
    pages: &'a dyn Pages,
    steps: usize,
    is_enough: &'a dyn Fn(usize) -> bool,
}

/// A directory that is compared, or one that contains it.
struct LookDir<'a> {
    path: TreePath,
    stat: HostStat,
    rules: Rules,
    rest: Rest<'a>,
}

/// The part of a directory that is still to be compared.
enum Rest<'a> {
    /// The list from this position, then all known entries. A state is `None` if the version has no such directory.
    Listing { position: u64, states: Vec<Option<Body>> },
    /// The known entries of each version.
    Entries(Vec<Entries<'a>>),
}

/// The comparison of an entry.
enum Compared<T> {
    Same(T),
    Differs,
    /// An import cannot read it.
    Skipped,
}

impl<'a> Look<'a> {
    /// Walks the directory between two places. `None` at the end.
    fn walk(
        &mut self,
        known: &[DirRef],
        from: Option<&LookPlace>,
        until: Option<&LookPlace>,
    ) -> Result<Option<Looked>> {
        let states = distinct(known.iter().copied().map(Some));
        let (root, fd) = match self.open(TreePath::root(), &states, &Rules::default(), from)? {
            Compared::Same(opened) => opened,
            Compared::Differs => return Ok(Some(Looked::Changed(LookPlace::default()))),
            Compared::Skipped => return Ok(None),
        };
        // Only the innermost directory is kept open: a tree can be deeper than the limit of open files.
        let (mut dirs, mut innermost) = (vec![root], Some(fd));
        while let Some(dir) = dirs.last_mut() {
            let Some(place) = dir.place()? else {
                dirs.pop();
                innermost = None;
                continue;
            };
            if until.is_some_and(|until| place.is_end(until)) {
                return Ok(None);
            }
            let is_on_the_way = from.is_some_and(|from| place.contains(from));
            if !is_on_the_way && self.must_end() {
                return Ok(Some(Looked::Unfinished(place)));
            }
            let fd = match innermost.take() {
                Some(fd) => fd,
                None => match self.open_host(&dir.path) {
                    Ok(fd) => fd,
                    // It vanished after its entry was compared.
                    Err(_) => {
                        dirs.pop();
                        continue;
                    }
                },
            };
            match &place.at {
                At::Listing(_) => {
                    if self.compare_list(dir, fd.as_fd())? {
                        return Ok(dir.place()?.map(Looked::Changed));
                    }
                }
                At::Entry(name) => {
                    self.steps += usize::from(!is_on_the_way);
                    let nodes = dir.take(name)?;
                    match self.compare(dir, fd.as_fd(), name, &nodes, from)? {
                        Compared::Same(Some((subdir, subdir_fd))) => {
                            dirs.push(subdir);
                            innermost = Some(subdir_fd);
                            continue;
                        }
                        Compared::Same(None) | Compared::Skipped => {}
                        Compared::Differs => return Ok(Some(Looked::Changed(place))),
                    }
                }
            }
            innermost = Some(fd);
        }
        Ok(None)
    }

    fn must_end(&self) -> bool {
        (self.is_enough)(self.steps) || self.shared.failed()
    }

    fn open_host(&self, path: &TreePath) -> io::Result<OwnedFd> {
        beneath::open(self.shared.root.as_fd(), path.as_bytes(), beneath::DIR)
    }

    /// Opens a directory and compares its own metadata and its ignore file.
    fn open(
        &self,
        path: TreePath,
        states: &[Option<DirRef>],
        rules: &Rules,
        from: Option<&LookPlace>,
    ) -> Result<Compared<(LookDir<'a>, OwnedFd)>> {
        let io = |operation| {
            let path = path.clone();
            move |source| ImportError::Io { operation, path, source }
        };
        let fd = match self.open_host(&path) {
            Ok(fd) => fd,
            Err(error) => {
                return match Cause::of(&error) {
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
            |state: &Option<DirRef>| state.map(|state| tree::open(self.pages, &state, &path)).transpose();
        let (metas, states): (Vec<_>, Vec<_>) = states
            .iter()
            .map(|state| Ok(open(state)?.unzip()))
            .collect::<Result<Vec<_>>>()?
            .into_iter()
            .unzip();
        // A directory that an apply creates can inherit setgid.
        let has_mode = |meta: &DirMeta| (meta.mode ^ stat.mode) & !set_ids::SET_ID_BITS == 0;
        if !metas.iter().flatten().any(has_mode) {
            return Ok(Compared::Differs);
        }
        let (rules, has_new_rules) = match beneath::stat(fd.as_fd(), FILE_NAME) {
            Ok(file) => {
                let known = self.nodes_of(&states, FILE_NAME)?;
                let is_new = !known.iter().flatten().any(|node| looks_like(&file, node));
                match self.shared.with_ignore_file(rules, &fd, &path) {
                    Ok(rules) => (rules, is_new),
                    Err(_) if is_new => return Ok(Compared::Differs),
                    Err(error) => return Err(error),
                }
            }
            Err(_) => (rules.clone(), false),
        };
        let inside = from.and_then(|from| Some((from.dir.below(&path)?, &from.at)));
        let at = match &inside {
            None => At::default(),
            Some((below, at)) => match below.components().next() {
                Some(name) => At::Entry(name.to_vec()),
                None => (*at).clone(),
            },
        };
        // Its names are then those of a version.
        let has_time = metas.iter().flatten().any(|meta| meta.mtime == stat.mtime);
        let rest = match at {
            At::Entry(name) => self.entries(states, &name)?,
            At::Listing(_) if has_time && is_paged(&states) => self.entries(states, b"")?,
            At::Listing(position) => Rest::Listing { position, states },
        };
        let opened = LookDir { path, stat, rules, rest };
        // Its own rules can make an ignore file unversioned.
        let is_same = !has_new_rules || self.is_left_out(&opened, fd.as_fd(), FILE_NAME, false);
        Ok(if is_same { Compared::Same((opened, fd)) } else { Compared::Differs })
    }

    /// The entries of a directory in each version, starting with a name.
    fn entries(&self, states: Vec<Option<Body>>, first: &[u8]) -> Result<Rest<'a>> {
        let entries = |state| match state {
            Some(body) => Entries::from(self.pages, body, first),
            None => Ok(Entries::none(self.pages)),
        };
        Ok(Rest::Entries(states.into_iter().map(entries).collect::<crate::Result<_>>()?))
    }

    /// An entry of a directory in each version.
    fn nodes_of(&self, states: &[Option<Body>], name: &[u8]) -> Result<Vec<Option<Node>>> {
        let node = |state: &Option<Body>| match state {
            Some(body) => tree::entry_in(self.pages, body, name),
            None => Ok(None),
        };
        Ok(states.iter().map(node).collect::<crate::Result<_>>()?)
    }

    /// Compares the next names of the list of a directory. Whether no version has one of them; the list then continues
    /// before them.
    fn compare_list(&mut self, dir: &mut LookDir<'a>, fd: BorrowedFd<'_>) -> Result<bool> {
        let Rest::Listing { position, states } = &dir.rest else { return Ok(false) };
        let (names, next) = beneath::some_names(fd, *position).unwrap_or_default();
        let steps = if is_paged(states) { PAGED_NAME_STEPS } else { 1 };
        for Listed { name, .. } in &names {
            self.steps += steps;
            let nodes = self.nodes_of(states, name)?;
            if nodes.iter().all(Option::is_none)
                && let Compared::Differs = self.compare(dir, fd, name, &nodes, None)?
            {
                return Ok(true);
            }
        }
        if let Rest::Listing { position, states } = &mut dir.rest {
            match next {
                Some(next) => *position = next,
                None => dir.rest = self.entries(std::mem::take(states), b"")?,
            }
        }
        Ok(false)
    }

    /// Compares an entry. A directory that the host and a version have is returned, open.
    fn compare(
        &self,
        dir: &LookDir<'a>,
        fd: BorrowedFd<'_>,
        name: &[u8],
        nodes: &[Option<Node>],
        from: Option<&LookPlace>,
    ) -> Result<Compared<Option<(LookDir<'a>, OwnedFd)>>> {
        let stat = match beneath::stat(fd, name) {
            Ok(stat) => Some(stat),
            Err(error) if Cause::of(&error) == Cause::NotFound => None,
            Err(_) => return Ok(Compared::Skipped),
        };
        let is_as = |node: &Option<Node>| match (node, &stat) {
            (None, None) => true,
            (Some(node), Some(stat)) => looks_like(stat, node),
            (None, Some(_)) | (Some(_), None) => false,
        };
        let is_dir = match &stat {
            Some(stat) => stat.kind == HostKind::Dir,
            None => nodes.iter().flatten().any(|node| matches!(node, Node::Dir(_))),
        };
        let is_same = nodes.iter().any(is_as);
        if is_same && !(is_dir && stat.is_some()) || self.is_left_out(dir, fd, name, is_dir) {
            return Ok(Compared::Same(None));
        }
        match stat {
            Some(_) if is_same => {
                let states = distinct(nodes.iter().map(|node| match node {
                    Some(Node::Dir(dir)) => Some(*dir),
                    Some(Node::File(_) | Node::Symlink(_) | Node::Fifo(_)) | None => None,
                }));
                Ok(match self.open(dir.path.join(name), &states, &dir.rules, from)? {
                    Compared::Same(subdir) => Compared::Same(Some(subdir)),
                    Compared::Differs => Compared::Differs,
                    Compared::Skipped => Compared::Skipped,
                })
            }
            Some(stat) if !self.can_import(fd, name, &stat) => Ok(Compared::Skipped),
            Some(_) | None => Ok(Compared::Differs),
        }
    }

    fn is_left_out(&self, dir: &LookDir<'_>, fd: BorrowedFd<'_>, name: &[u8], is_dir: bool) -> bool {
        let own_file = &self.shared.own_file;
        let listed = Listed { name: name.to_vec(), is_dir: Some(is_dir) };
        own_file.is_called(&dir.stat, name) || self.shared.is_left_out(&dir.path, &dir.rules, fd, &listed)
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

impl LookDir<'_> {
    /// The place of the next comparison. `None` at the end of the directory.
    fn place(&mut self) -> Result<Option<LookPlace>> {
        let at = match &mut self.rest {
            Rest::Listing { position, .. } => At::Listing(*position),
            Rest::Entries(states) => {
                let mut first: Option<&[u8]> = None;
                for entries in states {
                    let name = entries.peek()?.map(|entry| entry.name.as_slice());
                    first = [first, name].into_iter().flatten().min();
                }
                match first {
                    Some(name) => At::Entry(name.to_vec()),
                    None => return Ok(None),
                }
            }
        };
        Ok(Some(LookPlace { dir: self.path.clone(), at }))
    }

    /// Takes the next entry, which has this name, out of each version.
    fn take(&mut self, name: &[u8]) -> Result<Vec<Option<Node>>> {
        let Rest::Entries(states) = &mut self.rest else { return Ok(Vec::new()) };
        let mut nodes = Vec::with_capacity(states.len());
        for entries in states {
            let is_here = entries.peek()?.is_some_and(|entry| entry.name == name);
            nodes.push(if is_here { entries.next().transpose()?.map(|entry| entry.node) } else { None });
        }
        Ok(nodes)
    }
}

/// Whether a version has the directory in several pages, which makes searching for a name expensive.
fn is_paged(states: &[Option<Body>]) -> bool {
    states.iter().flatten().any(|body| matches!(body, Body::Inner { .. }))
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
