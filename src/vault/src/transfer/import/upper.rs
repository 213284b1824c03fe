//! Scanning the upper of an overlay: whiteouts, opaque directories, ignore rules that may come from the base, and files
//! that their owner cannot read.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Mutex;

use avfs_hostfs::beneath::Listed;
use avfs_hostfs::stat::{HostKind, HostStat};
use avfs_hostfs::{beneath, make};
use avfs_types::clock::FileTime;
use avfs_types::path::TreePath;
use avfs_types::secrets::Secrets;

use super::scan::{Job, Listing};
use super::shared::{Flavour, ScannedEntry, Shared, What, lock};
use super::touched::Reach;
use crate::backend::Reader;
use crate::capture::merger::Merger;
use crate::capture::modes::{Modes, is_closed};
use crate::capture::{CaptureError, LeftOutReason, Times, UpperKind};
use crate::ignore::{FILE_NAME, Rules, Text};
use crate::own::OwnFile;
use crate::page::{Body, DirRef, FileContent, Node};
use crate::transfer::Result;
use crate::{content, ignore, tree};

/// Settings and results for a whole upper.
pub(crate) struct Upper<'a> {
    pub(crate) kind: UpperKind,
    pub(crate) exclude: Rules,
    pub(crate) hidden: &'a [TreePath],
    pub(crate) own: OwnFile,
    pub(crate) file_bytes_max: u64,
    /// Secrets whose values must not be captured.
    pub(crate) secrets: &'a Secrets,
    pub(crate) times: Times,
    pub modes: &'a Modes,
    pub(crate) merger: &'a Merger<'a>,
    pub(crate) left_out: Mutex<Vec<(TreePath, LeftOutReason)>>,
    pub(crate) bad_ignore_files: Mutex<Vec<TreePath>>,
}

/// The base beneath a directory of an upper.
#[derive(Clone, Default)]
pub(crate) struct Over {
    /// The base's directory at the same path, visible or not.
    pub(crate) base: Option<DirRef>,
    /// The directory, or one above it, is opaque: nothing of the base is visible.
    pub(crate) hides_base: bool,
    /// A file was copied up into it; only determined if the base has hard links.
    pub(crate) holds_copies: bool,
    /// The reason why all entries that the base does not have are left out.
    pub(crate) ignored: Option<LeftOutReason>,
}

/// The base's directory, for lookups of single names.
struct Below<'r> {
    reader: &'r dyn Reader,
    body: Option<Body>,
}

impl Below<'_> {
    fn entry(&self, name: &[u8]) -> crate::Result<Option<Node>> {
        self.body.as_ref().map_or(Ok(None), |body| tree::entry_in(&self.reader, body, name))
    }
}

impl Upper<'_> {
    /// The mtime to set on a file; `None` if it keeps its own. `in_base` returns its mtime in the base.
    fn other_time(
        &self,
        stat: &HostStat,
        in_base: impl FnOnce() -> Result<Option<FileTime>>,
    ) -> Result<Option<FileTime>> {
        match self.times {
            Times::Fixed { since, to } if stat.mtime >= since && stat.mtime != to => {
                let in_base = in_base()?;
                Ok(Some(to).filter(|_| in_base != Some(stat.mtime)))
            }
            Times::Fixed { .. } | Times::AsWritten => Ok(None),
        }
    }

    pub(crate) fn leave_out(&self, path: TreePath, reason: LeftOutReason) {
        lock(&self.left_out).push((path, reason));
    }

    /// The reason why a path is never captured, regardless of the base.
    fn is_untouchable(&self, path: &TreePath) -> Option<LeftOutReason> {
        // `.avfs` at any depth: the next command in that directory would look for its vault there.
        if self.own.covers(path) {
            return Some(LeftOutReason::Own);
        }
        self.hidden.contains(path).then_some(LeftOutReason::Hidden)
    }

    fn rule_against(&self, job: &Job, path: &TreePath, is_dir: bool) -> Option<LeftOutReason> {
        if job.over.ignored.is_some() {
            return job.over.ignored.clone();
        }
        if self.exclude.ignores(path, is_dir) {
            return Some(LeftOutReason::Excluded);
        }
        job.rules.ignores(path, is_dir).then_some(LeftOutReason::Ignored)
    }
}

