//! Information about the machine and the user, for both commands.

use std::ffi::{OsStr, OsString};
use std::io;
use std::path::{Path, PathBuf};

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
    let name = entry_in(&users, uid.as_raw()).map(|entry| entry.name.to_owned());
    let name = name.or_else(|| by_service(uid).map(|user| user.name));
    format!("{}({uid})", name.as_deref().unwrap_or("unknown"))
}

/// The environment of this process. If HOME is unset or empty, as in cron jobs and containers, it has the home of the
/// user database, if there is one.
#[must_use]
pub fn environment() -> Vec<(OsString, OsString)> {
    with_home(std::env::vars_os().collect(), home)
}

fn with_home(
    mut variables: Vec<(OsString, OsString)>,
    home: impl Fn() -> Option<PathBuf>,
) -> Vec<(OsString, OsString)> {
    let is_home = |name: &OsStr| name == "HOME";
    if !variables.iter().any(|(name, value)| is_home(name) && Path::new(value).is_absolute())
        && let Some(home) = home()
    {
        variables.retain(|(name, _)| !is_home(name));
        variables.push(("HOME".into(), home.into()));
    }
    variables
}

/// The home of the acting user in the user database.
fn home() -> Option<PathBuf> {
    let uid = Uid::current();
    let users = std::fs::read_to_string(USERS_FILE).unwrap_or_default();
    let home = entry_in(&users, uid.as_raw()).map(|entry| PathBuf::from(entry.home));
    home.or_else(|| by_service(uid).map(|user| user.dir)).filter(|home| home.is_absolute())
}

fn by_service(uid: Uid) -> Option<User> {
    if HAS_NAME_SERVICE { User::from_uid(uid).ok().flatten() } else { None }
}

/// An entry of the user database.
#[derive(Debug, PartialEq, Eq)]
struct UserEntry<'t> {
    name: &'t str,
    home: &'t str,
}

fn entry_in(users: &str, uid: u32) -> Option<UserEntry<'_>> {
    users.lines().find_map(|line| {
        let mut fields = line.split(':');
        let (name, id) = (fields.next()?, fields.nth(1)?);
        let is_wanted = !name.is_empty() && id.parse() == Ok(uid);
        is_wanted.then(|| UserEntry { name, home: fields.nth(2).unwrap_or_default() })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn first_user_with_the_uid_is_used() {
        let users =
            "root:x:0:0:root:/root:/bin/sh\n# nobody\n\nann:x:1000:1000::/home/ann:\nbob:x:1000:1::/:\n";
        assert_eq!(entry_in(users, 0), Some(UserEntry { name: "root", home: "/root" }));
        assert_eq!(entry_in(users, 1000), Some(UserEntry { name: "ann", home: "/home/ann" }));
        assert_eq!(entry_in(users, 7), None);
        assert_eq!(entry_in("short:x:7", 7), Some(UserEntry { name: "short", home: "" }));
    }

    #[test]
    fn home_of_the_user_database_replaces_a_variable_that_is_no_absolute_path() {
        let with = |variables: &[(&str, &str)], home: Option<&str>| -> Vec<String> {
            let variables = variables.iter().map(|(name, value)| (name.into(), value.into())).collect();
            let found = with_home(variables, || home.map(PathBuf::from));
            found.iter().map(|(name, value)| format!("{}={}", name.display(), value.display())).collect()
        };
        assert_eq!(with(&[("A", "1")], Some("/h")), ["A=1", "HOME=/h"]);
        assert_eq!(with(&[("HOME", ""), ("A", "1")], Some("/h")), ["A=1", "HOME=/h"]);
        assert_eq!(with(&[("HOME", "/set")], Some("/h")), ["HOME=/set"]);
        assert_eq!(with(&[("HOME", "relative")], Some("/h")), ["HOME=/h"]);
        assert_eq!(with(&[("HOME", "relative")], None), ["HOME=relative"]);
        assert_eq!(with(&[("HOME", "")], None), ["HOME="]);
    }
}
