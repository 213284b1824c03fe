//! `avfs tree`

use clap::Args;

use avfs_ops::{GivenPath, OpError, VerbError};
use avfs_terminal::{Painted, Tone};
use avfs_types::path::TreePath;
use avfs_types::reference::Reference;
use avfs_vault::page::Node;
use avfs_wire::Entries;

use crate::context::CommandContext;
use crate::given_path::tree_path;
use crate::ui::{Out, Outcome};
use crate::view::{View, WalkedEntry, arrow, plural};

/// Show the files of a version as a tree
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  avfs tree main
  avfs tree main src --depth 2")]
pub struct TreeArgs {
    /// The version to show
    #[arg(value_name = "REF")]
    reference: Reference,
    /// The directory or file to start at [default: the root]
    #[arg(default_value = "", hide_default_value = true, value_parser = tree_path())]
    path: GivenPath,
    /// Show at most N levels [default: all]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..))]
    depth: Option<u16>,
}

pub fn run(ctx: &CommandContext, args: &TreeArgs) -> Outcome {
    let vault = ctx.open_vault()?;
    let view = View::open(&vault, &args.reference)?;
    let path = args.path.within(&vault)?;
    let found =
        view.walk(&path, args.depth.map(usize::from)).map_err(VerbError::in_version(&args.reference))?;
    let result =
        Entries { version: view.version.id.to_hex(), entries: view.entries_for(ctx.ui.format, &found)? };
    ctx.ui.answer(&result, |out| {
        match found.first().filter(|first| first.path == path) {
            // An entry that is not a directory is the whole tree.
            Some(alone) => out.line(format_args!("{}{}", alone.path, arrow(&alone.node)))?,
            None => {
                out.line(format_args!("{path}"))?;
                draw(out, &found, &path)?;
            }
        }
        let dirs = found.iter().filter(|found| matches!(found.node, Node::Dir(_))).count() as u64;
        let others = found.len() as u64 - dirs;
        let (dirs, others) = (plural(dirs, "directory", "directories"), plural(others, "file", "files"));
        out.line(format_args!(""))?;
        out.line(format_args!("{dirs}, {others}"))
    })
}

fn draw(out: &mut Out, found: &[WalkedEntry], base: &TreePath) -> Result<(), OpError> {
    // For each level above the entry, whether its branch continues below.
    let mut open: Vec<bool> = Vec::new();
    for (found, last) in found.iter().zip(last_of_its_dir(found, base)) {
        let level = found.path.depth() - base.depth();
        open.truncate(level.saturating_sub(1));
        let stem: String = open.iter().map(|open| if *open { "│   " } else { "    " }).collect();
        let branch = if last { "└── " } else { "├── " };
        let shown = shown_name(out, found);
        out.line(format_args!("{stem}{branch}{shown}"))?;
        open.push(!last);
    }
    Ok(())
}

fn shown_name(out: &Out, found: &WalkedEntry) -> Painted {
    let name = found.path.split().and_then(|(_, name)| TreePath::parse(name).ok());
    let name = name.unwrap_or_else(|| found.path.clone());
    match &found.node {
        Node::Dir(_) => out.paint(Tone::Name, name).then(Painted::plain("/")),
        Node::Symlink(_) | Node::File(_) | Node::Fifo(_) => {
            Painted::plain(format_args!("{name}{}", arrow(&found.node)))
        }
    }
}

/// For each entry, whether it is the last of its directory.
fn last_of_its_dir(found: &[WalkedEntry], base: &TreePath) -> Vec<bool> {
    let mut later: Vec<bool> = Vec::new();
    let mut last = vec![false; found.len()];
    for (at, entry) in found.iter().enumerate().rev() {
        let level = entry.path.depth() - base.depth();
        later.resize(level + 1, false);
        last[at] = !std::mem::replace(&mut later[level], true);
    }
    last
}
