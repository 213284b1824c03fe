//! `avfs find`

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::str::FromStr;

use clap::{Args, ValueEnum};
use globset::{Glob, GlobMatcher};

use avfs_ops::{GivenPath, VerbError};
use avfs_types::reference::Reference;
use avfs_types::{Size, UnitError};
use avfs_vault::page::Node;
use avfs_wire::Entries;

use crate::context::CommandContext;
use crate::given_path::tree_path;
use crate::ui::Outcome;
use crate::view::{View, WalkedEntry};

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
    #[arg(
        long,
        value_name = "GLOB",
        value_parser = parse_glob,
        help = "Match the base name with this pattern (*, ?, [abc], {a,b})"
    )]
    name: Option<GlobMatcher>,
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

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum SizeTest {
    Above(u64),
    Below(u64),
    Exactly(u64),
}

impl FromStr for SizeTest {
    type Err = UnitError;

    fn from_str(text: &str) -> Result<Self, UnitError> {
        let size = |text: &str| text.parse::<Size>().map(|size| size.0);
        match (text.strip_prefix('+'), text.strip_prefix('-')) {
            (Some(above), _) => size(above).map(Self::Above),
            (None, Some(below)) => size(below).map(Self::Below),
            (None, None) => size(text).map(Self::Exactly),
        }
    }
}

impl SizeTest {
    const fn accepts(self, size: u64) -> bool {
        match self {
            Self::Above(limit) => size > limit,
            Self::Below(limit) => size < limit,
            Self::Exactly(wanted) => size == wanted,
        }
    }
}

fn parse_glob(text: &str) -> Result<GlobMatcher, globset::Error> {
    Glob::new(text).map(|glob| glob.compile_matcher())
}

impl FindArgs {
    fn accepts(&self, found: &WalkedEntry) -> bool {
        let name = found.path.split().map_or(&b"."[..], |(_, name)| name).to_vec();
        let named = self.name.as_ref().is_none_or(|glob| glob.is_match(Path::new(OsStr::from_bytes(&name))));
        let kind = match &found.node {
            Node::File(_) => FindKind::File,
            Node::Dir(_) => FindKind::Dir,
            Node::Symlink(_) => FindKind::Symlink,
            Node::Fifo(_) => FindKind::Fifo,
        };
        let sized = self.size.is_none_or(|test| match &found.node {
            Node::File(file) => test.accepts(file.size),
            Node::Dir(_) | Node::Symlink(_) | Node::Fifo(_) => false,
        });
        named && sized && self.kind.is_none_or(|wanted| wanted == kind)
    }
}

pub fn run(ctx: &CommandContext, args: &FindArgs) -> Outcome {
    let vault = ctx.open_vault()?;
    let view = View::open(&vault, &args.reference)?;
    let mut found =
        view.walk(&args.path.within(&vault)?, None).map_err(VerbError::in_version(&args.reference))?;
    found.retain(|found| args.accepts(found));
    let result =
        Entries { version: view.version.id.to_hex(), entries: view.entries_for(ctx.ui.format, &found)? };
    ctx.ui.answer(&result, |out| found.iter().try_for_each(|found| out.line(format_args!("{}", found.path))))
}
