//! `avfs schema`

use clap::Args;

use avfs_wire::{SCHEMA, SchemaResult};

use crate::context::CommandContext;
use crate::ui::Outcome;

/// Print the JSON Schema of all --json output
///
/// The schema is one document; its $defs has a definition for each kind, such as fork.create.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  avfs schema > avfs.schema.json
  avfs schema | jq '.\"$defs\".diff'")]
pub struct SchemaArgs {}

pub fn run(ctx: &CommandContext, _: &SchemaArgs) -> Outcome {
    // A test of avfs-wire checks that the schema parses.
    let result = SchemaResult { schema: serde_json::from_str(SCHEMA).unwrap_or_default() };
    ctx.ui.answer(&result, |out| out.own_bytes(SCHEMA.as_bytes()))
}
