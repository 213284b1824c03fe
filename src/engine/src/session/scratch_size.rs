//! Chooses the place of the scratch: a bounded tmpfs if there is enough memory, the disk otherwise.

use std::path::{Path, PathBuf};

use avfs_hostfs::machine::kernel_version;
use avfs_request::{Limits, ScratchChoice};

/// A scratch may use one part in this many of the free memory.
const SHARE: u64 = 4;
const SIZE_MIN_BYTES: u64 = 512 << 20;
const SIZE_MAX_BYTES: u64 = 8 << 30;
/// Bytes of the scratch per inode.
const BYTES_PER_INODE: u64 = 4096;
/// If an earlier run wrote more than one part in this many of the scratch, the disk is used.
const EARLIER_SHARE: u64 = 4;
/// The first kernel with user attributes on tmpfs.
const KERNEL_MIN: (u32, u32) = (6, 6);
/// Inodes for overlayfs and the scratch itself, in addition to those for the command.
const INODES_OWN: u64 = 16;
const OVERLAYFS_MAGIC: u64 = 0x794c_7630;

/// The place of a run's scratch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scratch {
    Memory { size_bytes: u64, inodes: u64 },
    Disk,
}

/// The inputs of the choice.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ScratchSpace {
    /// Free memory: of the machine, and within the limits of the cgroups.
    pub free_bytes: u64,
    pub kernel: (u32, u32),
    /// True if the cache directory is on overlayfs, which cannot hold an upper.
    pub cache_on_overlay: bool,
    /// The largest amount written by a recent run.
    pub written_before: u64,
}

impl ScratchSpace {
    /// Reads the state of the machine.
    #[must_use]
    pub fn look(cache_dir: &Path, written_before: u64) -> Self {
        let on_overlay = rustix::fs::statfs(cache_dir)
            .is_ok_and(|fs| u64::try_from(fs.f_type).is_ok_and(|kind| kind == OVERLAYFS_MAGIC));
        Self {
            free_bytes: available().min(cgroup_room().unwrap_or(u64::MAX)),
            kernel: kernel_version(),
            cache_on_overlay: on_overlay,
            written_before,
        }
    }

    /// Chooses the place. A tmpfs counts as memory of the command, and is limited by what the command may write.
    #[must_use]
    pub fn choose(&self, choice: ScratchChoice, limits: &Limits) -> Scratch {
        let share = self.free_bytes.min(limits.memory.unwrap_or(u64::MAX)) / SHARE;
        let room = share.clamp(SIZE_MIN_BYTES, SIZE_MAX_BYTES).min(limits.memory.unwrap_or(u64::MAX));
        let size_bytes = room.min(limits.disk.unwrap_or(u64::MAX));
        let inodes = limits.files.map_or(u64::MAX, |files| files.saturating_add(INODES_OWN));
        let memory = Scratch::Memory { size_bytes, inodes: (room / BYTES_PER_INODE).min(inodes) };
        let ample = limits.disk.map_or(share >= SIZE_MIN_BYTES, |disk| disk <= share.min(SIZE_MAX_BYTES));
        match choice {
            ScratchChoice::Memory => memory,
            ScratchChoice::Disk => Scratch::Disk,
            ScratchChoice::Auto if self.kernel < KERNEL_MIN => Scratch::Disk,
            ScratchChoice::Auto if self.cache_on_overlay => memory,
            ScratchChoice::Auto if ample && self.written_before <= size_bytes / EARLIER_SHARE => memory,
            ScratchChoice::Auto => Scratch::Disk,
        }
    }
}

fn available() -> u64 {
    let text = std::fs::read_to_string("/proc/meminfo").unwrap_or_default();
    let line = text.lines().find_map(|line| line.strip_prefix("MemAvailable:"));
    let kib =
        line.and_then(|rest| rest.split_whitespace().next()).and_then(|number| number.parse::<u64>().ok());
    kib.unwrap_or(0).saturating_mul(1024)
}

