//! How much the file systems in memory may hold, where there are limits.

use std::collections::BTreeSet;
use std::path::Path;

use avfs_engine::{ViewStep, WorkspaceMount};

/// What each file system in memory may hold that nobody has given a size.
#[derive(Clone, Copy)]
pub struct TmpfsBounds<'p> {
    pub bytes: Option<u64>,
    pub files: Option<u64>,
    pub view: &'p [ViewStep],
}

impl TmpfsBounds<'_> {
    /// As options, after others.
    pub fn options(self, path: &Path) -> String {
        let option = |name: &str, value: Option<u64>| value.map(|value| format!(",{name}={value}"));
        // Nothing, to the kernel, is no bound.
        let bytes = self.bytes.map(|it| it.max(1));
        // Its own root is one too, and so is what the view makes there: neither is the command's.
        let files = self.files.map(|it| it.saturating_add(1).saturating_add(made_in(path, self.view)));
        [option("size", bytes), option("nr_inodes", files)].into_iter().flatten().collect()
    }
}

/// How many directories, files and links the view makes in the file system that is mounted there.
fn made_in(mounted: &Path, view: &[ViewStep]) -> u64 {
    let beneath = |path: &Path| path != mounted && path.starts_with(mounted);
    let made: Vec<Made<'_>> = view.iter().filter_map(made).filter(|made| beneath(made.path)).collect();
    // What is made beneath another mount is made in that.
    let elsewhere = |path: &Path| {
        made.iter().any(|it| it.covered == Covered::Yes && it.path != path && path.starts_with(it.path))
    };
    let paths: BTreeSet<&Path> = made.iter().map(|it| it.path).filter(|path| !elsewhere(path)).collect();
    u64::try_from(paths.len()).unwrap_or(u64::MAX)
}

/// A path that a step of the view makes.
struct Made<'p> {
    path: &'p Path,
    covered: Covered,
}

/// Whether something is mounted on it.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Covered {
    Yes,
    No,
}

fn made(step: &ViewStep) -> Option<Made<'_>> {
    let (path, covered) = match step {
        ViewStep::Dir { path, .. }
        | ViewStep::File { path, .. }
        | ViewStep::Symlink { path, .. }
        | ViewStep::MountPoint { path } => (path, Covered::No),
        ViewStep::Bind { path, .. }
        | ViewStep::Overlaid { path, .. }
        | ViewStep::Tmpfs { path, .. }
        | ViewStep::Proc { path }
        | ViewStep::Devices { path }
        | ViewStep::Secrets { path }
        | ViewStep::Workspace(
            WorkspaceMount::Overlay { path, .. }
            | WorkspaceMount::ReadOnly { path, .. }
            | WorkspaceMount::Copy { path, .. },
        ) => (path, Covered::Yes),
        ViewStep::Hide { .. } | ViewStep::SealRoot => return None,
    };
    Some(Made { path, covered })
}

#[cfg(test)]
mod tests {
    use avfs_engine::TmpfsSize;

    use super::*;

    #[test]
    fn what_the_view_makes_in_a_file_system_is_counted_once_and_there_only() {
        let dir = |path: &str| ViewStep::Dir { path: path.into(), mode: 0o755 };
        let tmpfs = |path: &str| ViewStep::Tmpfs { path: path.into(), mode: 0o755, size: TmpfsSize::Default };
        let view = [
            tmpfs("/home/u"),
            dir("/home/u/a"),
            ViewStep::Workspace(WorkspaceMount::ReadOnly { path: "/home/u/a/work".into(), lowers: vec![] }),
            ViewStep::MountPoint { path: "/home/u/a/work/cache".into() },
            tmpfs("/home/u/a/work/cache"),
            ViewStep::Symlink { path: "/home/u/link".into(), target: "a".into() },
            ViewStep::Hide { path: "/home/u/a/work/key".into() },
            tmpfs("/tmp"),
            dir("/tmpx"),
            ViewStep::SealRoot,
        ];
        let counts =
            ["/home/u", "/home/u/a/work/cache", "/tmp", "/dev/shm"].map(|at| made_in(at.as_ref(), &view));
        assert_eq!(counts, [3, 0, 0, 0]);
        let bounds = TmpfsBounds { bytes: Some(0), files: Some(100), view: &view };
        assert_eq!(bounds.options("/tmp".as_ref()), ",size=1,nr_inodes=101");
        assert_eq!(bounds.options("/home/u".as_ref()), ",size=1,nr_inodes=104");
    }
}
