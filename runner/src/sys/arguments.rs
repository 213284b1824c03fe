//! The memory with the arguments of this process, which `/proc/PID/cmdline` shows to every process that sees it.

use std::ptr::{with_exposed_provenance_mut, write_bytes};

use super::{Errno, Result};

/// The fields of /proc/PID/stat with the bounds of the area, counted from 1; the first after the name is 3.
const START: usize = 48;
const END: usize = 49;
const FIRST: usize = 3;

/// The area of the arguments.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ArgumentArea {
    start: usize,
    length: usize,
}

impl ArgumentArea {
    pub fn find() -> Result<Self> {
        let stat = std::fs::read_to_string("/proc/self/stat");
        let stat = stat.map_err(|error| Errno::from_io_error(&error).unwrap_or(Errno::IO))?;
        Self::parse(&stat).ok_or(Errno::INVAL)
    }

    fn parse(stat: &str) -> Option<Self> {
        // The name can contain anything.
        let (_, fields) = stat.rsplit_once(')')?;
        let field = |number: usize| fields.split_whitespace().nth(number - FIRST)?.parse::<usize>().ok();
        let (start, end) = (field(START)?, field(END)?);
        Some(Self { start, length: end.checked_sub(start).filter(|_| start > 0)? })
    }

    /// Overwrites the arguments with zeros. Only for a process that was cloned and does not use them.
    pub fn clear(self) {
        let start = with_exposed_provenance_mut::<u8>(self.start);
        // SAFETY: the kernel placed the strings of the arguments in these bytes of the stack, which stays mapped and
        // writable. Nothing else is there, and the caller is the only thread of a process that does not read them.
        unsafe { write_bytes(start, 0, self.length) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_area_has_the_arguments() {
        let arguments = std::fs::read("/proc/self/cmdline").unwrap();
        assert_eq!(ArgumentArea::find().unwrap().length, arguments.len());
        let stat = |name: &str, start: u64, end: u64| {
            format!("7 ({name}) S {}{start} {end} 0\n", "1 ".repeat(START - FIRST - 1))
        };
        let found = Some(ArgumentArea { start: 100, length: 20 });
        assert_eq!(ArgumentArea::parse(&stat("a) R 1 (", 100, 120)), found);
        assert_eq!(ArgumentArea::parse(&stat("a", 0, 0)), None, "hidden");
        assert_eq!(ArgumentArea::parse(&stat("a", 120, 100)), None);
    }
}
