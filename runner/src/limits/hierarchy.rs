//! Finds the control groups of this process, from /proc/self/mountinfo and /proc/self/cgroup.
//!
//! Only reads.

use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt;
use std::path::{Component, Path, PathBuf};

use super::choose::Controller;

/// The groups of this process, as directories.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Hierarchies {
    /// The mount point of the cgroup v2 hierarchy, and our group in it.
    pub unified: Option<Unified>,
    /// Our group in each cgroup v1 hierarchy.
    pub old: Vec<(Controller, PathBuf)>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unified {
    pub top: PathBuf,
    pub own: PathBuf,
}

impl Hierarchies {
    /// Reads both tables.
    #[must_use]
    pub fn look() -> Self {
        let mounts = std::fs::read("/proc/self/mountinfo").unwrap_or_default();
        let groups = std::fs::read_to_string("/proc/self/cgroup").unwrap_or_default();
        Self::parse(&mounts, &groups)
    }

    fn parse(mountinfo: &[u8], groups: &str) -> Self {
        let mut found = Self::default();
        for mount in mountinfo.split(|byte| *byte == b'\n').filter_map(Mount::parse) {
            match mount.kind {
                b"cgroup2" if found.unified.is_none() => {
                    let path = group_of(groups, |controllers| controllers.is_empty());
                    let own = path.and_then(|path| mount.dir_of(path));
                    found.unified = own.map(|own| Unified { top: mount.point(), own });
                }
                b"cgroup" => {
                    for controller in [Controller::Memory, Controller::Cpu, Controller::Pids] {
                        let word = controller.word();
                        if !mount.options.split(|byte| *byte == b',').any(|it| it == word.as_bytes()) {
                            continue;
                        }
                        let path = group_of(groups, |names| names.split(',').any(|it| it == word));
                        let own = path.and_then(|path| mount.dir_of(path));
                        found.old.extend(own.map(|own| (controller, own)));
                    }
                }
                _ => {}
            }
        }
        found
    }
}

/// The path of our group in the hierarchy with these controllers.
fn group_of(groups: &str, wanted: impl Fn(&str) -> bool) -> Option<&str> {
    groups.lines().find_map(|line| {
        let mut parts = line.splitn(3, ':');
        let (_, controllers, path) = (parts.next()?, parts.next()?, parts.next()?);
        wanted(controllers).then_some(path)
    })
}

/// The parts of a mountinfo line needed here. In bytes, since one mount point that is not UTF-8 must not hide the
/// others, as it would with the procfs crate.
struct Mount<'a> {
    root: &'a [u8],
    point: &'a [u8],
    kind: &'a [u8],
    options: &'a [u8],
}

impl<'a> Mount<'a> {
    fn parse(line: &'a [u8]) -> Option<Self> {
        let mut fields = line.split(|byte| *byte == b' ');
        let root = fields.nth(3)?;
        let point = fields.next()?;
        let mut rest = fields.skip_while(|field| *field != b"-").skip(1);
        let (kind, _, options) = (rest.next()?, rest.next()?, rest.next()?);
        Some(Self { root, point, kind, options })
    }

    fn point(&self) -> PathBuf {
        unescaped(self.point)
    }

    /// The directory of a group; `None` if it is not visible in this mount.
    fn dir_of(&self, group: &str) -> Option<PathBuf> {
        let root = unescaped(self.root);
        let below = Path::new(group).strip_prefix(&root).ok()?;
        // A group outside the cgroup namespace has a path with `..`.
        below.components().all(|part| matches!(part, Component::Normal(_))).then(|| {
            let point = self.point();
            if below.as_os_str().is_empty() { point } else { point.join(below) }
        })
    }
}

/// Decodes octal escapes: the kernel writes blanks and similar characters as three octal digits.
fn unescaped(field: &[u8]) -> PathBuf {
    let mut bytes = Vec::with_capacity(field.len());
    let mut rest = field;
    while let Some((first, after)) = rest.split_first() {
        let octal = after
            .get(..3)
            .filter(|_| *first == b'\\')
            .and_then(|digits| u8::from_str_radix(std::str::from_utf8(digits).ok()?, 8).ok());
        match octal {
            Some(byte) => {
                bytes.push(byte);
                rest = &after[3..];
            }
            None => {
                bytes.push(*first);
                rest = after;
            }
        }
    }
    PathBuf::from(OsString::from_vec(bytes))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_host_with_cgroup_v1_and_v2() {
        let mounts = b"31 23 0:28 / /sys/fs/cgroup rw,relatime - tmpfs tmpfs rw,mode=755\n\
            32 31 0:29 / /sys/fs/cgroup/cpu,cpuacct rw,relatime shared:7 - cgroup cgroup rw,cpu,cpuacct\n\
            35 31 0:32 / /sys/fs/cgroup/mem\\040ory rw,relatime - cgroup cgroup rw,memory\n\
            41 31 0:38 / /sys/fs/cgroup/unified rw,relatime - cgroup2 cgroup2 rw\n";
        let groups = "4:memory:/jobs/7\n2:cpu,cpuacct:/\n1:name=systemd:/x\n0::/user.slice\n";
        let found = Hierarchies::parse(mounts, groups);
        let top = PathBuf::from("/sys/fs/cgroup/unified");
        assert_eq!(found.unified, Some(Unified { own: top.join("user.slice"), top }));
        let old = [
            (Controller::Cpu, PathBuf::from("/sys/fs/cgroup/cpu,cpuacct")),
            (Controller::Memory, PathBuf::from("/sys/fs/cgroup/mem ory/jobs/7")),
        ];
        assert_eq!(found.old, old);
    }

    #[test]
    fn a_container_sees_only_its_own_groups() {
        let mounts = b"9 1 0:2 /docker/ab /sys/fs/cgroup ro - cgroup2 cgroup rw,nsdelegate\n";
        let own = |groups| Hierarchies::parse(mounts, groups).unified.map(|unified| unified.own);
        assert_eq!(own("0::/docker/ab/c\n"), Some("/sys/fs/cgroup/c".into()));
        assert_eq!(own("0::/docker/ab\n"), Some("/sys/fs/cgroup".into()));
        assert_eq!(own("0::/elsewhere\n"), None);
        assert_eq!(own("0::/docker/ab/../x\n"), None);
        assert_eq!(own(""), None);
    }
}
