//! File locks with a timeout: granted in the order requested, released by the kernel when the holder dies.

use std::ffi::OsStr;
use std::fs::File;
use std::io;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError, mpsc};
use std::time::{Duration, Instant};

use rustix::fs::{FlockOperation, Gid, Mode as FileMode, OFlags, Uid, flock};
use rustix::io::Errno;

use crate::beneath;
use crate::owner::create_like;
use crate::threads::shielded;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    Shared,
    Exclusive,
}

#[derive(Debug, thiserror::Error)]
pub enum LockError {
    #[error("cannot open the lock file {}", path.display())]
    Open {
        path: PathBuf,
        #[source]
        source: std::io::Error,
    },
    #[error("the file system does not support locks")]
    Unsupported(#[source] std::io::Error),
    #[error("still locked by another process after {} s", .0.as_secs())]
    TimedOut(Duration),
    #[error("cannot lock")]
    Lock(#[source] std::io::Error),
}

impl LockError {
    /// Converts the error of locking an open file.
    #[must_use]
    pub fn of(error: std::io::Error) -> Self {
        error.raw_os_error().map(Errno::from_raw_os_error).map_or_else(|| Self::Lock(error), refused)
    }
}

/// A held lock; dropping it releases the lock.
///
/// Each lock has a separate open file description, so it excludes other threads of this process too.
#[derive(Debug)]
pub struct FileLock {
    held: OwnedFd,
}

impl FileLock {
    /// Waits in the kernel's queue, which is fair, for at most `patience`.
    pub fn acquire(path: &Path, mode: Mode, patience: Duration) -> Result<Self, LockError> {
        Self::take(opened(path, New::Own)?, mode, patience)
    }

    /// Like [`Self::acquire`], but a new lock file gets the permissions of the file it guards: it can be used by
    /// exactly the users who can use that file, no matter who creates it.
    pub fn acquire_for(
        guarded: &Path,
        path: &Path,
        mode: Mode,
        patience: Duration,
    ) -> Result<Self, LockError> {
        Self::take(opened(path, New::Like(guarded))?, mode, patience)
    }

    fn take(file: OwnedFd, mode: Mode, patience: Duration) -> Result<Self, LockError> {
        let (now, wait) = match mode {
            Mode::Shared => (FlockOperation::NonBlockingLockShared, FlockOperation::LockShared),
            Mode::Exclusive => (FlockOperation::NonBlockingLockExclusive, FlockOperation::LockExclusive),
        };
        match flock(&file, now) {
            Ok(()) => return Ok(Self { held: file }),
            Err(Errno::WOULDBLOCK) => {}
            Err(errno) => return Err(refused(errno)),
        }
        if patience.is_zero() {
            return Err(LockError::TimedOut(patience));
        }
        avfs_types::pause::point("lock-wait");
        match wait_for(file, now, wait, patience) {
            Some(outcome) => outcome.map(|held| Self { held }).map_err(refused),
            None => Err(LockError::TimedOut(patience)),
        }
    }

    /// True if `path` still names the locked file, and not a replacement.
    pub fn is_at(&self, path: &Path) -> std::io::Result<bool> {
        let (held, there) = (rustix::fs::fstat(&self.held)?, rustix::fs::stat(path)?);
        Ok((held.st_dev, held.st_ino) == (there.st_dev, there.st_ino))
    }

    /// Lets child processes inherit the lock: it is released when all of them have ended.
    pub fn pass_on(&self) -> std::io::Result<()> {
        Ok(rustix::io::fcntl_setfd(&self.held, rustix::io::FdFlags::empty())?)
    }

    /// Like [`Self::acquire_for`], for a lock file that guards the open directory that has it. No symlink is followed.
    pub fn acquire_in(
        dir: BorrowedFd<'_>,
        name: &[u8],
        mode: Mode,
        patience: Duration,
    ) -> Result<Self, LockError> {
        let path = || PathBuf::from(OsStr::from_bytes(name));
        let file = open_in(dir, name).map_err(|source| LockError::Open { path: path(), source })?;
        Self::take(file, mode, patience)
    }

    /// Locks a directory, or any existing file, if the lock is free. Also returns `None` if the file was removed in
    /// the meantime.
    pub fn try_existing(path: &Path, mode: Mode) -> std::io::Result<Option<Self>> {
        let held = match File::open(path) {
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
            other => OwnedFd::from(other?),
        };
        let lock = Self::try_open(held, mode)?;
        Ok(lock.filter(|lock| lock.is_at(path).unwrap_or(false)))
    }

    /// Locks an open directory or file if the lock is free.
    pub fn try_open(held: OwnedFd, mode: Mode) -> std::io::Result<Option<Self>> {
        let operation = match mode {
            Mode::Shared => FlockOperation::NonBlockingLockShared,
            Mode::Exclusive => FlockOperation::NonBlockingLockExclusive,
        };
        match flock(&held, operation) {
            Err(Errno::WOULDBLOCK) => Ok(None),
            other => Ok(other.map(|()| Some(Self { held }))?),
        }
    }

    /// Takes the lock if it is free.
    pub fn try_acquire(path: &Path, mode: Mode) -> Result<Option<Self>, LockError> {
        free(Self::acquire(path, mode, Duration::ZERO))
    }

    /// Like [`Self::try_acquire`], creating the lock file like [`Self::acquire_for`].
    pub fn try_acquire_for(guarded: &Path, path: &Path, mode: Mode) -> Result<Option<Self>, LockError> {
        free(Self::acquire_for(guarded, path, mode, Duration::ZERO))
    }
}

/// Whether this process has a descriptor of the file at a path that holds its exclusive lock: the process that locked
/// it has passed it on. The path alone proves nothing, because every process of the user can name it.
pub fn is_inherited(path: &Path) -> io::Result<bool> {
    let wanted = path.metadata()?;
    for entry in std::fs::read_dir("/proc/self/fd")? {
        let number = entry?.file_name();
        // The descriptor of this listing is closed at its end.
        let Ok(found) = Path::new("/proc/self/fd").join(&number).metadata() else { continue };
        if (found.dev(), found.ino()) == (wanted.dev(), wanted.ino()) {
            // Lists the locks of this descriptor only.
            let info = std::fs::read_to_string(Path::new("/proc/self/fdinfo").join(&number))?;
            let is_held = |line: &str| {
                line.starts_with("lock:") && ["FLOCK", "WRITE"].iter().all(|word| line.contains(word))
            };
            if info.lines().any(is_held) {
                return Ok(true);
            }
        }
    }
    Ok(false)
}

fn free(taken: Result<FileLock, LockError>) -> Result<Option<FileLock>, LockError> {
    match taken {
        Ok(lock) => Ok(Some(lock)),
        Err(LockError::TimedOut(_)) => Ok(None),
        Err(error) => Err(error),
    }
}

type Outcome = Result<OwnedFd, Errno>;

struct Wait {
    file: OwnedFd,
    operation: FlockOperation,
    answer: mpsc::SyncSender<Outcome>,
}

/// The polling interval for a lock if no waiting thread can be created.
const POLL_PAUSE: Duration = Duration::from_millis(5);

/// Waiting threads that are idle.
static IDLE: Mutex<Vec<mpsc::Sender<Wait>>> = Mutex::new(Vec::new());

/// A blocking flock has no timeout, so another thread does the waiting, possibly forever. If the lock is no longer
/// wanted, nobody receives the answer and the descriptor, and with it the lock, is dropped.
fn wait_for(
    file: OwnedFd,
    now: FlockOperation,
    operation: FlockOperation,
    patience: Duration,
) -> Option<Outcome> {
    let idle = || IDLE.lock().unwrap_or_else(PoisonError::into_inner);
    let (answer, take) = mpsc::sync_channel(0);
    let start = || -> io::Result<mpsc::Sender<Wait>> {
        let (send, receive) = mpsc::channel::<Wait>();
        let again = send.clone();
        let work = move || {
            for wait in receive {
                let outcome = loop {
                    match flock(&wait.file, wait.operation) {
                        Err(Errno::INTR) => {}
                        other => break other,
                    }
                };
                let _ = wait.answer.send(outcome.map(|()| wait.file));
                idle().push(again.clone());
            }
        };
        shielded(|| std::thread::Builder::new().spawn(work))?;
        Ok(send)
    };
    let waiter = idle().pop();
    let Ok(waiter) = waiter.map_or_else(start, Ok) else { return poll(file, now, patience) };
    let sent = waiter.send(Wait { file, operation, answer });
    debug_assert!(sent.is_ok(), "a waiting thread never ends");
    take.recv_timeout(patience).ok()
}

/// Waits without another thread, if none can be created; others may get the lock first.
fn poll(file: OwnedFd, now: FlockOperation, patience: Duration) -> Option<Outcome> {
    let begun = Instant::now();
    while begun.elapsed() < patience {
        match flock(&file, now) {
            Err(Errno::WOULDBLOCK | Errno::INTR) => std::thread::sleep(POLL_PAUSE),
            outcome => return Some(outcome.map(|()| file)),
        }
    }
    None
}

/// How often a lock file may be missing when it is opened and exist when it is created.
const OPEN_TRIES_MAX: usize = 100;

/// How a missing lock file is created.
#[derive(Clone, Copy, Debug)]
enum New<'a> {
    /// Like any file of this process.
    Own,
    /// With the permissions of the file that it guards.
    Like(&'a Path),
}

fn opened(path: &Path, new: New<'_>) -> Result<OwnedFd, LockError> {
    open(path, new).map_err(|source| LockError::Open { path: path.to_owned(), source })
}

fn open_in(dir: BorrowedFd<'_>, name: &[u8]) -> io::Result<OwnedFd> {
    let flags = OFlags::RDWR | OFlags::NONBLOCK | OFlags::NOCTTY;
    for _ in 0..OPEN_TRIES_MAX {
        match beneath::open(dir, name, flags) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            other => return other,
        }
        let like = rustix::fs::fstat(dir)?;
        let mode = FileMode::from_raw_mode(like.st_mode & 0o777);
        match beneath::create(dir, name, flags | OFlags::CREATE | OFlags::EXCL, mode) {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
            other => {
                let made = other?;
                let user = rustix::process::geteuid().is_root().then(|| Uid::from_raw(like.st_uid));
                // Without this permission, the file has fewer users than intended, never more.
                let _ = rustix::fs::fchown(&made, user, Some(Gid::from_raw(like.st_gid)));
                return Ok(made);
            }
        }
    }
    // A socket, which cannot be opened.
    Err(Errno::NXIO.into())
}

fn open(path: &Path, new: New<'_>) -> io::Result<OwnedFd> {
    for _ in 0..OPEN_TRIES_MAX {
        match open_existing(path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            other => return other,
        }
        match make(path, new) {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
            other => return other,
        }
    }
    // A dangling symlink: creating a file does not follow it.
    Err(Errno::LOOP.into())
}

fn open_existing(path: &Path) -> io::Result<OwnedFd> {
    // For writing if that is allowed: NFS requires it for an exclusive lock.
    let opened = File::options().read(true).write(true).open(path);
    let opened = opened.or_else(|refused| File::open(path).map_err(|_| refused));
    opened.map(OwnedFd::from)
}

fn make(path: &Path, new: New<'_>) -> io::Result<OwnedFd> {
    match new {
        New::Own => File::options().read(true).write(true).create_new(true).open(path),
        New::Like(guarded) => create_like(path, &guarded.metadata()?, 0o777),
    }
    .map(OwnedFd::from)
}

fn refused(errno: Errno) -> LockError {
    match errno {
        Errno::NOLCK | Errno::OPNOTSUPP | Errno::NOSYS | Errno::INVAL => LockError::Unsupported(errno.into()),
        other => LockError::Lock(other.into()),
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[test]
    fn only_a_descriptor_that_holds_the_lock_is_inherited() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("lock");
        assert!(is_inherited(&path).is_err());
        let open = File::create(&path).unwrap();
        assert!(!is_inherited(&path).unwrap());
        // Held by another process.
        let mut holder = std::process::Command::new("flock");
        let holder = holder.arg(&path).arg("cat");
        let mut holder =
            holder.stdin(std::process::Stdio::piped()).stdout(std::process::Stdio::piped()).spawn().unwrap();
        let mut echo = [0];
        std::io::Write::write_all(holder.stdin.as_mut().unwrap(), b"x").unwrap();
        std::io::Read::read_exact(holder.stdout.as_mut().unwrap(), &mut echo).unwrap();
        assert!(!is_inherited(&path).unwrap());
        drop(holder.stdin.take());
        holder.wait().unwrap();
        flock(&open, FlockOperation::LockShared).unwrap();
        assert!(!is_inherited(&path).unwrap());
        flock(&open, FlockOperation::LockExclusive).unwrap();
        assert!(is_inherited(&path).unwrap());
    }

    #[test]
    fn waiting_for_a_held_lock_times_out_or_succeeds_on_release() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("lock");
        let held = FileLock::acquire(&path, Mode::Exclusive, Duration::ZERO).unwrap();
        let refused = FileLock::acquire(&path, Mode::Shared, Duration::from_millis(20)).unwrap_err();
        assert!(matches!(refused, LockError::TimedOut(_)));
        let waiter = std::thread::spawn({
            let path = path.clone();
            move || FileLock::acquire(&path, Mode::Exclusive, Duration::from_secs(60)).is_ok()
        });
        // The kernel lists the waiters for a lock by the inode of its file.
        let waits = format!(":{} ", path.metadata().unwrap().ino());
        let is_waiting = || {
            let locks = std::fs::read_to_string("/proc/locks").unwrap();
            locks.lines().any(|line| line.contains("-> FLOCK  ADVISORY  WRITE") && line.contains(&waits))
        };
        while !is_waiting() {
            std::thread::yield_now();
        }
        drop(held);
        assert!(waiter.join().unwrap());
        // The abandoned waiter above must not have kept the lock.
        assert!(FileLock::acquire(&path, Mode::Exclusive, Duration::from_secs(60)).is_ok());
    }

