//! `avfs schema`

use clap::Args;

use avfs_wire::{SchemaResult, document};

use crate::context::CommandContext;
use crate::ui::Outcome;

/// Print the JSON Schema of everything --json prints
///
/// One document; its $defs has one definition for each kind, such as fork.create.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  avfs schema > avfs.schema.json
  avfs schema | jq '.\"$defs\".diff'")]
pub struct SchemaArgs {}

pub fn run(ctx: &CommandContext, _: &SchemaArgs) -> Outcome {
    let result = SchemaResult { schema: document() };
    ctx.ui.answer(&result, |out| out.own_bytes(format!("{:#}\n", result.schema).as_bytes()))
}