impl Shared<'_> {
    /// Opens a directory; in an upper, even if its mode denies access to its owner.
    pub(crate) fn open_dir(&self, path: &TreePath) -> io::Result<OwnedFd> {
        let open = || beneath::open(self.root.as_fd(), path.as_bytes(), beneath::DIR);
        let Flavour::Upper(upper) = &self.flavour else { return open() };
        let fd = match open() {
            Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {
                upper.modes.open_up(self.root.as_fd(), path)?;
                open()?
            }
            other => other?,
        };
        // It may be readable but not searchable.
        if is_closed(&beneath::fstat(fd.as_fd())?) {
            upper.modes.open_up(self.root.as_fd(), path)?;
        }
        Ok(fd)
    }

    /// Sets the mtime of a directory of an upper if required, and returns its new stat.
    pub(crate) fn settle_dir_time(
        &self,
        upper: &Upper<'_>,
        job: &Job,
        fd: &OwnedFd,
        stat: HostStat,
    ) -> Result<HostStat> {
        let in_base = || match job.over.base {
            Some(base) => Ok(Some(tree::top(&&*self.vault.read()?, &base.tree)?.0.mtime)),
            None => Ok(None),
        };
        let Some(time) = upper.other_time(&stat, in_base)? else { return Ok(stat) };
        let set = make::set_mtime(fd.as_fd(), time).and_then(|()| beneath::fstat(fd.as_fd()));
        let io = |source| CaptureError::Io { operation: "set the time of", path: job.path.clone(), source };
        Ok(set.map_err(io)?)
    }

    /// The rules in a directory of an upper: those of the ignore file that is visible in the overlay, which may be the
    /// base's.
    pub(crate) fn upper_rules(
        &self,
        upper: &Upper<'_>,
        job: &Job,
        fd: &OwnedFd,
        names: &[Listed],
    ) -> Result<Rules> {
        let path = job.path.join(FILE_NAME);
        let in_upper = names.binary_search_by(|listed| listed.name.as_slice().cmp(FILE_NAME)).is_ok();
        let text = if in_upper {
            self.ignore_file_in_upper(upper, fd, &path)?
        } else if job.over.hides_base {
            return Ok(job.rules.clone());
        } else {
            let reader = self.vault.read()?;
            match job.over.base.map(|base| tree::entry(&&*reader, &base.tree, FILE_NAME)).transpose()? {
                Some(Some(Node::File(file))) => match file.content {
                    FileContent::Whole(id) => Text::Read(content::decode(content::fetch(&*reader, &id)?)?),
                    FileContent::Chunked(_) => Text::TooLong,
                },
                Some(Some(Node::Dir(_) | Node::Symlink(_) | Node::Fifo(_)) | None) | None => Text::None,
            }
        };
        // A command can write any ignore file: an invalid one must not prevent the capture of its changes.
        let (rules, good) = match text {
            Text::None => return Ok(job.rules.clone()),
            Text::TooLong => (job.rules.clone(), false),
            Text::Read(text) => job.rules.with_readable(&job.path, &text),
        };
        if !good {
            lock(&upper.bad_ignore_files).push(path);
        }
        Ok(rules)
    }

    fn ignore_file_in_upper(&self, upper: &Upper<'_>, dir: &OwnedFd, path: &TreePath) -> Result<Text> {
        let read = || -> io::Result<Text> {
            let stat = beneath::stat(dir.as_fd(), FILE_NAME)?;
            if stat.kind != HostKind::File {
                return Ok(Text::None);
            }
            self.open_up_if_closed(upper, path, &stat)?;
            ignore::read(dir.as_fd())
        };
        Ok(self.tolerate(read(), "read", || path.clone())?.unwrap_or(Text::None))
    }

    fn open_up_if_closed(&self, upper: &Upper<'_>, path: &TreePath, stat: &HostStat) -> io::Result<()> {
        if !is_closed(stat) {
            return Ok(());
        }
        match upper.modes.open_up(self.root.as_fd(), path) {
            // Owned by another user: opening it shows whether it is readable anyway.
            Err(error) if error.kind() == io::ErrorKind::PermissionDenied => Ok(()),
            other => other,
        }
    }

    /// Scans the entries of a directory of an upper.
    pub(crate) fn list_upper<'j>(
        &self,
        upper: &Upper<'_>,
        job: &'j Job,
        fd: OwnedFd,
        names: Vec<Listed>,
    ) -> Result<Listing<'j>> {
        let mut listing = Listing::new(job, fd, names.len());
        let reader = self.vault.read()?;
        let body = job.over.base.map(|base| tree::top(&&*reader, &base.tree)).transpose()?;
        let below = Below { reader: &*reader, body: body.map(|(_, body)| body) };
        for listed in names {
            self.add_upper(upper, &mut listing, &below, listed)?;
        }
        Ok(listing)
    }

    fn add_upper(
        &self,
        upper: &Upper<'_>,
        listing: &mut Listing<'_>,
        below: &Below<'_>,
        listed: Listed,
    ) -> Result<()> {
        let job = listing.job;
        let path = job.path.join(&listed.name);
        let name = listed.name;
        let looked = beneath::stat(listing.fd.as_fd(), &name);
        let Some(mut stat) = self.tolerate(looked, "stat", || path.clone())? else { return Ok(()) };
        // The mtime of a directory is handled by its own job.
        let is_kept = matches!(stat.kind, HostKind::File | HostKind::Symlink | HostKind::Fifo);
        if is_kept && let Some(time) = upper.other_time(&stat, || Ok(time_of(below.entry(&name)?)))? {
            let set = make::set_time(listing.fd.as_fd(), &name, time);
            let set = set.and_then(|()| beneath::stat(listing.fd.as_fd(), &name));
            let Some(after) = self.tolerate(set, "set the time of", || path.clone())? else { return Ok(()) };
            stat = HostStat { atime: stat.atime, ..after };
        }
        let is_dir = stat.kind == HostKind::Dir;
        let nothing = |what| ScannedEntry { name: name.clone(), stat, what, settled: true };
        if let Some(reason) = upper.is_untouchable(&path) {
            // A whiteout without an entry in the base may come from the sandbox, which hides such paths: not a change.
            if stat.kind != HostKind::Whiteout || below.entry(&name)?.is_some() {
                upper.leave_out(path, reason);
            }
            listing.entries.push(nothing(What::Gone));
            return Ok(());
        }
        if stat.kind == HostKind::Whiteout {
            if upper.kind == UpperKind::Whole {
                upper.leave_out(path, LeftOutReason::Special("character device"));
            }
            listing.entries.push(nothing(What::Whiteout));
            return Ok(());
        }
        let rule = upper.rule_against(job, &path, is_dir);
        let in_base = if is_dir || rule.is_some() { below.entry(&name)? } else { None };
        let base_dir = match &in_base {
            Some(Node::Dir(dir)) => Some(*dir),
            Some(Node::File(_) | Node::Symlink(_) | Node::Fifo(_)) | None => None,
        };
        // As in git, a rule applies only to unversioned paths. A path that was versioned before the rule existed stays
        // versioned; leaving out its changes would lose work that every earlier run has kept.
        let versioned = in_base.is_some() && base_dir.is_some() == is_dir;
        if let Some(reason) = rule.clone().filter(|_| !versioned) {
            upper.leave_out(path, reason);
            listing.entries.push(nothing(What::Whiteout));
            return Ok(());
        }
        if let Some(secret) = upper.secret_in_name(&job.path, &path)
            && below.entry(&name)?.is_none()
        {
            upper.leave_out(path, LeftOutReason::Secret(secret));
            listing.entries.push(nothing(What::Gone));
            return Ok(());
        }
        let what = match stat.kind {
            HostKind::Dir if path.is_too_deep() => {
                upper.leave_out(path, LeftOutReason::TooDeep);
                What::Gone
            }
            HostKind::Dir => {
                let over = Over {
                    base: base_dir,
                    hides_base: job.over.hides_base,
                    holds_copies: false,
                    ignored: rule,
                };
                let (number, _) = self.assembly.number(None, || self.next_number());
                listing.subdirs.push(Job {
                    number,
                    parent: Some(job.number),
                    path,
                    cached: None,
                    rules: job.rules.clone(),
                    over,
                    reach: Reach::Everything,
                });
                What::Dir(number)
            }
            HostKind::File if stat.size > upper.file_bytes_max => {
                let (size, max) = (stat.size, upper.file_bytes_max);
                upper.leave_out(path, LeftOutReason::TooLarge { size, max });
                What::Gone
            }
            HostKind::File => {
                let opened = self.open_up_if_closed(upper, &path, &stat);
                self.tolerate(opened, "change the mode of", || path.clone())?;
                listing.pending.push((listing.entries.len(), name.clone()));
                What::Pending
            }
            HostKind::Symlink => {
                let read = beneath::read_link(listing.fd.as_fd(), &name);
                let read = self.tolerate(read, "read the link", || path.clone())?;
                let secret = read.as_ref().and_then(|target| upper.secrets.held_by(target));
                match (read, secret) {
                    (Some(target), Some(secret)) if !is_link_to(below.entry(&name)?, &target) => {
                        upper.leave_out(path, LeftOutReason::Secret(secret.to_owned()));
                        What::Gone
                    }
                    (Some(target), Some(_) | None) => What::Symlink { target },
                    (None, _) => What::Gone,
                }
            }
            HostKind::Fifo => What::Fifo,
            HostKind::Special(kind) => {
                upper.leave_out(path, LeftOutReason::Special(kind));
                What::Whiteout
            }
            HostKind::Whiteout => What::Whiteout,
        };
        listing.entries.push(nothing(what));
        Ok(())
    }
}

/// The mtime of a node that is not a directory.
fn time_of(node: Option<Node>) -> Option<FileTime> {
    match node? {
        Node::File(file) => Some(file.mtime),
        Node::Symlink(link) => Some(link.mtime),
        Node::Fifo(fifo) => Some(fifo.mtime),
        Node::Dir(_) => None,
    }
}

fn is_link_to(node: Option<Node>, target: &[u8]) -> bool {
    matches!(node, Some(Node::Symlink(link)) if link.target == target)
}
