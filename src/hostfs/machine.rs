//! What both commands ask the machine about itself and about who runs them.

use std::io;

use nix::unistd::{Uid, User};

/// Where the kernel tells one start of the machine from another.
pub const BOOT_ID_FILE: &str = "/proc/sys/kernel/random/boot_id";

pub fn boot_id() -> io::Result<String> {
    Ok(std::fs::read_to_string(BOOT_ID_FILE)?.trim().to_owned())
}

/// Who acts, as the audit log names them: `name(uid)`. Asked of the system: a variable could say anything.
#[must_use]
pub fn actor() -> String {
    let uid = Uid::current();
    let name = User::from_uid(uid).ok().flatten().map_or_else(|| "unknown".to_owned(), |user| user.name);
    format!("{name}({uid})")
}
