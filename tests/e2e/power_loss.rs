//! A power loss: an acknowledged version exists afterwards, regardless of which other recent writes were lost.
//!
//! A preloaded library (`tests/support/durable.c`) copies each file at each sync. After a power loss the disk
//! contains at least those copies, and any part of the later writes.

use std::ffi::OsStr;
use std::path::PathBuf;
use std::process::Command;

use serde_json::Value;

use crate::env::{Answer, Running, TestEnv, avfs};

const FILES: [&str; 2] = ["vault.db", "vault.db-wal"];
/// The unit in which data reaches the disk.
const BLOCK_BYTES: usize = 4096;

struct Disk {
    env: TestEnv,
    library: PathBuf,
    durable: PathBuf,
}

/// The content of a file after a power loss.
#[derive(Clone, Copy, Debug)]
enum Left {
    /// Only the synced content.
    Synced,
    /// Everything that was written.
    Written,
    /// Every other block of the data written since the last sync, starting with this one.
    Torn(usize),
}

impl Disk {
    fn new() -> Self {
        let env = TestEnv::with_project();
        let (library, durable) = (env.at("durable.so"), env.at("durable"));
        std::fs::create_dir(&durable).unwrap();
        let source = env.at("durable.c");
        std::fs::write(&source, include_str!("../support/durable.c")).unwrap();
        let mut cc = Command::new("cc");
        cc.args(["-shared", "-fPIC", "-O1", "-o"]).arg(&library).arg(source).arg("-ldl");
        assert!(cc.status().unwrap().success());
        // The state after `avfs init`, which is not under test.
        for name in FILES {
            let _ = std::fs::copy(env.vault_file().with_file_name(name), durable.join(name));
        }
        Self { env, library, durable }
    }

    fn watched(&self, mut command: Command) -> Answer {
        command.env("LD_PRELOAD", &self.library).env("AVFS_TEST_DURABLE", &self.durable);
        Running::start(&mut command).answer()
    }

    /// The envelope of a run, and the number of syncs it waited for.
    fn run(&self, words: &[&str]) -> (Value, usize) {
        let before = self.syncs().len();
        let mut command = self.env.command(&["--json"]);
        command.args(words);
        let envelope = self.watched(command).expect(0).envelope();
        (envelope, self.syncs().len() - before)
    }

    fn avfs(&self, words: &[&str]) -> Answer {
        let mut command = self.env.clean(&avfs());
        command.args(words);
        self.watched(command)
    }

    fn syncs(&self) -> Vec<String> {
        let text = std::fs::read_to_string(self.durable.join("syncs")).unwrap_or_default();
        text.lines().map(str::to_owned).collect()
    }

    fn after_power_loss(&self, name: &str, left: Left) -> Vec<u8> {
        let written = std::fs::read(self.env.vault_file().with_file_name(name)).unwrap_or_default();
        let synced = std::fs::read(self.durable.join(name)).unwrap_or_default();
        match left {
            Left::Synced => synced,
            Left::Written => written,
            Left::Torn(from) => {
                let mut torn = synced;
                torn.resize(written.len().max(torn.len()), 0);
                for (number, block) in written.chunks(BLOCK_BYTES).enumerate() {
                    if number % 2 == from {
                        torn[number * BLOCK_BYTES..][..block.len()].copy_from_slice(block);
                    }
                }
                torn
            }
        }
    }

    /// Opens each possible state after a power loss and checks that these versions exist.
    #[track_caller]
    fn assert_kept(&self, versions: &[String]) {
        let ways = [Left::Synced, Left::Written, Left::Torn(0), Left::Torn(1)];
        for (log, has_head) in ways.iter().flat_map(|log| [(*log, true), (*log, false)]) {
            let place = self.env.at("after");
            let _ = std::fs::remove_dir_all(&place);
            std::fs::create_dir(&place).unwrap();
            let head = self.env.vault_file().with_file_name("vault.db-head");
            if has_head && head.exists() {
                std::fs::copy(head, place.join("vault.db-head")).unwrap();
            }
            // Only checkpoints write the file itself, and they sync it before the log is reset.
            std::fs::write(place.join("vault.db"), self.after_power_loss("vault.db", Left::Synced)).unwrap();
            std::fs::write(place.join("vault.db-wal"), self.after_power_loss("vault.db-wal", log)).unwrap();
            let vault = place.join("vault.db");
            let with = |words: &[&str]| {
                let mut all = vec![OsStr::new("--json"), OsStr::new("--vault"), vault.as_os_str()];
                all.extend(words.iter().map(OsStr::new));
                self.env.avfs(&all).expect(0).envelope()["result"].take()
            };
            assert_eq!(with(&["fsck"])["findings"], serde_json::json!([]), "{log:?}");
            let runs = with(&["runs", "list", "--limit", "1000"]);
            let kept: Vec<&str> = runs["runs"]
                .as_array()
                .unwrap()
                .iter()
                .filter_map(|run| run["version_after"].as_str())
                .collect();
            for version in versions {
                assert!(kept.contains(&version.as_str()), "{log:?}: {version} is lost");
            }
        }
    }
}

