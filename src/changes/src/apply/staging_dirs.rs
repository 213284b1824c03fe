//! The directories in which new entries are staged: one for each group and default ACL that entries inherit.
//!
//! The kernel gives an entry its group and its ACL when it is created. An entry that is created in the staging
//! directory and moved afterwards has those of the directory that it is moved to only if both directories pass on the
//! same.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use avfs_hostfs::beneath::DIR;
use avfs_hostfs::make::Umask;
use avfs_hostfs::ownership::Inheritance;
use avfs_hostfs::{beneath, make};
use avfs_types::path::TreePath;

#[derive(Default)]
pub struct StagingDirs {
    dirs: Vec<StagingDir>,
    /// The first number of consecutive entries in the same directory, and the directory.
    runs: Vec<(usize, usize)>,
}

struct StagingDir {
    inheritance: Inheritance,
    fd: OwnedFd,
    umask: Umask,
}

/// The place of a staged entry.
#[derive(Clone, Copy)]
pub struct Staged<'a> {
    pub dir: &'a OwnedFd,
    /// The umask in `dir`.
    pub umask: Umask,
    number: usize,
    dir_number: usize,
}

impl Staged<'_> {
    /// The name of the entry in its directory.
    pub fn name(&self) -> Vec<u8> {
        self.number.to_string().into_bytes()
    }

    /// The path of the entry in the staging directory.
    pub fn path(&self) -> TreePath {
        dir_path(self.dir_number).join(&self.name())
    }
}

fn dir_path(number: usize) -> TreePath {
    TreePath::root().join(format!("d{number}").as_bytes())
}

impl StagingDirs {
    /// A place for an entry that inherits this. Entries are placed in the order of their numbers.
    pub fn place(
        &mut self,
        staging: BorrowedFd<'_>,
        number: usize,
        inheritance: Inheritance,
    ) -> io::Result<Staged<'_>> {
        let known = self.dirs.iter().position(|dir| dir.inheritance == inheritance);
        let dir = match known {
            Some(known) => known,
            None => {
                let path = dir_path(self.dirs.len());
                make::dir(staging, path.as_bytes())?;
                let fd = beneath::open(staging, path.as_bytes(), DIR)?;
                inheritance.give(fd.as_fd())?;
                let umask = Umask::beneath(fd.as_fd())?;
                self.dirs.push(StagingDir { inheritance, fd, umask });
                self.dirs.len() - 1
            }
        };
        if self.runs.last().is_none_or(|(_, last)| *last != dir) {
            self.runs.push((number, dir));
        }
        Ok(self.staged(number, dir))
    }

    fn staged(&self, number: usize, dir_number: usize) -> Staged<'_> {
        let StagingDir { fd, umask, .. } = &self.dirs[dir_number];
        Staged { dir: fd, umask: *umask, number, dir_number }
    }

    /// The place of an entry that was placed before.
    pub fn at(&self, number: usize) -> Staged<'_> {
        let run = self.runs.partition_point(|(first, _)| *first <= number);
        self.staged(number, self.runs[run - 1].1)
    }
}
