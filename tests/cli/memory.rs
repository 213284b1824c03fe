//! Memory stays bounded, however large a file is.

use std::io::Write;

use nix::sys::resource::{UsageWho, getrusage};

use crate::env::TestEnv;
use crate::support::noise;

/// Far more than may be held at once.
const FILE_MIB: u64 = 320;
const RESIDENT_KIB_MAX: i64 = 200 << 10;

#[test]
fn a_large_file_is_imported_in_little_memory() {
    let env = TestEnv::with_project();
    let mut file = std::fs::File::create(env.project().join("large.bin")).unwrap();
    for at in 0..FILE_MIB {
        file.write_all(&noise(at, 1 << 20)).unwrap();
    }
    drop(file);
    env.ok(&["import"]);
    // The largest of all commands this binary has run so far, this one among them. An export would show more:
    // it maps the vault file, and those pages count although the kernel can take them back at any time.
    let peak = getrusage(UsageWho::RUSAGE_CHILDREN).unwrap().max_rss();
    assert!(peak < RESIDENT_KIB_MAX, "{peak} KiB were resident");
}
