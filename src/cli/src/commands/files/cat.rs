//! `avfs cat`

use clap::Args;

use avfs_ops::{GivenPath, OpError, VerbError, within};
use avfs_types::path::TreePath;
use avfs_types::reference::Reference;
use avfs_vault::page::{FileNode, Node};
use avfs_vault::{VaultError, copy_content, read_content};
use avfs_wire::{Cat, CatFile};

use crate::context::CommandContext;
use crate::given_path::tree_path;
use crate::ui::{Format, Outcome, streaming_failure};
use crate::view::View;

/// The limit for an answer in JSON, which is built in memory.
const JSON_BYTES_MAX: u64 = 64 << 20;

/// Print files of a version
///
/// With --json the content is in the answer, as text or base64, up to 64 MiB for all files together.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  avfs cat main README.md
  avfs cat main~3 src/main.rs > old.rs")]
pub struct CatArgs {
    /// The version to read
    #[arg(value_name = "REF")]
    reference: Reference,
    /// The files to print, in this order
    #[arg(value_name = "PATH", required = true, value_parser = tree_path())]
    paths: Vec<GivenPath>,
}

pub fn run(ctx: &CommandContext, args: &CatArgs) -> Outcome {
    let vault = ctx.open_vault()?;
    let view = View::open(&vault, &args.reference)?;
    let paths = within(&args.paths, &vault)?;
    // Look up all paths first, to report an unknown path before writing anything.
    let files: Vec<(&TreePath, FileNode)> = paths
        .iter()
        .map(|path| Ok((path, file_at(&view, &args.reference, path)?)))
        .collect::<Result<_, OpError>>()?;
    let mut result = Cat { version: view.version.id.to_hex(), files: Vec::new() };
    if ctx.ui.format == Format::Json {
        let size = files.iter().fold(0_u64, |sum, (_, file)| sum.saturating_add(file.size));
        if size > JSON_BYTES_MAX {
            return Err(VerbError::TooLargeForJson { size, max: JSON_BYTES_MAX }.into());
        }
        for (path, file) in &files {
            result.files.push(CatFile::of(path, read_content(view.reader(), file)?));
        }
    }
    ctx.ui.answer(&result, |out| {
        for (_, file) in &files {
            out.content(|to| copy_content(view.reader(), file, to).map_err(streaming_failure))?;
        }
        Ok(())
    })
}

fn file_at(view: &View<'_>, reference: &Reference, path: &TreePath) -> Result<FileNode, OpError> {
    match view.node(path).map_err(VerbError::in_version(reference))? {
        Node::File(file) => Ok(file),
        other @ (Node::Dir(_) | Node::Symlink(_) | Node::Fifo(_)) => {
            let error = VaultError::NotAFile { path: path.clone(), kind: other.kind() };
            Err(VerbError::in_version(reference)(error))
        }
    }
}
