//! Batches as wire types.

use avfs_types::clock::time_text;
use avfs_vault::backend::BatchRecord;
use avfs_wire::{BatchObject, Recorded};

#[must_use]
pub fn batch(batch: &BatchRecord) -> BatchObject {
    BatchObject {
        id: batch.id.to_string(),
        started_at: time_text(batch.started_at),
        ended_at: batch.ended_at.map(time_text),
        list: batch.list.to_hex(),
        base: batch.base.to_hex(),
        plan: Recorded::parse(&batch.plan),
    }
}
