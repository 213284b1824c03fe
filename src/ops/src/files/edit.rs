//! The verbs that edit a fork without a run. Each adds one version, unless nothing changes.

use std::io::Read;

use avfs_engine::{bound_dir, version_message};
use avfs_types::diagnose::shell_word;
use avfs_types::ids::ForkName;
use avfs_types::path::TreePath;
use avfs_vault::ops::{Depth, Parents};
use avfs_vault::{Committed, VaultError};
use avfs_wire::Edited;
use avfs_workplace::{OpError, Workplace};

use crate::error::VerbError;
use crate::given_path::{GivenPath, within};

/// The fork that an edit adds a version to.
pub struct EditTarget {
    pub fork: ForkName,
    /// The message of the version; `None` for a description of the edit.
    pub message: Option<String>,
}

impl EditTarget {
    fn message_or(&self, edit: impl FnOnce() -> String) -> String {
        self.message.clone().unwrap_or_else(edit)
    }
}

/// Writes a file, and creates missing parents. An existing file keeps its mode if none is given.
pub fn write(
    workplace: &Workplace,
    target: &EditTarget,
    path: &GivenPath,
    input: Box<dyn Read + Send>,
    mode: Option<u32>,
) -> Result<Edited, OpError> {
    let path = path.within(&workplace.vault)?;
    let message = target.message_or(|| format!("write {path}"));
    let written = workplace.vault.write_file(&target.fork, &path, input, mode, &message);
    edited(workplace, &target.fork, &written.map_err(VerbError::in_version(&target.fork))?)
}

/// Creates a directory.
pub fn mkdir(
    workplace: &Workplace,
    target: &EditTarget,
    path: &GivenPath,
    parents: Parents,
) -> Result<Edited, OpError> {
    let path = path.within(&workplace.vault)?;
    let message = target.message_or(|| format!("mkdir {path}"));
    let made = workplace.vault.make_dir(&target.fork, &path, parents, &message);
    let made = made.map_err(|error| {
        if !matches!(error, VaultError::NoPath { .. }) {
            return error.into();
        }
        let (avfs, path) = (&workplace.client.avfs, path.to_string());
        let hint = format!("create it too with: {avfs} mkdir -p {}", shell_word(path.as_ref()));
        OpError::from(VerbError::Advised { error, hint })
    })?;
    edited(workplace, &target.fork, &made)
}

/// Removes all paths in one version.
pub fn rm(
    workplace: &Workplace,
    target: &EditTarget,
    paths: &[GivenPath],
    depth: Depth,
) -> Result<Edited, OpError> {
    let paths = within(paths, &workplace.vault)?;
    let message = target.message_or(|| {
        let names: Vec<String> = paths.iter().map(TreePath::to_string).collect();
        version_message(&format!("rm {}", names.join(" ")))
    });
    let removed = workplace.vault.remove(&target.fork, &paths, depth, &message);
    edited(workplace, &target.fork, &removed.map_err(VerbError::in_version(&target.fork))?)
}

/// Moves or renames a path. Replaces an existing file, but not a directory.
pub fn mv(
    workplace: &Workplace,
    target: &EditTarget,
    from: &GivenPath,
    to: &GivenPath,
) -> Result<Edited, OpError> {
    let (from, to) = (from.within(&workplace.vault)?, to.target(&workplace.vault)?);
    let message = target.message_or(|| version_message(&format!("mv {from} {}", to.path)));
    let moved = workplace.vault.move_path(&target.fork, &from, to, &message);
    edited(workplace, &target.fork, &moved.map_err(VerbError::in_version(&target.fork))?)
}

/// Copies a path; the copy shares the content. Replaces an existing file, but not a directory.
pub fn cp(
    workplace: &Workplace,
    target: &EditTarget,
    from: &GivenPath,
    to: &GivenPath,
    depth: Depth,
) -> Result<Edited, OpError> {
    let (from, to) = (from.within(&workplace.vault)?, to.target(&workplace.vault)?);
    let message = target.message_or(|| version_message(&format!("cp {from} {}", to.path)));
    let copied = workplace.vault.copy_path(&target.fork, &from, to, depth, &message);
    edited(workplace, &target.fork, &copied.map_err(VerbError::in_version(&target.fork))?)
}

/// The answer: the new head of the fork.
pub(crate) fn edited(
    workplace: &Workplace,
    fork: &ForkName,
    committed: &Committed,
) -> Result<Edited, OpError> {
    note_directory(workplace, fork, committed)?;
    Ok(avfs_present::edited(fork, committed))
}

/// Notes that a new version of main did not change the bound directory: the next import replaces it.
pub(crate) fn note_directory(
    workplace: &Workplace,
    fork: &ForkName,
    committed: &Committed,
) -> Result<(), OpError> {
    if *fork == ForkName::main() && committed.changed() && bound_dir(&workplace.vault)?.is_some() {
        workplace.note(format_args!(
            "note: the files in the directory did not change; the next import or run without --fork records them again"
        ));
    }
    Ok(())
}
