//! Pause points: named places where a test can hold the program, so that no test depends on timing.
//!
//! They exist in debug builds only; in a release build [`point`] is empty. `AVFS_TEST_PAUSE` names a directory that the
//! program shares with a test. Each point that is reached is appended to the file `points` there. While a file
//! `hold-POINT` exists, the program waits at that point, and creates a file `held-POINT`; `hold-POINT#N` is the N-th
//! time that this point is reached, and `hold-#N` the N-th point of all.

use std::fs::File;
use std::io::{Seek, Write};
use std::path::{Path, PathBuf};
use std::sync::OnceLock;
use std::time::Duration;

/// Records have a fixed length, so that the offset of a record gives its number.
const RECORD_BYTES: usize = 32;

/// Marks a pause point, and waits here while a test holds it.
pub fn point(name: impl std::fmt::Display) {
    // In a release build the rest is not compiled.
    if !cfg!(debug_assertions) {
        return;
    }
    static DIR: OnceLock<Option<PathBuf>> = OnceLock::new();
    if let Some(dir) = DIR.get_or_init(|| std::env::var_os("AVFS_TEST_PAUSE").map(PathBuf::from)) {
        // A test that has ended removes the directory; then there is nothing to wait for.
        let _ = pass(dir, &name.to_string());
    }
}

fn pass(dir: &Path, name: &str) -> std::io::Result<()> {
    let path = dir.join("points");
    let mut points = File::options().append(true).create(true).open(&path)?;
    points.write_all(format!("{name:<width$}\n", width = RECORD_BYTES - 1).as_bytes())?;
    let end = usize::try_from(points.stream_position()?).unwrap_or(usize::MAX);
    let before = std::fs::read(&path)?;
    let records = before[..end.min(before.len())].chunks_exact(RECORD_BYTES);
    let count = records.len();
    let same = records.filter(|record| record.trim_ascii() == name.as_bytes()).count();
    for label in [name.to_owned(), format!("{name}#{same}"), format!("#{count}")] {
        let hold = dir.join(format!("hold-{label}"));
        if hold.exists() {
            File::create(dir.join(format!("held-{label}")))?;
            while hold.exists() {
                std::thread::sleep(Duration::from_millis(1));
            }
        }
    }
    Ok(())
}
