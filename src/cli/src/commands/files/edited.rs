//! The answer of verbs that add a version.

use avfs_engine::bound_dir;
use avfs_ops::OpError;
use avfs_terminal::Tone;
use avfs_types::ids::ForkName;
use avfs_vault::{Committed, Vault};

use crate::context::CommandContext;
use crate::ui::{Out, Outcome};
use crate::view::message_line;

/// Answers with the new head of a fork.
pub fn answer(ctx: &CommandContext, vault: &Vault, fork: &ForkName, committed: &Committed) -> Outcome {
    note_directory(ctx, vault, fork, committed)?;
    let result = avfs_present::edited(fork, committed);
    ctx.ui.answer(&result, |out| show(out, fork, committed))
}

/// Notes that a new version of main did not change the bound directory: the next import replaces it.
pub fn note_directory(
    ctx: &CommandContext,
    vault: &Vault,
    fork: &ForkName,
    committed: &Committed,
) -> Result<(), OpError> {
    if *fork == ForkName::main() && committed.changed() && bound_dir(vault)?.is_some() {
        ctx.ui.note(format_args!(
            "note: the files in the directory did not change; the next import or run without --fork records them again"
        ));
    }
    Ok(())
}

/// Prints the new version, or that nothing changed.
pub fn show(out: &mut Out, fork: &ForkName, committed: &Committed) -> Result<(), OpError> {
    let (id, name) = (out.paint(Tone::Id, committed.version.id.short()), out.paint(Tone::Name, fork));
    if committed.changed() {
        out.line(format_args!(
            "version {id} on fork {name}: {}",
            message_line(&avfs_present::version(&committed.version))
        ))
    } else {
        out.line(format_args!("nothing changed: fork {name} stays at version {id}"))
    }
}
