//! A vault on a full disk: runs are refused before they start, and every verb that frees space works.

use serde_json::json;

use crate::env::TestEnv;
use crate::steps::{Steps, ext4};
use crate::support;

/// `fill` leaves no free block.
const PREPARE: &str = "
    fill() { rm -f \"$DISK/fill\"; sync; dd if=/dev/zero of=\"$DISK/fill\" bs=1k 2> /dev/null; sync; }
    mkdir \"$DISK/project\" && chmod 755 \"$DISK\" \"$DISK/project\" && cd \"$DISK/project\" || exit 8";

/// Runs the script on each kind of disk that this user can mount: in memory, and images whose blocks are as small as
/// ext4 allows, and as large as a page.
fn on_each_disk(test: &str, size: &str, script: &str, check: impl Fn(&Steps)) {
    let script = format!("{PREPARE}\n{script}");
    let in_memory = "mount -t tmpfs -o size=$SIZE none \"$DISK\"";
    check(&Steps::on_disk(&TestEnv::new(), in_memory, size, &script).unwrap());
    if !support::is_root() {
        return support::skip(test, "only root mounts disks");
    }
    for block in ["1024", "4096"] {
        match Steps::on_disk(&TestEnv::new(), &ext4(&format!("-b {block} -m 0")), size, &script) {
            Some(steps) => check(&steps),
            None => return support::skip(test, "no image of a disk can be mounted here"),
        }
    }
}

#[test]
fn a_disk_that_the_vault_filled_is_freed() {
    let script = r#"
        step init "$AVFS" init --json
        for n in 1 2 3 4 5 6; do
            step "run-$n" run --fork "f$n" --shell "head -c 900000 /dev/urandom > large; seq 200 | split -l 1"
        done
        step kept run --shell 'echo x > x'
        step too-large run --fork f6 --shell 'head -c 30000000 /dev/urandom > huge'
        n=0; code=0
        while test $code = 0 && test $n -lt 30; do
            n=$((n + 1)); run --fork f6 --shell "head -c 900000 /dev/urandom > more-$n" > "$OUT/filled"; code=$?
        done
        echo "filled $code"
        kept=$(jq -r .run_id "$OUT/kept")
        for words in "discard run:$kept" 'fork delete f1 --force' 'prune --keep-last 1' gc compact; do
            fill
            verb=$(echo "$words" | cut -d ' ' -f 1)
            step "refused-$verb" run -- true
            step "$verb" "$AVFS" --json $words
        done
        # Control: the disk is full, and without a reserve nothing can be freed.
        rm .avfs/vault.db-reserve
        fill
        step control "$AVFS" --json fork delete f2 --force
        step no-reserve run -- true
        rm "$DISK/fill"
        step again run --fork f3 --shell 'echo x > x'
        step fsck "$AVFS" --json fsck
        step audit "$AVFS" --json audit verify
        step reserve stat -c '%s %b' .avfs/vault.db-reserve"#;
    on_each_disk("e2e::a_disk_that_the_vault_filled_is_freed", "24M", script, |steps| {
        steps.assert_code(&["run-1", "run-2", "run-3", "run-4", "run-5", "run-6"], 0);
        // Changes that do not fit are kept for a recovery.
        steps.assert_code(&["too-large"], 123);
        assert_eq!(steps.answer("too-large")["error_cause"], json!("vault.disk_full"));
        assert!([123, 125].contains(&steps.code("filled")), "{}", steps.answer("filled"));
        for verb in ["discard", "fork", "prune", "gc", "compact"] {
            let error = steps.assert_error(&format!("refused-{verb}"), 125, "vault.disk_full");
            assert!(error["hint"].as_str().unwrap().contains("avfs gc"), "{error}");
            steps.assert_code(&[verb], 0);
        }
        let gc = &steps.answer("gc")["result"];
        let bytes = |name: &str| gc[name].as_u64().unwrap();
        assert!(bytes("file_bytes_after") + 800_000 < bytes("file_bytes_before"), "{gc}");
        let error = steps.assert_error("control", 1, "vault.disk_full");
        assert_eq!(error["hint"], json!("free some space, then try again; nothing was changed"));
        let error = steps.assert_error("no-reserve", 125, "vault.disk_full");
        assert_eq!(error["hint"], json!("free some space, then try again; nothing was changed"));
        steps.assert_code(&["again", "fsck", "audit"], 0);
        let reserve = steps.answer("reserve").as_str().unwrap().trim();
        let (size, blocks) = reserve.split_once(' ').unwrap();
        assert!(size == "1048576" && blocks.parse::<u64>().unwrap() >= 2048, "{reserve}");
    });
}

/// The log has pages for which the file has to grow.
#[test]
fn a_disk_that_others_filled_is_freed() {
    let script = r#"
        step init "$AVFS" init --json
        for n in 1 2 3 4 5; do
            step "run-$n" run --fork "f$n" --shell "head -c 200000 /dev/urandom > large"
        done
        step log stat -c %s .avfs/vault.db-wal
        fill
        step refused run -- true
        step fork "$AVFS" --json fork delete f1 --force
        step gc "$AVFS" --json gc
        step fsck "$AVFS" --json fsck"#;
    on_each_disk("e2e::a_disk_that_others_filled_is_freed", "100M", script, |steps| {
        assert!(steps.answer("log").as_u64().unwrap() > 100_000, "{}", steps.answer("log"));
        steps.assert_error("refused", 125, "vault.disk_full");
        steps.assert_code(&["fork", "gc", "fsck"], 0);
    });
}
