//! The source of a scan of the upper of an overlay: whiteouts, opaque directories, ignore rules that may come from the
//! base, and files that their owner cannot read.

use std::collections::HashMap;
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Mutex;

use avfs_hostfs::beneath::Listed;
use avfs_hostfs::overlay::Shows;
use avfs_hostfs::stat::{HostKind, HostStat};
use avfs_hostfs::xattr::Xattrs;
use avfs_hostfs::{beneath, make, overlay};
use avfs_types::clock::FileTime;
use avfs_types::path::TreePath;
use avfs_types::secrets::Secrets;

use super::merger::Merger;
use super::modes::{Modes, is_closed};
use super::over::Over;
use super::{CaptureError, LeftOutReason, Times, UpperKind};
use crate::backend::Reader;
use crate::ignore::{FILE_NAME, Rules, Text};
use crate::own::OwnFile;
use crate::page::{Body, DirRef, FileContent, Node};
use crate::pages::NewPages;
use crate::transfer::Result;
use crate::transfer::scan::{
    BuiltDir, Found, Groups, Job, Listing, ScannedDir, ScannedEntry, Shared, Source, What, lock,
};
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

    fn rule_against(&self, job: &Job<Over>, path: &TreePath, is_dir: bool) -> Option<LeftOutReason> {
        if job.own.ignored.is_some() {
            return job.own.ignored.clone();
        }
        if self.exclude.ignores(path, is_dir) {
            return Some(LeftOutReason::Excluded);
        }
        job.rules.ignores(path, is_dir).then_some(LeftOutReason::Ignored)
    }
}

impl Source for Upper<'_> {
    type Dir = Over;

    const IS_QUIET: bool = true;
    /// The entries of an upper have more to them, and hard links in it are few.
    const SPILLS: bool = false;

    /// Also if the mode of the directory denies access to its owner.
    fn open_dir(&self, root: BorrowedFd<'_>, path: &TreePath) -> io::Result<OwnedFd> {
        let open = || beneath::open(root, path.as_bytes(), beneath::DIR);
        let fd = match open() {
            Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {
                self.modes.open_up(root, path)?;
                open()?
            }
            other => other?,
        };
        // It may be readable but not searchable.
        if is_closed(&beneath::fstat(fd.as_fd())?) {
            self.modes.open_up(root, path)?;
        }
        Ok(fd)
    }

    fn stat_of_dir(
        shared: &Shared<'_, Self>,
        job: &Job<Over>,
        dir: &OwnedFd,
        stat: HostStat,
    ) -> Result<HostStat> {
        shared.settle_dir_time(job, dir, stat)
    }

    fn list<'j>(
        shared: &Shared<'_, Self>,
        job: &'j mut Job<Over>,
        dir: OwnedFd,
        found: Found,
    ) -> Result<Option<Listing<'j, Over>>> {
        job.own.hides_base |= found.shows == Shows::Itself;
        let Some(names) = shared.names(dir.as_fd(), &job.path)? else { return Ok(None) };
        job.own.holds_copies =
            job.own.base.is_some_and(|base| base.totals.links > 0) && overlay::holds_copies(dir.as_fd());
        job.rules = shared.upper_rules(job, &dir, &names)?;
        shared.list_upper(job, dir, names).map(Some)
    }

    fn tree(
        &self,
        dir: &ScannedDir<Over>,
        built: &HashMap<u32, BuiltDir>,
        groups: &Groups,
        new: &mut NewPages,
    ) -> Result<DirRef> {
        self.merger.merge(dir, built, groups, new)
    }

    fn visible(&self, xattrs: Xattrs) -> (Xattrs, Shows) {
        match self.kind {
            UpperKind::Layer => overlay::unescape(xattrs),
            UpperKind::Whole => (xattrs, Shows::Beneath),
        }
    }

    fn true_mode(&self, stat: &HostStat) -> u32 {
        self.modes.true_mode(stat)
    }

    fn kept_xattrs(shared: &Shared<'_, Self>, path: &TreePath, xattrs: Xattrs) -> Xattrs {
        shared.without_secrets(path, xattrs)
    }

    fn withholds_small(
        shared: &Shared<'_, Self>,
        path: &TreePath,
        bytes: &[u8],
        xattrs: &Xattrs,
    ) -> Result<bool> {
        shared.withholds_bytes(path, bytes, xattrs)
    }

    fn withholds_large(shared: &Shared<'_, Self>, path: &TreePath, file: &File) -> Result<bool> {
        shared.withholds_file(path, file)
    }
}

