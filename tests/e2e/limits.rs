//! Hosts that refuse a feature, and full disks: the failure is named, with a remedy.
//!
//! Each host is simulated in a separate user and mount namespace, in which the test is root.

use std::path::Path;
use std::process::Command;

use serde_json::{Value, json};

use crate::env::{Answer, TestEnv, avfs, runner};

/// A script on a simulated host, with the variables `$RUN`, `$AVFS`, `$CACHE` and `$PROJECT`.
pub fn on_a_host(env: &TestEnv, script: &str) -> Command {
    let mut command = env.clean(Path::new("unshare"));
    command.args(["-Urm", "sh", "-uc", script]);
    command.env("RUN", runner()).env("AVFS", avfs());
    command.env("CACHE", env.at("cache")).env("PROJECT", env.project());
    command
}

#[track_caller]
fn answer(env: &TestEnv, script: &str) -> Answer {
    env.answer(&mut on_a_host(env, script))
}

#[track_caller]
pub fn envelope(env: &TestEnv, script: &str) -> (Value, Option<i32>) {
    let answer = answer(env, script);
    (answer.envelope(), answer.code)
}

pub fn notes(envelope: &Value) -> Vec<&str> {
    let notes = envelope["result"]["notes"].as_array().unwrap_or_else(|| panic!("{envelope}"));
    notes.iter().map(|note| note["code"].as_str().unwrap()).collect()
}

#[test]
fn a_run_works_on_a_host_in_a_namespace() {
    let env = TestEnv::with_project();
    // Control for all other tests here.
    let (envelope, code) = envelope(&env, "exec \"$RUN\" --json --shell 'cat README.md; echo x > x'");
    assert_eq!((code, &envelope["result"]["stdout"]), (Some(0), &json!("hello\n")), "{envelope}");
}

#[test]
fn without_user_namespaces_the_error_names_the_setting_to_change() {
    let env = TestEnv::with_project();
    let (envelope, code) =
        envelope(&env, "echo 0 > /proc/sys/user/max_user_namespaces; exec \"$RUN\" --json -- true");
    assert_eq!((code, &envelope["error"]["code"]), (Some(121), &json!("sandbox.namespaces")), "{envelope}");
    let hint = envelope["error"]["hint"].as_str().unwrap();
    assert!(hint.contains("sysctl -w user.max_user_namespaces="), "{hint}");
    assert_eq!(env.scratches(), [""; 0]);
}

#[test]
fn a_masked_proc_is_reported_with_its_remedy() {
    let env = TestEnv::with_project();
    // One unmasked proc anywhere, such as that of a chroot on this machine, suffices to mount another.
    let mask_each = "awk '/ - proc /{print $5}' /proc/self/mountinfo | while read -r proc; do \
                     mount --bind /dev/null \"$proc/cpuinfo\"; done";
    let (envelope, code) = envelope(&env, &format!("{mask_each}; exec \"$RUN\" --json -- true"));
    assert_eq!((code, &envelope["error"]["code"]), (Some(121), &json!("sandbox.proc")), "{envelope}");
    let error = &envelope["error"];
    assert!(error["message"].as_str().unwrap().contains("/proc"), "{error}");
    assert!(error["hint"].as_str().unwrap().contains("systempaths=unconfined"), "{error}");
    assert_eq!(env.scratches(), [""; 0]);
}

const ON_OVERLAY: &str = "set -e; mkdir \"$CACHE\"/l \"$CACHE\"/u \"$CACHE\"/w; mkdir \"$PROJECT\"/../over; \
    mount -t overlay o -o userxattr,lowerdir=\"$CACHE\"/l,upperdir=\"$CACHE\"/u,workdir=\"$CACHE\"/w \"$PROJECT\"/../over; \
    export XDG_CACHE_HOME=\"$PROJECT\"/../over; ";

#[test]
fn a_cache_on_an_overlay_needs_a_memory_scratch_or_a_copy() {
    let env = TestEnv::with_project();
    let line = "--json --shell 'cat README.md; echo x > x'";
    let (disk, code) =
        envelope(&env, &format!("{ON_OVERLAY} exec \"$RUN\" --backend overlay --scratch disk {line}"));
    let error = &disk["error"];
    assert_eq!((code, &error["code"]), (Some(121), &json!("mount.overlay_unsupported")), "{disk}");
    assert!(error["hint"].as_str().unwrap().contains("--scratch memory"), "{error}");
    let ways = [
        ("", "overlay"),
        ("--base cached", "overlay"),
        ("--backend copy", "copy"),
        // No overlay was requested: if overlayfs is not available a copy is used, and a note reports it.
        ("--scratch disk", "copy"),
    ];
    for (options, backend) in ways {
        let env = TestEnv::with_project();
        let (works, code) = envelope(&env, &format!("{ON_OVERLAY} exec \"$RUN\" {options} {line}"));
        assert_eq!((code, &works["enforcement"]["backend"]), (Some(0), &json!(backend)), "{works}");
        assert_eq!(works["result"]["stdout"], json!("hello\n"));
        assert_eq!(notes(&works).contains(&"backend.copy"), options == "--scratch disk", "{works}");
        env.assert_sound();
    }
}

