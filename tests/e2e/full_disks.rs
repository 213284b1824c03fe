//! A vault on a full disk: runs are refused before they start, and every verb that frees space works.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use crate::env::{Running, TestEnv, avfs, runner};
use crate::support;

/// The disks: in memory, and images whose blocks are as small as ext4 allows, and as large as a page.
const IN_MEMORY: &str = "mount -t tmpfs -o size=$SIZE none \"$DISK\"";
const IMAGES: [&str; 2] = ["1024", "4096"];

/// Runs a script on a new disk of this size, in the directory of a project. `None` if such a disk cannot be mounted.
fn on_disk(env: &TestEnv, mount: &str, size: &str, script: &str) -> Option<BTreeMap<String, (i32, Value)>> {
    let disk = env.at("disk");
    let _ = std::fs::create_dir(&disk);
    let out = support::Scratch::new();
    // `step NAME COMMAND…` keeps the answer and the exit status of a command. `fill` leaves no free block.
    let helpers = "
        step() { name=$1; shift; \"$@\" > \"$OUT/$name\" 2>&1; echo \"$name $?\"; }
        fill() { rm -f \"$DISK/fill\"; sync; dd if=/dev/zero of=\"$DISK/fill\" bs=1k 2> /dev/null; sync; }
        run() { \"$RUN\" --json --scratch memory \"$@\"; }
        mkdir \"$DISK/project\" && chmod 755 \"$DISK\" \"$DISK/project\" && cd \"$DISK/project\" || exit 8";
    let start = |script: &str| {
        let mut command = env.clean(std::path::Path::new("unshare"));
        let space = if support::is_root() { "-m" } else { "-Urm" };
        command.args([space, "sh", "-c", script]);
        command.env("AVFS", avfs()).env("RUN", runner()).env("DISK", &disk).env("IMAGE", env.at("image"));
        command.env("SIZE", size).env("OUT", out.path());
        Running::start(&mut command).answer()
    };
    if start(&format!("{mount} 2> /dev/null || exit 9")).code != Some(0) {
        return None;
    }
    let answer = start(&format!("{mount} || exit 9\n{helpers}\n{script}")).expect(0);
    let text = answer.text();
    let steps = text.lines().map(|line| line.rsplit_once(' ').unwrap());
    let answer_of = |name: &str| {
        let text = std::fs::read_to_string(out.join(name)).unwrap();
        serde_json::from_str(&text).unwrap_or(Value::String(text))
    };
    Some(steps.map(|(name, code)| (name.to_owned(), (code.parse().unwrap(), answer_of(name)))).collect())
}

fn image(block: &str) -> String {
    format!(
        "truncate -s $SIZE \"$IMAGE\" && mkfs.ext4 -q -F -b {block} -m 0 \"$IMAGE\" && \
         mount -o loop \"$IMAGE\" \"$DISK\""
    )
}

/// Runs the script on each kind of disk that this user can mount.
fn on_each_disk(test: &str, size: &str, script: &str, check: impl Fn(&BTreeMap<String, (i32, Value)>)) {
    check(&on_disk(&TestEnv::new(), IN_MEMORY, size, script).unwrap());
    if !support::is_root() {
        return support::skip(test, "only root mounts disks");
    }
    for block in IMAGES {
        match on_disk(&TestEnv::new(), &image(block), size, script) {
            Some(steps) => check(&steps),
            None => return support::skip(test, "no image of a disk can be mounted here"),
        }
    }
}

#[track_caller]
fn assert_code(steps: &BTreeMap<String, (i32, Value)>, name: &str, code: i32) {
    assert_eq!(steps[name].0, code, "{name}: {steps:#?}");
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
        rm "$DISK/fill"
        step again run --fork f3 --shell 'echo x > x'
        step fsck "$AVFS" --json fsck
        step audit "$AVFS" --json audit verify
        step reserve stat -c '%s %b' .avfs/vault.db-reserve"#;
    on_each_disk("e2e::a_disk_that_the_vault_filled_is_freed", "24M", script, |steps| {
        for number in 1..=6 {
            assert_code(steps, &format!("run-{number}"), 0);
        }
        // Changes that do not fit are kept for a recovery.
        assert_code(steps, "too-large", 123);
        assert_eq!(steps["too-large"].1["error_cause"], json!("vault.disk_full"), "{steps:#?}");
        assert!([123, 125].contains(&steps["filled"].0), "{steps:#?}");
        for verb in ["discard", "fork", "prune", "gc", "compact"] {
            let refused = format!("refused-{verb}");
            assert_code(steps, &refused, 125);
            let error = &steps[&refused].1["error"];
            assert_eq!(error["code"], json!("vault.disk_full"), "{steps:#?}");
            assert!(error["hint"].as_str().unwrap().contains("avfs gc"), "{error}");
            assert_code(steps, verb, 0);
        }
        let gc = &steps["gc"].1["result"];
        let bytes = |name: &str| gc[name].as_u64().unwrap();
        assert!(bytes("file_bytes_after") + 800_000 < bytes("file_bytes_before"), "{gc}");
        assert_code(steps, "control", 1);
        assert_eq!(steps["control"].1["error"]["code"], json!("vault.disk_full"), "{steps:#?}");
        for step in ["again", "fsck", "audit"] {
            assert_code(steps, step, 0);
        }
        let reserve = steps["reserve"].1.as_str().unwrap().trim();
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
        let log: u64 = steps["log"].1.as_u64().unwrap();
        assert!(log > 100_000, "{steps:#?}");
        assert_code(steps, "refused", 125);
        for step in ["fork", "gc", "fsck"] {
            assert_code(steps, step, 0);
        }
    });
}
