//! Helpers of all suites: scratch directories, vaults with a fixed clock, and an exact comparison of two host
//! directories.
//!
//! Nothing here tests the library with the library: the comparison uses system calls directly.
#![allow(dead_code, clippy::allow_attributes, reason = "each suite uses a part of it")]
#![expect(clippy::unwrap_used, reason = "a harness that cannot set up a test should fail it immediately")]

pub mod inject;
pub mod landing;
pub mod pause;
pub mod snapshot;
pub mod surroundings;
pub mod wait;

use std::io::Write;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;

use avfs_types::clock::{Clock as _, SteppingClock, SystemClock, Timestamp};
use avfs_types::ids::ForkName;
use avfs_types::path::TreePath;
use avfs_types::reference::Reference;
use avfs_vault::backend::memory::MemoryBackend;
use avfs_vault::backend::sqlite::OpenOptions;
use avfs_vault::export::{ExportOptions, Overwrite};
use avfs_vault::fsck::Thoroughness;
use avfs_vault::import::{ImportOptions, Imported, OnTrouble};
use avfs_vault::meter::Meter;
use avfs_vault::page::DirRef;
use avfs_vault::set_ids::SetIds;
use avfs_vault::version::full_root_of;
use avfs_vault::{Context, Vault};

/// A time in 2023: every run of a suite uses the same one.
pub const START: Timestamp = Timestamp(1_700_000_000_000_000_000);

/// A directory that is removed on drop, regardless of the depths and modes of its contents.
pub struct Scratch(PathBuf);

impl Scratch {
    pub fn new() -> Self {
        surroundings::set();
        let dir = tempfile::Builder::new().prefix("avfs-test-").tempdir().unwrap();
        Self(dir.keep())
    }

    pub fn path(&self) -> &Path {
        &self.0
    }

    pub fn join(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }

    /// Creates a directory in it.
    pub fn dir(&self, name: &str) -> PathBuf {
        let path = self.join(name);
        std::fs::create_dir_all(&path).unwrap();
        path
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        // rm walks by descriptor, so paths longer than PATH_MAX are no obstacle; directories without permissions are.
        let remove = || {
            Command::new("rm").args(["-rf", "--"]).arg(&self.0).stderr(std::process::Stdio::null()).status()
        };
        let _ = remove();
        if self.0.exists() {
            let _ = Command::new("chmod").args(["-R", "u+rwx", "--"]).arg(&self.0).status();
            let _ = remove();
        }
    }
}

pub fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}

/// Reports that a test does not apply here. `scripts/test` collects these and knows which are expected.
#[expect(clippy::print_stderr, reason = "a skipped test must be visible")]
pub fn skip(test: &str, reason: &str) {
    eprintln!("SKIP: {test}: {reason}");
    if let Some(path) = std::env::var_os("AVFS_TEST_SKIPS") {
        let mut file = std::fs::File::options().create(true).append(true).open(path).unwrap();
        file.write_all(format!("{test}\t{reason}\n").as_bytes()).unwrap();
    }
}

/// The same command for a user without an entry in the user database.
pub fn as_unknown_user(command: &Command) -> Command {
    let mut unshare = Command::new("unshare");
    unshare.args(["--user", "--map-user=54321", "--map-group=54321", "--"]);
    unshare.arg(command.get_program()).args(command.get_args()).env_clear();
    unshare.envs(command.get_envs().filter_map(|(name, value)| Some((name, value?))));
    unshare.current_dir(command.get_current_dir().unwrap()).stdin(std::process::Stdio::null());
    unshare
}

/// A command as a user would type it, without its environment.
pub fn command_line(command: &Command) -> String {
    let words = std::iter::once(command.get_program()).chain(command.get_args());
    words.map(|word| format!("{word:?}")).collect::<Vec<_>>().join(" ")
}

/// The variable that slows down every sync of a program, if the suite runs with `scripts/test --slow-disk`.
pub fn slow_disk() -> Option<(&'static str, std::ffi::OsString)> {
    std::env::var_os("AVFS_TEST_PRELOAD").map(|library| ("LD_PRELOAD", library))
}

/// Whether to run the long forms of generated and repeated tests (`scripts/test --long`).
pub fn is_long() -> bool {
    std::env::var_os("AVFS_TEST_LONG").is_some()
}

/// A number for a normal run, and one for the long form of a test.
pub fn usual_or_long<T>(usual: T, long: T) -> T {
    if is_long() { long } else { usual }
}

/// A clock with the same times in every run.
pub fn fixed_context() -> Context {
    Context { clock: Arc::new(SteppingClock::starting_at(START)), actor: "tester".to_owned() }
}

/// The real clock: for comparing the times of host files with the time of an import.
pub fn real_context() -> Context {
    Context { clock: Arc::new(SystemClock), actor: "tester".to_owned() }
}

pub fn create_vault(path: &Path) -> Vault {
    Vault::create(path, None, OpenOptions::default(), fixed_context()).unwrap()
}

/// A vault in memory: for tests that are not about the disk.
pub fn memory_vault() -> Vault {
    Vault::over(Box::new(MemoryBackend::default()), fixed_context()).unwrap()
}

pub fn create_real_vault(path: &Path) -> Vault {
    Vault::create(path, None, OpenOptions::default(), real_context()).unwrap()
}

pub fn open_vault(path: &Path) -> Vault {
    Vault::open(path, OpenOptions::default(), real_context()).unwrap()
}

