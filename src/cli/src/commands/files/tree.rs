//! `avfs tree`

use clap::Args;

use avfs_ops::{EntriesQuery, EntryFilter, GivenPath, OpError};
use avfs_terminal::{Painted, Tone};
use avfs_types::path::TreePath;
use avfs_types::reference::Reference;
use avfs_wire::NodeKind;

use crate::context::CommandContext;
use crate::given_path::tree_path;
use crate::ui::{Format, Out, Outcome};
use crate::view::{arrow, plural};

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

/// An entry of the tree.
struct Leaf {
    path: TreePath,
    kind: NodeKind,
    /// ` -> TARGET` of a symlink.
    arrow: String,
}

pub fn run(ctx: &CommandContext, args: TreeArgs) -> Outcome {
    let TreeArgs { reference, path, depth } = args;
    let workplace = ctx.client.open()?;
    let query =
        EntriesQuery { reference, path, depth: depth.map(usize::from), filter: EntryFilter::default() };
    if ctx.ui.format == Format::Json {
        return ctx.ui.answer(&avfs_ops::entries(&workplace, &query)?, |_| Ok(()));
    }
    let mut found = Vec::new();
    let path = avfs_ops::each_entry(&workplace, &query, &mut |entry| {
        let (kind, arrow) = (entry.kind(), arrow(entry.target()));
        found.push(Leaf { path: entry.path, kind, arrow });
        Ok(())
    })?;
    ctx.ui.answer(&(), |out| {
        match found.first().filter(|first| first.path == path) {
            // An entry that is not a directory is the whole tree.
            Some(alone) => out.line(format_args!("{}{}", alone.path, alone.arrow))?,
            None => {
                out.line(format_args!("{path}"))?;
                draw(out, &found, &path)?;
            }
        }
        let dirs = found.iter().filter(|found| found.kind == NodeKind::Dir).count() as u64;
        let others = found.len() as u64 - dirs;
        let (dirs, others) = (plural(dirs, "directory", "directories"), plural(others, "file", "files"));
        out.line(format_args!(""))?;
        out.line(format_args!("{dirs}, {others}"))
    })
}

fn draw(out: &mut Out, found: &[Leaf], base: &TreePath) -> Result<(), OpError> {
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

fn shown_name(out: &Out, found: &Leaf) -> Painted {
    let name = found.path.split().and_then(|(_, name)| TreePath::parse(name).ok());
    let name = name.unwrap_or_else(|| found.path.clone());
    match found.kind {
        NodeKind::Dir => out.paint(Tone::Name, name).then(Painted::plain("/")),
        NodeKind::Symlink | NodeKind::File | NodeKind::Fifo => {
            Painted::plain(format_args!("{name}{}", found.arrow))
        }
    }
}

/// For each entry, whether it is the last of its directory.
fn last_of_its_dir(found: &[Leaf], base: &TreePath) -> Vec<bool> {
    let mut later: Vec<bool> = Vec::new();
    let mut last = vec![false; found.len()];
    for (at, entry) in found.iter().enumerate().rev() {
        let level = entry.path.depth() - base.depth();
        later.resize(level + 1, false);
        last[at] = !std::mem::replace(&mut later[level], true);
    }
    last
}
