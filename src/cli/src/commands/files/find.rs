//! `avfs find`

use clap::{Args, ValueEnum};

use avfs_ops::{EntriesQuery, EntryFilter, GivenPath, NamePattern, SizeTest};
use avfs_types::reference::Reference;
use avfs_wire::NodeKind;

use crate::context::CommandContext;
use crate::given_path::tree_path;
use crate::ui::{Format, Outcome};

/// Find entries of a version by name, type and size
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  avfs find main --name '*.rs'
  avfs find main src --type f --size +100K
  avfs find main~1 --type l")]
pub struct FindArgs {
    /// The version to search
    #[arg(value_name = "REF")]
    reference: Reference,
    /// Search below this path [default: the root]
    #[arg(default_value = "", hide_default_value = true, value_parser = tree_path())]
    path: GivenPath,
    // Not a doc comment: rustdoc would parse the brackets as a link.
    #[arg(long, value_name = "GLOB", help = "Match the base name with this pattern (*, ?, [abc], {a,b})")]
    name: Option<NamePattern>,
    /// Match this type: f (file), d (directory), l (symlink), p (pipe)
    #[arg(long = "type", value_name = "KIND")]
    kind: Option<FindKind>,
    /// Match files of more than (+N), less than (-N) or exactly N bytes; N accepts a unit (100K)
    #[arg(long, value_name = "[+-]N", allow_hyphen_values = true)]
    size: Option<SizeTest>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum FindKind {
    #[value(name = "f")]
    File,
    #[value(name = "d")]
    Dir,
    #[value(name = "l")]
    Symlink,
    #[value(name = "p")]
    Fifo,
}

impl From<FindKind> for NodeKind {
    fn from(kind: FindKind) -> Self {
        match kind {
            FindKind::File => Self::File,
            FindKind::Dir => Self::Dir,
            FindKind::Symlink => Self::Symlink,
            FindKind::Fifo => Self::Fifo,
        }
    }
}

pub fn run(ctx: &CommandContext, args: FindArgs) -> Outcome {
    let FindArgs { reference, path, name, kind, size } = args;
    let workplace = ctx.client.open()?;
    let filter = EntryFilter { name, kind: kind.map(Into::into), size };
    let query = EntriesQuery { reference, path, depth: None, filter };
    if ctx.ui.format == Format::Json {
        return ctx.ui.answer(&avfs_ops::entries(&workplace, &query)?, |_| Ok(()));
    }
    ctx.ui.answer(&(), |out| {
        let show = &mut |entry: avfs_ops::Entry<'_>| out.line(format_args!("{}", entry.path));
        avfs_ops::each_entry(&workplace, &query, show).map(drop)
    })
}
