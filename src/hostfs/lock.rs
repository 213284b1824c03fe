//! File locks with patience: served in the order of asking, released by the kernel when the holder dies.

use std::fs::File;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::sync::mpsc;
use std::time::Duration;

use rustix::fs::{FlockOperation, flock};
use rustix::io::Errno;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    Shared,
    Exclusive,
}

#[derive(Debug, thiserror::Error)]
pub enum LockError {
    #[error("cannot open the lock file")]
    Open(#[source] std::io::Error),
    #[error("the file system has no locks")]
    Unsupported(#[source] std::io::Error),
    #[error("still locked by another process after {} s", .0.as_secs())]
    TimedOut(Duration),
    #[error("cannot lock")]
    Lock(#[source] std::io::Error),
}

/// A held lock; dropping it gives it back.
///
/// Each lock has an open file description of its own, so it excludes threads of this process too.
#[derive(Debug)]
pub struct FileLock {
    held: OwnedFd,
}

impl FileLock {
    /// Waits in the kernel's queue, which is fair, for at most `patience`.
    pub fn acquire(path: &Path, mode: Mode, patience: Duration) -> Result<Self, LockError> {
        let file = open(path)?;
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
        // A blocking flock has no timeout. A thread of its own may wait for ever; when nobody wants the lock
        // any more the send fails and the descriptor, and with it the lock, is dropped.
        let (give, take) = mpsc::sync_channel(0);
        std::thread::spawn(move || {
            let outcome = loop {
                match flock(&file, wait) {
                    Err(Errno::INTR) => {}
                    other => break other,
                }
            };
            let _ = give.send(outcome.map(|()| file));
        });
        match take.recv_timeout(patience) {
            Ok(Ok(held)) => Ok(Self { held }),
            Ok(Err(errno)) => Err(refused(errno)),
            Err(_) => Err(LockError::TimedOut(patience)),
        }
    }

    /// True if `path` still names the file that is locked, and not another one put in its place.
    pub fn is_at(&self, path: &Path) -> std::io::Result<bool> {
        let (held, there) = (rustix::fs::fstat(&self.held)?, rustix::fs::stat(path)?);
        Ok((held.st_dev, held.st_ino) == (there.st_dev, there.st_ino))
    }

    /// Takes the lock if nobody holds it.
    pub fn try_acquire(path: &Path, mode: Mode) -> Result<Option<Self>, LockError> {
        match Self::acquire(path, mode, Duration::ZERO) {
            Ok(lock) => Ok(Some(lock)),
            Err(LockError::TimedOut(_)) => Ok(None),
            Err(error) => Err(error),
        }
    }
}

fn open(path: &Path) -> Result<OwnedFd, LockError> {
    let opened = File::open(path).or_else(|missing| {
        if missing.kind() != std::io::ErrorKind::NotFound {
            return Err(missing);
        }
        File::options().read(true).write(true).create(true).truncate(false).open(path)
    });
    opened.map(OwnedFd::from).map_err(LockError::Open)
}

fn refused(errno: Errno) -> LockError {
    match errno {
        Errno::NOLCK | Errno::OPNOTSUPP | Errno::NOSYS | Errno::INVAL => LockError::Unsupported(errno.into()),
        other => LockError::Lock(other.into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_held_lock_is_waited_for_and_then_given_up() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("lock");
        let held = FileLock::acquire(&path, Mode::Exclusive, Duration::ZERO).unwrap();
        let refused = FileLock::acquire(&path, Mode::Shared, Duration::from_millis(20)).unwrap_err();
        assert!(matches!(refused, LockError::TimedOut(_)));
        let waiter = std::thread::spawn({
            let path = path.clone();
            move || FileLock::acquire(&path, Mode::Exclusive, Duration::from_secs(60)).is_ok()
        });
        std::thread::sleep(Duration::from_millis(20));
        drop(held);
        assert!(waiter.join().unwrap());
        // The abandoned waiter above must not have kept the lock.
        assert!(FileLock::acquire(&path, Mode::Exclusive, Duration::from_secs(60)).is_ok());
    }

    #[test]
    fn shared_holders_live_together() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("lock");
        let _one = FileLock::try_acquire(&path, Mode::Shared).unwrap().unwrap();
        let _two = FileLock::try_acquire(&path, Mode::Shared).unwrap().unwrap();
        assert!(FileLock::try_acquire(&path, Mode::Exclusive).unwrap().is_none());
    }
}