pub fn main_fork() -> ForkName {
    ForkName::main()
}

pub fn fork(name: &str) -> ForkName {
    ForkName::parse(name).unwrap()
}

pub fn path(text: &str) -> TreePath {
    TreePath::parse(text.as_bytes()).unwrap()
}

pub fn reference(text: &str) -> Reference {
    Reference::parse(text).unwrap()
}

/// The root of the version that a reference names.
pub fn root(vault: &Vault, at: &str) -> DirRef {
    let reader = vault.read().unwrap();
    let (version, _) = avfs_vault::version::resolve(&*reader, &reference(at)).unwrap();
    full_root_of(&*reader, &version).unwrap()
}

pub fn write(vault: &Vault, to: &str, content: &[u8]) -> avfs_vault::Committed {
    vault.write_file(&main_fork(), &path(to), content, None, "write").unwrap()
}

pub fn try_import(
    vault: &Vault,
    dir: &Path,
    cache: Option<&Path>,
    on_trouble: OnTrouble,
) -> avfs_vault::transfer::Result<Imported> {
    let options = ImportOptions { on_trouble, stat_cache: cache, exclude: &[], meter: &Meter::default() };
    vault.import(dir, &main_fork(), "import", &options)
}

pub fn import(vault: &Vault, dir: &Path) -> Imported {
    try_import(vault, dir, None, OnTrouble::Fail).unwrap()
}

/// Waits until the importer trusts the timestamps of all existing files: it allows 50 ms for the file system's clock.
pub fn settle() {
    let now = SystemClock.now();
    wait::wait_for("the clock", || SystemClock.now().0 > now.0 + 51_000_000);
}

/// Waits until a change of a file gives it another timestamp: the clock of the file system moves in steps.
pub fn wait_for_new_stamp(scratch: &Scratch, file: &Path) {
    let probe = tempfile::NamedTempFile::new_in(scratch.path()).unwrap();
    let stamp = |path: &Path| {
        let meta = std::fs::symlink_metadata(path).unwrap();
        (meta.ctime(), meta.ctime_nsec())
    };
    let old = stamp(file);
    wait::wait_for("another stamp", || {
        std::fs::write(&probe, "x").unwrap();
        stamp(probe.path()) > old
    });
}

/// The peak memory of a process in KiB; `None` if the process has ended.
pub fn peak_kib(process: u32) -> Option<u64> {
    let text = std::fs::read_to_string(format!("/proc/{process}/status")).ok()?;
    let line = text.lines().find_map(|line| line.strip_prefix("VmHWM:"))?;
    line.split_whitespace().next()?.parse().ok()
}

/// The vault's own error of a transfer that cannot fail otherwise.
pub fn vault_error(error: avfs_vault::transfer::Error) -> avfs_vault::VaultError {
    if let avfs_vault::transfer::Error::Vault(error) = error { error } else { panic!("{error:?}") }
}

pub fn try_export(
    vault: &Vault,
    at: &str,
    dest: &Path,
    overwrite: Overwrite,
) -> avfs_vault::transfer::Result<()> {
    let options = ExportOptions {
        overwrite,
        paths: &[],
        set_ids: SetIds::Kept,
        meter: &Meter::default(),
        unwritten: None,
    };
    vault.export(&root(vault, at), dest, &options).map(drop)
}

pub fn export(vault: &Vault, at: &str, dest: &Path) {
    try_export(vault, at, dest, Overwrite::Refuse).unwrap();
}

/// Fails unless a full check of the vault finds nothing.
#[track_caller]
pub fn assert_clean(vault: &Vault) {
    let report = vault.fsck(Thoroughness::Full, &Meter::default()).unwrap();
    assert!(report.findings.is_empty(), "fsck found {:#?}", report.findings);
}

/// A connection besides the library's: to damage a vault, or to lock it.
#[expect(clippy::disallowed_methods, reason = "a test acts as a foreign process")]
pub fn sql(path: &Path) -> rusqlite::Connection {
    rusqlite::Connection::open(path).unwrap()
}

/// Incompressible bytes, always the same for a seed.
pub fn noise(seed: u64, length: usize) -> Vec<u8> {
    let mut bytes = vec![0; length];
    blake3::Hasher::new().update(&seed.to_le_bytes()).finalize_xof().fill(&mut bytes);
    bytes
}

/// `count` small files in directories of 40.
pub fn many_files(dir: &Path, count: usize) {
    for n in 0..count {
        let sub = dir.join(format!("d{:03}", n / 40));
        if n % 40 == 0 {
            std::fs::create_dir_all(&sub).unwrap();
        }
        std::fs::write(sub.join(format!("f{n:05}")), format!("file {n}\n").repeat(n % 37 + 1)).unwrap();
    }
}

/// Random numbers for tests, always the same for a seed.
pub struct Dice(u64);

impl Dice {
    pub fn seeded(seed: u64) -> Self {
        let mixed = blake3::hash(&seed.to_le_bytes());
        Self(u64::from_le_bytes(mixed.as_bytes()[..8].try_into().unwrap()) | 1)
    }

    pub fn below(&mut self, limit: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % limit
    }
}

/// Sets a flag on drop, even if the test fails, so that threads that watch the flag end.
pub struct RaiseOnDrop<'a>(pub &'a std::sync::atomic::AtomicBool);

impl Drop for RaiseOnDrop<'_> {
    fn drop(&mut self) {
        self.0.store(true, std::sync::atomic::Ordering::Relaxed);
    }
}
