//! Every key, and what it takes: one arm each, whichever layer gives the value.

use std::str::FromStr;

use super::value::{is_absolute, is_ignore_pattern, is_path, is_variable};
use super::{Config, Setting};

const SIZE: &str = "a size such as 512MiB, or none";
const COUNT: &str = "a number, or none";

/// A value as a layer gives it.
pub trait Given {
    type Error;

    fn key(&self) -> &str;

    /// A text.
    fn one<T: FromStr>(&self, wanted: &'static str) -> Result<Setting<T>, Self::Error>;

    /// A whole number in decimal digits.
    fn number<T: FromStr>(&self, wanted: &'static str) -> Result<Setting<T>, Self::Error>;

    /// A number, or a text such as `2GiB` or `none`.
    fn amount<T: FromStr>(&self, wanted: &'static str) -> Result<Setting<T>, Self::Error>;

    /// Texts, each of which is good.
    fn list(&self, good: fn(&str) -> bool, wanted: &'static str)
    -> Result<Vec<Setting<String>>, Self::Error>;

    /// A key without an arm in [`set`].
    fn unread(&self) -> Self::Error;
}

/// Sets what a key stands for; lists are appended to.
pub fn set<G: Given>(config: &mut Config, given: &G) -> Result<(), G::Error> {
    match given.key() {
        "capture.exclude" => {
            config.capture_exclude.extend(given.list(is_ignore_pattern, "a pattern of gitignore")?);
        }
        "cache.dirs" => config.cache_dirs.extend(given.list(is_path, "a path without '..'")?),
        "run.timeout" => config.run_timeout = given.one("a duration such as 300s, or none")?,
        "run.grace" => config.run_grace = given.one("a duration such as 5s, or none")?,
        "run.net" => config.run_net = given.one("none, host or allow=DOMAIN,…")?,
        "run.scratch" => config.run_scratch = given.one("auto, memory or disk")?,
        "run.env" => config.run_env.extend(given.list(is_variable, "the name of a variable")?),
        "run.ro" => {
            config.run_ro.extend(given.list(is_absolute, "an absolute path, or one that begins with ~/")?);
        }
        "run.profile" => config.run_profile = given.one("strict or host")?,
        "run.seccomp" => config.run_seccomp = given.one("default, strict or off")?,
        "run.landlock" => config.run_landlock = given.one("auto, required or off")?,
        "run.memory" => config.run_memory = given.amount(SIZE)?,
        "run.cpus" => config.run_cpus = given.amount("a number of processors such as 1.5, or none")?,
        "run.pids" => config.run_pids = given.amount(COUNT)?,
        "run.disk" => config.run_disk = given.amount(SIZE)?,
        "run.files" => config.run_files = given.amount(COUNT)?,
        "run.file_size" => config.run_file_size = given.amount(SIZE)?,
        "run.cache" => config.run_cache = given.one("off, read or write")?,
        "run.cache_expires" => config.run_cache_expires = given.one("a duration such as 30d")?,
        "fork.expires" => config.fork_expires = given.one("a duration such as 7d")?,
        "checkpoint.keep" => config.checkpoint_keep = given.number("a number, 2 or more")?,
        "vault.place" => config.vault_place = given.one("workspace or data")?,
        _ => return Err(given.unread()),
    }
    Ok(())
}