fn version_of(envelope: &Value) -> Option<String> {
    envelope["result"]["version_after"].as_str().map(str::to_owned)
}

#[test]
fn a_run_syncs_once_if_it_creates_a_version_and_never_otherwise() {
    let disk = Disk::new();
    // The first run imports the directory.
    disk.run(&["--", "true"]);
    for (words, syncs) in [
        (&["--", "true"][..], 0),
        (&["--discard", "--", "touch", "x"], 0),
        (&["--", "touch", "x"], 1),
        (&["--", "true"], 0),
        (&["--fork", "w", "--", "true"], 0),
        (&["--fork", "w", "--", "touch", "y"], 1),
        (&["--fork", "new", "--", "touch", "y"], 1),
    ] {
        let (envelope, found) = disk.run(words);
        assert_eq!(found, syncs, "{words:?}: {:?}", disk.syncs());
        assert_eq!(usize::from(version_of(&envelope).is_some()), syncs, "{words:?}");
    }
    // The imported state of the directory is the base of the run: it is synced with the version of the run.
    disk.env.put("new", b"1");
    assert_eq!(disk.run(&["--", "true"]).1, 0);
    disk.env.put("newer", b"1");
    assert_eq!(disk.run(&["--", "touch", "x"]).1, 1);
    // Read-only verbs do not sync, and neither do runs after them.
    let before = disk.syncs().len();
    disk.avfs(&["log"]).expect(0);
    disk.avfs(&["runs", "list"]).expect(0);
    assert_eq!(disk.syncs().len(), before);
    assert_eq!(disk.run(&["--", "true"]).1, 0);
    disk.env.policy("[[rule]]\naction = 'deny'\n");
    let before = disk.syncs().len();
    let mut denied = disk.env.command(&["--", "touch", "x"]);
    denied.env("LD_PRELOAD", &disk.library).env("AVFS_TEST_DURABLE", &disk.durable);
    assert_ne!(Running::start(&mut denied).answer().code, Some(0));
    assert_eq!(disk.syncs().len(), before);
}

#[test]
fn acknowledged_versions_survive_a_power_loss() {
    let disk = Disk::new();
    let mut versions = Vec::new();
    let (mut moved, mut log_bytes) = (0, 0);
    for round in 0..20 {
        let line = format!("echo {round} > f{round}; head -c 60000 /dev/urandom > data");
        let words = match round % 4 {
            0 => vec!["--shell", line.as_str()],
            1 => vec!["--", "true"],
            2 => vec!["--fork", "w", "--shell", line.as_str()],
            _ => vec!["--discard", "--shell", line.as_str()],
        };
        let (envelope, _) = disk.run(&words);
        versions.extend(version_of(&envelope));
        let now = std::fs::metadata(disk.env.vault_file().with_file_name("vault.db-wal")).unwrap().len();
        moved += usize::from(now < log_bytes);
        log_bytes = now;
        if round % 6 == 0 {
            disk.assert_kept(&versions);
        }
    }
    disk.assert_kept(&versions);
    assert_eq!(versions.len(), 10);
    assert!(moved > 0, "the log was never moved into the file");
}

#[test]
fn batch_items_are_synced_before_they_are_acknowledged() {
    let disk = Disk::new();
    disk.run(&["--", "true"]);
    let list: String = (0..24).map(|item| format!("echo {item} > f{item}\n")).collect();
    std::fs::write(disk.env.at("list"), list).unwrap();
    let list = disk.env.at("list");
    for mode in ["chain", "fan-out"] {
        let results = disk.env.at(&format!("results-{mode}"));
        let (results, list) = (results.to_str().unwrap(), list.to_str().unwrap());
        let before = disk.syncs().len();
        disk.avfs(&["batch", "--mode", mode, "--jobs", "8", "--results", results, list]).expect(0);
        assert!(disk.syncs().len() > before, "{mode}: nothing was synced");
        let text = std::fs::read_to_string(results).unwrap();
        let lines = text.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
        let versions: Vec<String> =
            lines.filter_map(|line| line["version"].as_str().map(str::to_owned)).collect();
        assert_eq!(versions.len(), 24, "{mode}: {text}");
        disk.assert_kept(&versions);
    }
}
