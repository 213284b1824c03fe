//! The verbs that compare, apply and drop the changes of forks and runs.
//!
//! The name of a fork or run comes in, or nothing, which means the newest change in effect. An answer of the wire
//! leaves, with [`ChangeLines`](crate::ChangeLines) for people. Where changes conflict, nothing is written, and the
//! answer is a [`Conflicts`]: the paths, and the error that names them. Start reading with `apply.rs`.

mod apply;
mod diff;
mod discard;
mod status;
mod sync;
mod unapply;

use avfs_changes::Inherited;
use avfs_present::Hint;
use avfs_workplace::Workplace;

pub use apply::{Applied, ApplyQuery, apply};
pub use diff::{DiffAnswer, DiffForm, DiffQuery, diff};
pub use discard::{discard, discard_all};
pub use status::{StatusAnswer, status};
pub use sync::{Side, SyncAnswer, SyncQuery, sync};
pub use unapply::{Reverted, UnapplyQuery, unapply};

/// A negative answer: nothing was written because of the conflicts in the result.
pub struct Conflicts<T> {
    pub result: T,
    pub error: Box<dyn Hint>,
}

/// Notes the changes that the directory lacks and that an apply does not write.
fn note_inherited(workplace: &Workplace, all: &[Inherited]) {
    for of in all {
        workplace.note(format_args!("note: {}", of.text()));
    }
}
