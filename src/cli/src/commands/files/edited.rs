//! The answer of verbs that add a version.

use avfs_ops::OpError;
use avfs_terminal::Tone;
use avfs_wire::Edited;

use crate::context::CommandContext;
use crate::ui::{Out, Outcome};
use crate::view::{message_line, short};

/// Answers with the new head of a fork.
pub fn answer(ctx: &CommandContext, edited: &Edited) -> Outcome {
    ctx.ui.answer(edited, |out| show(out, edited))
}

/// Prints the new version, or that nothing changed.
pub fn show(out: &mut Out, edited: &Edited) -> Result<(), OpError> {
    let (id, name) = (short(&edited.version.id), &edited.fork);
    let (id, name) = (out.paint(Tone::Id, id), out.paint(Tone::Name, name));
    if edited.changed {
        out.line(format_args!("version {id} on fork {name}: {}", message_line(&edited.version)))
    } else {
        out.line(format_args!("nothing changed: fork {name} stays at version {id}"))
    }
}
