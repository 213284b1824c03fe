//! `avfs cat`

use clap::Args;

use avfs_ops::{CatQuery, GivenPath};
use avfs_types::reference::Reference;

use crate::context::CommandContext;
use crate::given_path::tree_path;
use crate::ui::{Format, Outcome};

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

pub fn run(ctx: &CommandContext, args: CatArgs) -> Outcome {
    let CatArgs { reference, paths } = args;
    let workplace = ctx.client.open()?;
    let query = CatQuery { reference, paths };
    match ctx.ui.format {
        Format::Json => ctx.ui.answer(&avfs_ops::cat(&workplace, &query)?, |_| Ok(())),
        Format::Human => ctx.ui.answer(&(), |out| {
            let show = &mut |content: avfs_ops::Content<'_>| out.content(|to| content.copy_to(to));
            avfs_ops::each_content(&workplace, &query, show)
        }),
    }
}
