//! An upper that a hostile command could leave: any names, marks, modes, attributes, links and holes. Its capture ends
//! with a version or an error, the vault is intact, and an export equals the version.
//!
//! The bytes are steps, carried out by descriptor below a directory in memory: symlinks are never followed.

#![no_main]

use std::ffi::OsStr;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};

use libfuzzer_sys::fuzz_target;
use rustix::fs::{AtFlags, FileType, Mode, OFlags, ResolveFlags, Timespec, Timestamps, XattrFlags};

use avfs_hostfs::beneath;
use avfs_types::clock::{SteppingClock, Timestamp};
use avfs_types::ids::ForkName;
use avfs_types::reference::Reference;
use avfs_types::renamed::RenamedNames;
use avfs_types::secrets::Secrets;
use avfs_vault::backend::memory::MemoryBackend;
use avfs_vault::capture::{CaptureOptions, UpperKind};
use avfs_vault::chunk::FILE_BYTES_MAX;
use avfs_vault::export::{ExportOptions, Overwrite};
use avfs_vault::fsck::Thoroughness;
use avfs_vault::import::{ImportOptions, OnTrouble};
use avfs_vault::meter::Meter;
use avfs_vault::page::DirRef;
use avfs_vault::set_ids::SetIds;
use avfs_vault::version::full_root_of;
use avfs_vault::write_out::FreshPages;
use avfs_vault::{Advance, Context, Vault, When};

const STEPS_MAX: usize = 64;
/// Mostly holes: it is written twice for every input.
const FILE_LENGTH_MAX: u64 = 1 << 26;
const START: Timestamp = Timestamp(1_700_000_000_000_000_000);

/// Names with a special meaning, and names of the base.
const NAMES: [&[u8]; 16] = [
    b"a",
    b"d",
    b"e",
    b"sub",
    b"link",
    b"file",
    b".avfs",
    b".avfsignore",
    b".wh.a",
    b".wh..wh..opq",
    b"\xff\xfe",
    b"new\nline",
    b"work",
    b"index",
    b"#0",
    b"vault.db",
];
const XATTRS: [&str; 10] = [
    "user.overlay.opaque",
    "user.overlay.whiteout",
    "user.overlay.metacopy",
    "user.overlay.redirect",
    "user.overlay.origin",
    "user.overlay.overlay.opaque",
    "user.overlay.overlay.overlay.x",
    "user.overlay.",
    "user.x",
    "trusted.overlay.opaque",
];
const VALUES: [&[u8]; 5] = [b"y", b"x", b"", b"/etc/passwd", b"\0\0\xff"];

/// Bytes on demand; zeros when they are used up.
struct Input<'a>(&'a [u8]);

impl<'a> Input<'a> {
    fn byte(&mut self) -> u8 {
        let Some((first, rest)) = self.0.split_first() else { return 0 };
        self.0 = rest;
        *first
    }

    fn number(&mut self) -> u64 {
        (0..4).fold(0, |number, _| number << 8 | u64::from(self.byte()))
    }

    fn of<T: Copy>(&mut self, choices: &[T]) -> T {
        choices[usize::from(self.byte()) % choices.len()]
    }

    fn bytes(&mut self) -> &'a [u8] {
        let length = usize::from(self.byte()).min(self.0.len());
        let (taken, rest) = self.0.split_at(length);
        self.0 = rest;
        taken
    }

    /// A name of the list, or any valid name of a directory entry.
    fn name(&mut self) -> Vec<u8> {
        let choice = usize::from(self.byte());
        if choice < 224 {
            return NAMES[choice % NAMES.len()].to_vec();
        }
        let mut name: Vec<u8> =
            self.bytes().iter().copied().filter(|byte| ![0, b'/'].contains(byte)).collect();
        if name.is_empty() || name == b"." || name == b".." {
            name.insert(0, b'n');
        }
        name
    }
}

/// The directory at a path of a few names, without following symlinks; the deepest one that exists.
fn dir(root: &OwnedFd, input: &mut Input<'_>) -> OwnedFd {
    let open = |at: &OwnedFd, name: &[u8]| {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS;
        rustix::fs::openat2(at, OsStr::from_bytes(name), flags, Mode::empty(), resolve)
    };
    let mut at = open(root, b".").expect("the root opens");
    for _ in 0..input.byte() % 4 {
        match open(&at, &input.name()) {
            Ok(inner) => at = inner,
            Err(_) => break,
        }
    }
    at
}

