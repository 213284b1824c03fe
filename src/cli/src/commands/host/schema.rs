//! `avfs schema`

use clap::Args;

use avfs_wire::{SCHEMA, SchemaResult};

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
    // A test of avfs-wire reads it too.
    let result = SchemaResult { schema: serde_json::from_str(SCHEMA).unwrap_or_default() };
    ctx.ui.answer(&result, |out| out.own_bytes(SCHEMA.as_bytes()))
}