    #[test]
    fn new_lock_file_has_the_mode_of_the_guarded_file() {
        let dir = tempfile::tempdir().unwrap();
        let guarded = dir.path().join("file");
        std::fs::write(&guarded, "").unwrap();
        for bits in [0o600, 0o644, 0o666, 0o640] {
            std::fs::set_permissions(&guarded, PermissionsExt::from_mode(bits)).unwrap();
            let path = dir.path().join(format!("lock-{bits:o}"));
            drop(FileLock::acquire_for(&guarded, &path, Mode::Shared, Duration::ZERO).unwrap());
            assert_eq!(path.metadata().unwrap().mode() & 0o7777, bits);
        }
        // An existing lock file stays unchanged.
        let path = dir.path().join("lock-600");
        drop(FileLock::acquire_for(&guarded, &path, Mode::Shared, Duration::ZERO).unwrap());
        assert_eq!(path.metadata().unwrap().mode() & 0o7777, 0o600);
    }

    #[test]
    fn dangling_symlink_is_not_used_as_a_lock_file() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("lock");
        std::os::unix::fs::symlink(dir.path().join("nowhere"), &path).unwrap();
        let refused = FileLock::acquire(&path, Mode::Shared, Duration::ZERO).unwrap_err();
        assert!(matches!(refused, LockError::Open { path: named, .. } if named == path));
        assert!(!dir.path().join("nowhere").exists());
    }

    #[test]
    fn shared_locks_do_not_exclude_each_other() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("lock");
        let _one = FileLock::try_acquire(&path, Mode::Shared).unwrap().unwrap();
        let _two = FileLock::try_acquire(&path, Mode::Shared).unwrap().unwrap();
        assert!(FileLock::try_acquire(&path, Mode::Exclusive).unwrap().is_none());
    }
}