/// One step; errors of the kernel are ignored.
fn step(root: &OwnedFd, input: &mut Input<'_>) -> rustix::io::Result<()> {
    let kind = input.byte();
    let at = dir(root, input);
    let name = input.name();
    let name = OsStr::from_bytes(&name);
    let open = |flags: OFlags| {
        rustix::fs::openat(
            &at,
            name,
            flags | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC,
            Mode::from_raw_mode(0o644),
        )
    };
    match kind % 12 {
        0 => rustix::fs::mkdirat(&at, name, Mode::from_raw_mode(0o755)),
        1 | 2 => {
            let fd = open(OFlags::CREATE | OFlags::WRONLY)?;
            rustix::io::write(fd, input.bytes()).map(drop)
        }
        3 => {
            let fd = open(OFlags::CREATE | OFlags::WRONLY)?;
            let length = input.number() % FILE_LENGTH_MAX;
            rustix::fs::ftruncate(&fd, length)?;
            rustix::io::pwrite(fd, input.bytes(), length / 2).map(drop)
        }
        4 => rustix::fs::symlinkat(
            OsStr::from_bytes(input.of(&[b"a", b"/etc/passwd", b"..", b"../../..", b"d"])),
            &at,
            name,
        ),
        // A whiteout, or another device.
        5 => {
            let number = input.of(&[0, 0, 0, rustix::fs::makedev(1, 3)]);
            rustix::fs::mknodat(&at, name, FileType::CharacterDevice, Mode::empty(), number)
        }
        6 => rustix::fs::mknodat(
            &at,
            name,
            input.of(&[FileType::Fifo, FileType::Socket]),
            Mode::from_raw_mode(0o600),
            0,
        ),
        7 => {
            let (other_dir, other) = (dir(root, input), input.name());
            rustix::fs::linkat(&at, name, other_dir, OsStr::from_bytes(&other), AtFlags::empty())
        }
        8 => {
            let mode = Mode::from_raw_mode((input.number() & 0o7777) as u32);
            rustix::fs::fchmod(open(OFlags::RDONLY)?, mode)
        }
        9 => {
            let fd = open(OFlags::RDONLY)?;
            let value = if input.byte() < 128 { input.of(&VALUES) } else { input.bytes() };
            rustix::fs::fsetxattr(fd, input.of(&XATTRS), value, XattrFlags::empty())
        }
        10 => {
            let seconds = input.of(&[0, -1, 1, 1_700_000_000, i64::from(u32::MAX), -2_000_000_000]);
            let time = Timespec { tv_sec: seconds, tv_nsec: (input.number() % 1_000_000_000) as i64 };
            let times = Timestamps { last_access: time, last_modification: time };
            rustix::fs::utimensat(&at, name, &times, AtFlags::SYMLINK_NOFOLLOW)
        }
        _ => {
            let (other_dir, other) = (dir(root, input), input.name());
            rustix::fs::renameat(&at, name, other_dir, OsStr::from_bytes(&other))
        }
    }
}

fn context() -> Context {
    Context { clock: Arc::new(SteppingClock::starting_at(START)), actor: "fuzz".to_owned() }
}

fn vault_of(dir: &Path) -> Vault {
    let vault = Vault::over(Box::new(MemoryBackend::default()), context()).expect("a vault in memory");
    let options = ImportOptions {
        on_trouble: OnTrouble::Fail,
        stat_cache: None,
        exclude: &[],
        meter: &Meter::default(),
    };
    vault.import(dir, &ForkName::main(), "import", &options).expect("an import");
    vault
}

fn root_of(vault: &Vault) -> DirRef {
    let reader = vault.read().expect("a reader");
    let reference = Reference::parse("main").expect("a reference");
    let (version, _) = avfs_vault::version::resolve(&*reader, &reference).expect("main");
    full_root_of(&*reader, &version).expect("its root")
}