impl Shared<'_, Upper<'_>> {
    /// Sets the mtime of a directory of an upper if required, and returns its new stat.
    fn settle_dir_time(&self, job: &Job<Over>, fd: &OwnedFd, stat: HostStat) -> Result<HostStat> {
        let in_base = || match job.own.base {
            Some(base) => Ok(Some(tree::top(&&*self.vault.read()?, &base.tree)?.0.mtime)),
            None => Ok(None),
        };
        let Some(time) = self.source.other_time(&stat, in_base)? else { return Ok(stat) };
        let set = make::set_mtime(fd.as_fd(), time).and_then(|()| beneath::fstat(fd.as_fd()));
        let io = |source| CaptureError::Io { operation: "set the time of", path: job.path.clone(), source };
        Ok(set.map_err(io)?)
    }

    /// The rules in a directory of an upper: those of the ignore file that is visible in the overlay, which may be the
    /// base's.
    fn upper_rules(&self, job: &Job<Over>, fd: &OwnedFd, names: &[Listed]) -> Result<Rules> {
        let path = job.path.join(FILE_NAME);
        let in_upper = names.binary_search_by(|listed| listed.name.as_slice().cmp(FILE_NAME)).is_ok();
        let text = if in_upper {
            self.ignore_file_in_upper(fd, &path)?
        } else if job.own.hides_base {
            return Ok(job.rules.clone());
        } else {
            let reader = self.vault.read()?;
            match job.own.base.map(|base| tree::entry(&&*reader, &base.tree, FILE_NAME)).transpose()? {
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
            lock(&self.source.bad_ignore_files).push(path);
        }
        Ok(rules)
    }

    fn ignore_file_in_upper(&self, dir: &OwnedFd, path: &TreePath) -> Result<Text> {
        let read = || -> io::Result<Text> {
            let stat = beneath::stat(dir.as_fd(), FILE_NAME)?;
            if stat.kind != HostKind::File {
                return Ok(Text::None);
            }
            self.open_up_if_closed(path, &stat)?;
            ignore::read(dir.as_fd())
        };
        Ok(self.tolerate(read(), "read", || path.clone())?.unwrap_or(Text::None))
    }

    fn open_up_if_closed(&self, path: &TreePath, stat: &HostStat) -> io::Result<()> {
        if !is_closed(stat) {
            return Ok(());
        }
        match self.source.modes.open_up(self.root.as_fd(), path) {
            // Owned by another user: opening it shows whether it is readable anyway.
            Err(error) if error.kind() == io::ErrorKind::PermissionDenied => Ok(()),
            other => other,
        }
    }

    /// Scans the entries of a directory of an upper.
    fn list_upper<'j>(
        &self,
        job: &'j Job<Over>,
        fd: OwnedFd,
        names: Vec<Listed>,
    ) -> Result<Listing<'j, Over>> {
        let mut listing = Listing::new(job, fd, names.len());
        let reader = self.vault.read()?;
        let body = job.own.base.map(|base| tree::top(&&*reader, &base.tree)).transpose()?;
        let below = Below { reader: &*reader, body: body.map(|(_, body)| body) };
        for listed in names {
            self.add_upper(&mut listing, &below, listed)?;
        }
        Ok(listing)
    }

    fn add_upper(&self, listing: &mut Listing<'_, Over>, below: &Below<'_>, listed: Listed) -> Result<()> {
        let upper = &self.source;
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
                    hides_base: job.own.hides_base,
                    holds_copies: false,
                    ignored: rule,
                };
                let subdir = self.subdir(job, path, None, over);
                let number = subdir.number;
                listing.subdirs.push(subdir);
                What::Dir(number)
            }
            HostKind::File if stat.size > upper.file_bytes_max => {
                let (size, max) = (stat.size, upper.file_bytes_max);
                upper.leave_out(path, LeftOutReason::TooLarge { size, max });
                What::Gone
            }
            HostKind::File => {
                let opened = self.open_up_if_closed(&path, &stat);
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