#[test]
fn a_workspace_on_an_overlay_can_be_a_lower_layer() {
    let env = TestEnv::with_project();
    let script = "set -e; mkdir \"$CACHE\"/u \"$CACHE\"/w \"$PROJECT\"/../over; \
        mount -t overlay o -o userxattr,lowerdir=\"$PROJECT\",upperdir=\"$CACHE\"/u,workdir=\"$CACHE\"/w \"$PROJECT\"/../over; \
        cd \"$PROJECT\"/../over; \"$AVFS\" vault trust > /dev/null; exec \"$RUN\" --json --shell 'rm -r src; cat README.md'";
    let (envelope, code) = envelope(&env, script);
    assert_eq!((code, &envelope["result"]["stdout"]), (Some(0), &json!("hello\n")), "{envelope}");
    assert_eq!(envelope["result"]["change_counts"]["deleted"], json!(3), "{envelope}");
}

#[test]
fn a_full_scratch_in_memory_is_reported() {
    let env = TestEnv::with_project();
    // A cgroup with little memory makes the scratch as small as possible.
    let script = "mount -t tmpfs t /sys/fs/cgroup; echo 1000 > /sys/fs/cgroup/memory.max; \
        exec \"$RUN\" --json --scratch memory --shell 'dd if=/dev/zero of=big bs=1M 2>&1 | grep -o \"No space\"; rm README.md'";
    let (envelope, code) = envelope(&env, script);
    assert_eq!(code, Some(0), "{envelope}");
    assert_eq!(envelope["result"]["stdout"], json!("No space\n"));
    assert_eq!(notes(&envelope), ["scratch.full"], "{envelope}");
    assert_eq!(envelope["enforcement"]["scratch"], json!({ "kind": "memory", "size_bytes": 512 << 20 }));
}

#[test]
fn a_disk_that_fills_up_during_the_run_is_reported() {
    let env = TestEnv::with_project();
    let script = "mount -t tmpfs -o size=16m t \"$CACHE\"; \
        exec \"$RUN\" --json --scratch disk --shell 'head -c 30M /dev/urandom > big; echo $?'";
    let (envelope, code) = envelope(&env, script);
    assert_eq!((code, &envelope["result"]["stdout"]), (Some(0), &json!("1\n")), "{envelope}");
    assert_eq!(notes(&envelope), ["scratch.full"], "{envelope}");
    env.assert_sound();
}

#[test]
fn running_out_of_inodes_is_reported() {
    let env = TestEnv::with_project();
    let script = "mount -t tmpfs -o nr_inodes=200 t \"$CACHE\"; exec \"$RUN\" --json --scratch disk \
        --shell 'n=0; while echo x > f-$n; do n=$((n+1)); done 2>/dev/null; test $n -gt 50'";
    let (envelope, code) = envelope(&env, script);
    assert_eq!((code, &envelope["success"]), (Some(0), &json!(true)), "{envelope}");
    assert_eq!(notes(&envelope), ["scratch.full"], "{envelope}");
    env.assert_sound();
}

#[test]
fn a_disk_that_is_full_before_the_run_is_an_error() {
    let env = TestEnv::with_project();
    let script = "mount -t tmpfs -o size=64k t \"$CACHE\"; head -c 1M /dev/zero > \"$CACHE\"/fill; \
        exec \"$RUN\" --json --scratch disk --shell 'echo x > x'";
    let (envelope, code) = envelope(&env, script);
    assert_eq!((code, &envelope["error"]["code"]), (Some(125), &json!("scratch.disk_full")), "{envelope}");
    assert!(envelope["error"]["hint"].as_str().unwrap().contains("XDG_CACHE_HOME"), "{envelope}");
}

#[test]
fn if_the_vault_has_no_space_the_changes_are_kept_for_a_recovery() {
    for scratch in ["memory", "disk"] {
        let env = TestEnv::new();
        env.put("file", b"x\n");
        std::fs::create_dir(env.project().join(".avfs")).unwrap();
        let script = format!(
            "set -e; mount -t tmpfs -o size=40m,mode=700 t \"$PROJECT\"/.avfs; \"$AVFS\" init >/dev/null; head -c 36M /dev/zero > \"$PROJECT\"/.avfs/fill; code=0; \
             \"$RUN\" --json --scratch {scratch} --shell 'head -c 6M /dev/urandom > big; cksum < big > sum' || code=$?; \
             echo $code >&2; rm \"$PROJECT\"/.avfs/fill; \"$AVFS\" recover >&2; \"$AVFS\" fsck >&2; \
             \"$AVFS\" cat \"$(\"$AVFS\" fork list | grep -o 'run-[0-9a-f]*')\" big | cksum >&2; \
             \"$AVFS\" cat \"$(\"$AVFS\" fork list | grep -o 'run-[0-9a-f]*')\" sum >&2"
        );
        let answer = answer(&env, &script).expect(0);
        let envelope = answer.envelope();
        assert_eq!(envelope["error"]["code"], json!("capture.failed"), "{answer:?}");
        let lines: Vec<&str> = answer.stderr.lines().collect();
        assert!(lines.contains(&"123"), "{answer:?}");
        let sums: Vec<&&str> = lines.iter().filter(|line| line.ends_with(" 6291456")).collect();
        assert!(sums.len() == 2 && sums[0] == sums[1], "{answer:?}");
        assert_eq!(env.scratches(), [""; 0]);
    }
}