/// A directory of this process in memory, with the base below every input.
fn place() -> &'static Path {
    static PLACE: OnceLock<PathBuf> = OnceLock::new();
    PLACE.get_or_init(|| {
        let place = PathBuf::from(format!("/dev/shm/avfs-fuzz-{}", std::process::id()));
        let base = place.join("base");
        std::fs::create_dir_all(base.join("d/sub/deep")).expect("the base");
        std::fs::create_dir_all(base.join("e")).expect("the base");
        for (name, content) in
            [("a", "one"), ("d/a", "two"), ("d/sub/file", "three"), ("d/sub/deep/a", "four"), ("e/file", "")]
        {
            std::fs::write(base.join(name), content).expect("the base");
        }
        std::os::unix::fs::symlink("a", base.join("link")).expect("the base");
        std::fs::hard_link(base.join("a"), base.join("e/a")).expect("the base");
        place
    })
}

fn has_ignore_file(dir: &Path) -> bool {
    let entries = std::fs::read_dir(dir).into_iter().flatten().flatten();
    entries.into_iter().any(|entry| {
        let is_dir = entry.file_type().is_ok_and(|kind| kind.is_dir());
        entry.file_name() == ".avfsignore" || (is_dir && has_ignore_file(&entry.path()))
    })
}

fn clear(dir: &Path) {
    if std::fs::remove_dir_all(dir).is_err() && dir.exists() {
        // Directories without permissions.
        let _ = std::process::Command::new("chmod").args(["-R", "u+rwx", "--"]).arg(dir).status();
        std::fs::remove_dir_all(dir).expect("the directory can be removed");
    }
}

fuzz_target!(|bytes: &[u8]| {
    let place = place();
    let (upper, out, journal) = (place.join("upper"), place.join("out"), place.join("modes"));
    clear(&upper);
    clear(&out);
    let _ = std::fs::remove_file(&journal);
    let vault = vault_of(&place.join("base"));
    let base = root_of(&vault);
    std::fs::create_dir(&upper).expect("the upper");
    let upper_fd = beneath::open_root(&upper).expect("the upper opens");
    vault.prepare_upper(upper_fd.as_fd(), &base).expect("the upper is prepared");
    let mut input = Input(bytes);
    let kind = if input.byte() < 192 { UpperKind::Layer } else { UpperKind::Whole };
    for _ in 0..STEPS_MAX {
        if input.0.is_empty() {
            break;
        }
        let _ = step(&upper_fd, &mut input);
    }
    let options = CaptureOptions {
        kind,
        exclude: &[],
        hidden: &[],
        file_bytes_max: FILE_BYTES_MAX,
        secrets: &Secrets::default(),
        times: avfs_vault::capture::Times::AsWritten,
        since: avfs_types::clock::FileTime::default(),
        renamed: &RenamedNames::default(),
        modes_journal: &journal,
        meter: &Meter::default(),
    };
    // An error is a valid result; then the vault is unchanged.
    if let Ok(captured) = vault.capture(upper_fd.as_fd(), &base, &options) {
        let head = vault.fork(&ForkName::main()).expect("main").head;
        let advance = Advance { action: "run.capture", message: "run", run: None, when: When::Changed };
        let edits = format!("{:?}", captured.edited.edits(&FreshPages::new(&vault)));
        vault
            .commit_captured(&ForkName::main(), &head, captured, &advance)
            .expect("the capture is committed");
        let root = root_of(&vault);
        let export = ExportOptions {
            overwrite: Overwrite::Refuse,
            paths: &[],
            set_ids: SetIds::Kept,
            meter: &Meter::default(),
            unwritten: None,
        };
        vault.export(&root, &out, &export).unwrap_or_else(|error| panic!("{error:?}: {edits}"));
        // Root can read any mode; other users cannot import a file without read permission. An ignore file would make
        // the import leave out files of the version.
        if rustix::process::geteuid().is_root() && !has_ignore_file(&out) {
            assert_eq!(root_of(&vault_of(&out)), root, "the export differs from the capture: {edits}");
        }
    }
    let report = vault.fsck(Thoroughness::Full, &Meter::default()).expect("a check");
    assert!(report.findings.is_empty(), "{:#?}", report.findings);
});
