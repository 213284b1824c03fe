//! The source of a replay: a list file, or a list made from the journal; and the start version of each run.

use std::fs::File;
use std::io::BufWriter;
use std::path::Path;

use avfs_hostfs::random;
use avfs_lists::list::{ListFile, ListWriter};
use avfs_lists::record::{Selection, SelectionError, export};
use avfs_ops::{OpError, WorkplaceError};
use avfs_types::ids::{VersionId, from_hex};
use avfs_vault::Vault;
use avfs_vault::version::root_of;
use avfs_wire::{LIST_VERSION, ListHeader, ListItem};

use super::ReplayArgs;
use super::error::ReplayError;
use crate::context::CommandContext;

pub struct Source {
    pub list: ListFile,
    /// For each item, whether its start version is in the vault.
    begins_here: Vec<bool>,
}

impl Source {
    pub fn open(ctx: &CommandContext, args: &ReplayArgs, vault: &Vault) -> Result<Self, OpError> {
        let path = Path::new(&args.what);
        let list = if args.what == "-" || path.exists() {
            ListFile::open(path, &std::env::temp_dir())?
        } else {
            of_journal(ctx, args, vault)?
        };
        if list.is_empty() {
            return Err(ReplayError::Empty { what: args.what.clone() }.into());
        }
        let mut begins_here = Vec::with_capacity(list.len());
        let reader = vault.read()?;
        for number in 0..list.len() {
            let item = list.item(number)?;
            let known = match start(&item) {
                Some(id) => match reader.version(&id).map_err(avfs_vault::VaultError::from)? {
                    Some(version) if version.pruned_at.is_none() => {
                        // Refuses a partial version.
                        root_of(&version)?;
                        true
                    }
                    Some(_) | None => false,
                },
                None => false,
            };
            // A recorded run had a start version, even if it was unknown when the list was made.
            let by_hand = item.start.is_none() && item.run.is_none();
            let has_other_way = by_hand || !list.needs(number).is_empty();
            if !known && !has_other_way {
                return Err(unknown_base(&list, &item, &vault.id()?).into());
            }
            begins_here.push(known);
        }
        Ok(Self { list, begins_here })
    }

    /// The items to replay before this one: none if its start version is in the vault.
    pub fn waits_for(&self, item: u32) -> &[u32] {
        match self.begins_here.get(item as usize) {
            Some(true) => &[],
            Some(false) | None => self.list.needs(item as usize),
        }
    }

    /// The start version of an item, if it is in the vault.
    pub fn begins(&self, number: u32, item: &ListItem) -> Option<VersionId> {
        start(item).filter(|_| self.begins_here.get(number as usize) == Some(&true))
    }
}

fn start(item: &ListItem) -> Option<VersionId> {
    VersionId::from_slice(&from_hex(item.start.as_ref()?.version.as_ref()?)?)
}

fn unknown_base(list: &ListFile, item: &ListItem, here: &str) -> ReplayError {
    let version = item.start.as_ref().and_then(|start| start.version.clone().or_else(|| start.tree.clone()));
    let version = version.map_or_else(
        || "a version that no longer existed when the list was made".to_owned(),
        |version| format!("version {version}"),
    );
    let id = item.id.clone();
    match list.header().and_then(|header| header.vault_id.as_deref()) {
        Some(recorded) if recorded == here => ReplayError::GoneBase { id, version },
        Some(recorded) => ReplayError::UnknownBase {
            id,
            version,
            recorded_in: format!("; it was recorded in vault {recorded}"),
        },
        None => ReplayError::UnknownBase { id, version, recorded_in: String::new() },
    }
}

/// Exports the selected runs of the journal to an unlinked temporary list.
fn of_journal(ctx: &CommandContext, args: &ReplayArgs, vault: &Vault) -> Result<ListFile, OpError> {
    let selection = Selection::find(vault, &args.what).map_err(|error| match error {
        SelectionError::Unknown { text } => OpError::from(ReplayError::Unknown { what: text }),
        other @ (SelectionError::Vault(_) | SelectionError::Ambiguous { .. }) => other.into(),
    })?;
    let dir = std::env::temp_dir();
    let path = dir.join(format!(
        "avfs-replay-{}",
        random::suffix().map_err(WorkplaceError::host("create a file in", &dir))?
    ));
    let failed = |source| OpError::from(WorkplaceError::host("write", &path)(source));
    let file = File::create_new(&path).map_err(failed)?;
    let written = (|| {
        let header =
            ListHeader { avfs_list: LIST_VERSION, vault_id: Some(vault.id()?), ..ListHeader::default() };
        let mut list = ListWriter::new(BufWriter::new(file), &header).map_err(failed)?;
        let exported = export(vault, &selection, |item| list.item(item).map_err(failed))?;
        list.finish().map_err(failed)?;
        for (why, count) in &exported.left_out {
            ctx.ui.note(format_args!("note: {count} left out: {why}"));
        }
        Ok(ListFile::open(&path, &dir)?)
    })();
    // The file is open and no longer needs its name.
    let _ = std::fs::remove_file(&path);
    written
}
