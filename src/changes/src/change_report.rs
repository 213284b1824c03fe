//! The changes of a run as text for readers of its output: a tree, a diffstat or a diff, of bounded size.

use avfs_request::ChangeForm;
use avfs_types::show_bytes_size;
use avfs_vault::backend::Reader;
use avfs_vault::diff::{Change, ChangeKind};
use avfs_vault::meter::Meter;
use avfs_vault::page::DirRef;
use avfs_vault::tree::StoppablePages;
use avfs_vault::{Result, Vault, VaultError};

use crate::change_summary::{ChangeSummary, Shown};
use crate::change_view::{Extent, file_sizes, kind_words, stat_view, tree_view};
use crate::git_patch::{PatchLimits, PatchUse, patch_view};

/// Maximum number of changes in a tree or a diffstat.
const CHANGES_MAX: usize = 200;
/// Small limits: the patch is only one part of a run's output.
const PATCH_LIMITS: PatchLimits = PatchLimits { file_bytes: 64 << 10, total_bytes: 256 << 10 };

/// Changes as text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ChangeReport {
    pub form: ChangeForm,
    pub text: String,
    /// Number of changes omitted from the text.
    pub left_off: u64,
    /// Number of paths for which the text has only a header.
    pub shortened: u64,
}

/// Reports changes.
pub struct ChangeSummaryService<'r> {
    pub vault: &'r Vault,
    pub reader: &'r dyn Reader,
}

impl ChangeSummaryService<'_> {
    /// The changes between two roots, without changes of the time only.
    pub fn between(&self, before: &DirRef, after: &DirRef, meter: &Meter) -> Result<ChangeSummary> {
        let pages = StoppablePages::new(&self.reader, meter);
        ChangeSummary::compare(self.vault, &pages, (before, after), &[], Shown::WithoutTimes)
    }

    /// The changes in a form. `None` for the summary, which is printed from the counts.
    pub fn report(&self, summary: &ChangeSummary, form: ChangeForm) -> Result<Option<ChangeReport>> {
        let report = |text, left_off| ChangeReport { form, text, left_off, shortened: 0 };
        Ok(match form {
            ChangeForm::Summary => None,
            ChangeForm::Tree => {
                let view = tree_view(summary, CHANGES_MAX)?;
                let lines = view.lines.iter().map(|line| {
                    let (letter, size) = match &line.change {
                        Some(change) => (kind_words(&change.kind).1, size(change)),
                        None => (' ', String::new()),
                    };
                    format!("{letter} {}{}{size}\n", "  ".repeat(line.depth), line.name)
                });
                Some(report(lines.collect(), view.left_off))
            }
            ChangeForm::Stat => {
                let view = stat_view(self.reader, summary, CHANGES_MAX)?;
                let lines = view.paths.iter().map(|(change, extent)| match extent {
                    Extent::Lines(stat) => {
                        format!("+{:<5} -{:<5} {}\n", stat.added, stat.deleted, shown_path(change))
                    }
                    Extent::Binary => format!("binary        {}\n", shown_path(change)),
                    Extent::TooLarge => format!("too large     {}\n", shown_path(change)),
                });
                Some(report(lines.collect(), view.left_off))
            }
            ChangeForm::Patch => {
                let mut text = String::new();
                let mut add = |lines: Vec<Vec<u8>>| {
                    for line in lines {
                        text.push_str(&String::from_utf8_lossy(&line));
                        text.push('\n');
                    }
                    Ok::<(), VaultError>(())
                };
                let missing = patch_view(self.reader, summary, PatchUse::Reading, PATCH_LIMITS, &mut add)?;
                Some(ChangeReport { shortened: missing.shortened, ..report(text, missing.left_off) })
            }
        })
    }
}

fn size(change: &Change) -> String {
    file_sizes(change).1.map(|bytes| format!("  ({})", show_bytes_size(bytes))).unwrap_or_default()
}

fn shown_path(change: &Change) -> String {
    match &change.kind {
        ChangeKind::Renamed { from } => format!("{from} -> {}", change.path),
        ChangeKind::Added
        | ChangeKind::Deleted
        | ChangeKind::Modified
        | ChangeKind::Mode
        | ChangeKind::Type
        | ChangeKind::Time => change.path.to_string(),
    }
}
