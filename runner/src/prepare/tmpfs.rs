//! The size limits of file systems in memory.

use std::collections::BTreeSet;
use std::path::Path;

use avfs_engine::{ViewStep, WorkspaceMount};

/// The bounds of each file system in memory that has no explicit size.
#[derive(Clone, Copy)]
pub struct TmpfsBounds<'p> {
    pub bytes: Option<u64>,
    pub files: Option<u64>,
    pub view: &'p [ViewStep],
}

impl TmpfsBounds<'_> {
    /// Mount options, to append to others.
    pub fn options(self, path: &Path) -> String {
        let option = |name: &str, value: Option<u64>| value.map(|value| format!(",{name}={value}"));
        // The kernel treats zero as unlimited.
        let bytes = self.bytes.map(|it| it.max(1));
        // The root directory and the paths created by the view need inodes too, and do not count for the command.
        let files = self.files.map(|it| it.saturating_add(1).saturating_add(made_in(path, self.view)));
        [option("size", bytes), option("nr_inodes", files)].into_iter().flatten().collect()
    }
}

/// The number of directories, files and symlinks that the view creates in the file system mounted at `mounted`.
fn made_in(mounted: &Path, view: &[ViewStep]) -> u64 {
    let beneath = |path: &Path| path != mounted && path.starts_with(mounted);
    let made: Vec<Made<'_>> = view.iter().filter_map(made).filter(|made| beneath(made.path)).collect();
    // Paths below another mount are created in that file system.
    let elsewhere = |path: &Path| {
        made.iter().any(|it| it.covered == Covered::Yes && it.path != path && path.starts_with(it.path))
    };
    let paths: BTreeSet<&Path> = made.iter().map(|it| it.path).filter(|path| !elsewhere(path)).collect();
    u64::try_from(paths.len()).unwrap_or(u64::MAX)
}

/// A path that a step of the view creates.
struct Made<'p> {
    path: &'p Path,
    covered: Covered,
}

/// Whether another file system is mounted on it.
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
        ViewStep::Hide { .. } | ViewStep::Pin { .. } | ViewStep::Seal { .. } => return None,
    };
    Some(Made { path, covered })
}

#[cfg(test)]
mod tests {
    use avfs_engine::TmpfsSize;

    use super::*;

    #[test]
    fn paths_created_by_the_view_count_once_in_their_file_system() {
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
            ViewStep::Seal { path: "/".into() },
        ];
        let counts =
            ["/home/u", "/home/u/a/work/cache", "/tmp", "/dev/shm"].map(|at| made_in(at.as_ref(), &view));
        assert_eq!(counts, [3, 0, 0, 0]);
        let bounds = TmpfsBounds { bytes: Some(0), files: Some(100), view: &view };
        assert_eq!(bounds.options("/tmp".as_ref()), ",size=1,nr_inodes=101");
        assert_eq!(bounds.options("/home/u".as_ref()), ",size=1,nr_inodes=104");
    }
}
