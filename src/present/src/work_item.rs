//! Answers of workers as wire types.

use avfs_engine::Look;
use avfs_types::ids::to_hex;
use avfs_wire::{Inspection, InspectionHit};

#[must_use]
pub fn inspection(look: &Look) -> Inspection {
    let found = match look {
        Look::Hit(found) => Some(InspectionHit {
            run_id: found.run.to_string(),
            exit_code: found.exit_code,
            stdout_digest: to_hex(&found.stdout_digest),
            stderr_digest: to_hex(&found.stderr_digest),
            tree: found.tree.to_hex(),
            content: found.content.to_hex(),
            version: found.version.map(|version| version.to_hex()),
        }),
        Look::Miss(_) => None,
    };
    Inspection { found }
}
