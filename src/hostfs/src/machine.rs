//! Information about the machine and the user, for both commands.

use std::io;

use nix::unistd::{Uid, User};

/// The file with the kernel's boot id.
pub const BOOT_ID_FILE: &str = "/proc/sys/kernel/random/boot_id";

pub fn boot_id() -> io::Result<String> {
    Ok(std::fs::read_to_string(BOOT_ID_FILE)?.trim().to_owned())
}

/// The kernel version, major and minor, such as `(6, 14)`: features depend on it.
#[must_use]
pub fn kernel_version() -> (u32, u32) {
    let name = rustix::system::uname();
    let release = name.release().to_string_lossy();
    let mut numbers = release.split(|c: char| !c.is_ascii_digit()).filter_map(|part| part.parse().ok());
    (numbers.next().unwrap_or(0), numbers.next().unwrap_or(0))
}

/// Whether this process was started with the signal ignored, as by nohup.
#[must_use]
pub fn ignores(signal: i32) -> bool {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    let mask = mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok()).unwrap_or(0);
    u32::try_from(signal - 1).is_ok_and(|bit| mask.checked_shr(bit).unwrap_or(0) & 1 == 1)
}

/// Whether the C library can ask its name service (nsswitch.conf(5)) for users and hosts. A statically linked glibc
/// loads the modules for that at run time, and they must match its version.
pub const HAS_NAME_SERVICE: bool = !cfg!(all(target_env = "gnu", target_feature = "crt-static"));

/// The local user database.
const USERS_FILE: &str = "/etc/passwd";

/// The acting user, as named in the audit log: `name(uid)`. Taken from the system, because a variable can be
/// forged.
#[must_use]
pub fn actor() -> String {
    let uid = Uid::current();
    // A name service lookup costs more than reading the file, where it usually ends up anyway.
    let users = std::fs::read_to_string(USERS_FILE).unwrap_or_default();
    let name = name_in(&users, uid.as_raw()).map(str::to_owned);
    let name = name.or_else(|| if HAS_NAME_SERVICE { name_by_service(uid) } else { None });
    format!("{}({uid})", name.as_deref().unwrap_or("unknown"))
}

fn name_by_service(uid: Uid) -> Option<String> {
    User::from_uid(uid).ok().flatten().map(|user| user.name)
}

fn name_in(users: &str, uid: u32) -> Option<&str> {
    users.lines().find_map(|line| {
        let mut fields = line.split(':');
        let (name, id) = (fields.next()?, fields.nth(1)?);
        (!name.is_empty() && id.parse() == Ok(uid)).then_some(name)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn first_user_with_the_uid_is_used() {
        let users =
            "root:x:0:0:root:/root:/bin/sh\n# nobody\n\nann:x:1000:1000::/home/ann:\nbob:x:1000:1::/:\n";
        assert_eq!(name_in(users, 0), Some("root"));
        assert_eq!(name_in(users, 1000), Some("ann"));
        assert_eq!(name_in(users, 7), None);
    }
}