/// The memory left by the tightest cgroup of this process; `None` if no cgroup has a limit.
fn cgroup_room() -> Option<u64> {
    let text = std::fs::read_to_string("/proc/self/cgroup").ok()?;
    let path = text.lines().find_map(|line| line.strip_prefix("0::"))?;
    let top = Path::new("/sys/fs/cgroup");
    let own: PathBuf = top.join(path.trim_start_matches('/'));
    let number = |file: PathBuf| std::fs::read_to_string(file).ok()?.trim().parse::<u64>().ok();
    let rooms = own.ancestors().take_while(|dir| dir.starts_with(top)).filter_map(|dir| {
        let limit = number(dir.join("memory.max"))?;
        Some(limit.saturating_sub(number(dir.join("memory.current")).unwrap_or(0)))
    });
    rooms.min()
}

#[cfg(test)]
mod tests {
    use super::*;

    const AMPLE: ScratchSpace =
        ScratchSpace { free_bytes: 16 << 30, kernel: (6, 18), cache_on_overlay: false, written_before: 0 };

    #[test]
    fn memory_is_used_if_there_is_enough() {
        let memory = Scratch::Memory { size_bytes: 4 << 30, inodes: 1 << 20 };
        assert_eq!(AMPLE.choose(ScratchChoice::Auto, &Limits::default()), memory);
        let little = ScratchSpace { free_bytes: 1 << 30, ..AMPLE };
        assert_eq!(little.choose(ScratchChoice::Auto, &Limits::default()), Scratch::Disk);
        let old = ScratchSpace { kernel: (6, 5), ..AMPLE };
        assert_eq!(old.choose(ScratchChoice::Auto, &Limits::default()), Scratch::Disk);
        let much = ScratchSpace { written_before: 2 << 30, ..AMPLE };
        assert_eq!(much.choose(ScratchChoice::Auto, &Limits::default()), Scratch::Disk);
        // Overlayfs cannot hold an upper, so there is no choice.
        let container = ScratchSpace { cache_on_overlay: true, ..little };
        assert!(matches!(container.choose(ScratchChoice::Auto, &Limits::default()), Scratch::Memory { .. }));
    }

    #[test]
    fn explicit_choice_is_followed() {
        assert_eq!(AMPLE.choose(ScratchChoice::Disk, &Limits::default()), Scratch::Disk);
        let little = ScratchSpace { free_bytes: 0, ..AMPLE };
        let Scratch::Memory { size_bytes, .. } = little.choose(ScratchChoice::Memory, &Limits::default())
        else {
            panic!()
        };
        assert_eq!(size_bytes, SIZE_MIN_BYTES);
    }

    #[test]
    fn limits_bound_the_scratch_in_memory() {
        let chosen = |choice, limits| AMPLE.choose(choice, &limits);
        let auto = |limits| chosen(ScratchChoice::Auto, limits);
        let small = Limits { disk: Some(1 << 20), files: Some(100), ..Limits::default() };
        let bounded = Scratch::Memory { size_bytes: 1 << 20, inodes: 100 + INODES_OWN };
        assert_eq!(auto(small), bounded);
        let large = Limits { disk: Some(1 << 40), ..Limits::default() };
        assert_eq!(auto(large), Scratch::Disk, "more than memory has room for");
        let Scratch::Memory { size_bytes, .. } = chosen(ScratchChoice::Memory, large) else { panic!() };
        assert_eq!(size_bytes, 4 << 30);
        let both = Limits { memory: Some(256 << 20), ..small };
        assert_eq!(auto(both), bounded, "a small disk limit allows a scratch in little memory");
        // If memory is tight, it is left to the command.
        let tight = Limits { memory: Some(256 << 20), ..Limits::default() };
        assert_eq!(auto(tight), Scratch::Disk);
        let Scratch::Memory { size_bytes, .. } = chosen(ScratchChoice::Memory, tight) else { panic!() };
        assert_eq!(size_bytes, 256 << 20);
        let some = Limits { memory: Some(8 << 30), ..Limits::default() };
        assert!(matches!(auto(some), Scratch::Memory { size_bytes, .. } if size_bytes == 2 << 30));
    }

    #[test]
    fn state_of_the_machine_can_be_read() {
        let room = ScratchSpace::look(Path::new("/"), 0);
        assert!(room.free_bytes > 0 && room.kernel > (5, 0));
    }
}
