//! The versions of a fork, newest first.

use avfs_types::path::TreePath;
use avfs_types::reference::Reference;
use avfs_vault::backend::{Reader, VersionRecord};
use avfs_vault::page::Node;
use avfs_vault::version::{History, resolve, root_of};
use avfs_vault::{VaultError, tree};
use avfs_wire::VersionObject;
use avfs_workplace::{OpError, Workplace};

use crate::error::VerbError;
use crate::given_path::GivenPath;
use crate::labels::{Labels, labels};

/// What to list.
pub struct LogQuery {
    /// The fork, or the version to start at.
    pub reference: Reference,
    pub limit: Option<usize>,
    /// Only versions that changed this path; changes of modification times do not count.
    pub path: Option<GivenPath>,
}

/// What the list left out.
#[derive(Debug, Default)]
pub struct LogPage {
    /// There are older versions beyond the limit.
    pub more: bool,
    /// Versions that could not be searched for the path.
    pub pruned_skipped: u64,
    shown: usize,
}

impl LogPage {
    /// True if no searched version contains the path. A pruned version may have contained it.
    fn is_nowhere(&self) -> bool {
        self.shown == 0 && !self.more && self.pruned_skipped == 0
    }
}

/// Receives a version, and the names of the forks and checkpoints that point to it.
type Receive<'r> = dyn FnMut(VersionObject, &[String]) -> Result<(), OpError> + 'r;

/// Passes each version to `receive` as soon as it is found, however many follow.
pub fn log(workplace: &Workplace, query: &LogQuery, receive: &mut Receive<'_>) -> Result<LogPage, OpError> {
    let reader = workplace.vault.read()?;
    let (newest, _) = resolve(&*reader, &query.reference)?;
    let path = query.path.as_ref().map(|path| path.within(&workplace.vault)).transpose()?;
    let history = History::new(&*reader, newest.id);
    let mut list = List {
        labels: labels(&*reader)?,
        limit: query.limit.unwrap_or(usize::MAX),
        page: LogPage::default(),
        receive,
    };
    let Some(path) = path else {
        list.all(history)?;
        return Ok(list.page);
    };
    list.touching(&*reader, history, &path)?;
    if list.page.is_nowhere() {
        return Err(VerbError::in_version(&query.reference)(VaultError::NoPath { path }));
    }
    if list.page.pruned_skipped > 0 {
        let count = list.page.pruned_skipped;
        workplace.note(format_args!("note: {count} pruned versions could not be searched"));
    }
    Ok(list.page)
}

struct List<'r> {
    labels: Labels,
    limit: usize,
    page: LogPage,
    receive: &'r mut Receive<'r>,
}

impl List<'_> {
    fn show(&mut self, version: &VersionRecord) -> Result<(), OpError> {
        self.page.shown += 1;
        let names = self.labels.get(&version.id).map_or(&[][..], Vec::as_slice);
        (self.receive)(avfs_present::version(version), names)
    }

    fn all(&mut self, history: History<'_>) -> Result<(), OpError> {
        for version in history {
            if self.page.shown == self.limit {
                self.page.more = true;
                break;
            }
            self.show(&version?)?;
        }
        Ok(())
    }

    /// Compares each version with the next older one whose files are kept.
    fn touching(
        &mut self,
        reader: &dyn Reader,
        history: History<'_>,
        path: &TreePath,
    ) -> Result<(), OpError> {
        let mut newer: Option<(VersionRecord, Option<Node>)> = None;
        for version in history {
            let version = version?;
            if version.pruned_at.is_some() {
                self.page.pruned_skipped += 1;
                continue;
            }
            let node = tree::lookup(&reader, &root_of(&version)?, path)?;
            if let Some((candidate, there)) = newer.take()
                && differ(there.as_ref(), node.as_ref())
            {
                if self.page.shown == self.limit {
                    self.page.more = true;
                    return Ok(());
                }
                self.show(&candidate)?;
            }
            newer = Some((version, node));
        }
        match newer {
            Some((_, Some(_))) if self.page.shown == self.limit => self.page.more = true,
            Some((first, Some(_))) => self.show(&first)?,
            Some((_, None)) | None => {}
        }
        Ok(())
    }
}

/// Whether two nodes differ in anything except their times.
fn differ(a: Option<&Node>, b: Option<&Node>) -> bool {
    match (a, b) {
        (Some(Node::File(a)), Some(Node::File(b))) => {
            (a.content, a.mode, a.xattrs, a.link) != (b.content, b.mode, b.xattrs, b.link)
        }
        (Some(Node::Dir(a)), Some(Node::Dir(b))) => a.content != b.content,
        (Some(Node::Symlink(a)), Some(Node::Symlink(b))) => (&a.target, a.link) != (&b.target, b.link),
        (Some(Node::Fifo(a)), Some(Node::Fifo(b))) => (a.mode, a.link) != (b.mode, b.link),
        (None, None) => false,
        (Some(Node::File(_) | Node::Dir(_) | Node::Symlink(_) | Node::Fifo(_)) | None, _) => true,
    }
}
