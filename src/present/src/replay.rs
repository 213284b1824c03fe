//! Replays as wire types.

use avfs_lists::replay::Difference;
use avfs_wire::DifferenceObject;

#[must_use]
pub fn difference(difference: &Difference) -> DifferenceObject {
    let Difference { what, text, noise } = difference.clone();
    DifferenceObject { what: what.into(), text, noise }
}
