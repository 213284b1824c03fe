//! A trusted vault stays trusted when its disk is mounted again with another device number, and when its owner moves
//! it; another file in its place does not.

use serde_json::{Value, json};

use crate::env::{Running, TestEnv, avfs, runner};
use crate::steps::{Steps, ext4};
use crate::support;

/// `again` mounts the disk again, until it has another device number than `$1`.
const PREPARE: &str = r#"
    device() { stat -c %d "$DISK/project/.avfs/vault.db"; }
    again() {
        cd /; umount "$DISK" || exit 8
        n=0
        while test $n -lt 50; do
            n=$((n + 1)); other
            remount || exit 7
            test "$(device)" = "$1" || break
            umount "$DISK"
        done
        cd "$DISK/project" || exit 6
    }
    mkdir "$DISK/project" && chmod 755 "$DISK" "$DISK/project" && cd "$DISK/project" || exit 8
    step init "$AVFS" --json init
    step first run --fork f --shell 'echo x > x'
    before=$(device)
    again "$before"
    step moved-device test "$(device)" != "$before"
    step log "$AVFS" --json log
    step run run --fork f -- cat x
    step approvals run --vault . --fork f -- true"#;

/// A file with the path, the inode and the birth time of the vault, but the content of another one.
const OTHER_CONTENT: &str = r#"
    "$AVFS" init --vault "$OUT/other.db" 2> /dev/null
    rm .avfs/vault.db-*
    cat "$OUT/other.db" > .avfs/vault.db
    step other-content "$AVFS" --json log
    step other-content-run run -- true"#;

fn check(steps: &Steps) {
    steps.assert_code(&["init", "first", "moved-device", "log", "run", "approvals"], 0);
    assert_eq!(steps.answer("run")["result"]["stdout"], json!("x\n"));
    steps.assert_error("other-content", 1, "vault.untrusted");
    steps.assert_error("other-content-run", 125, "vault.untrusted");
}

#[test]
fn a_vault_on_an_overlay_that_is_mounted_again_is_trusted() {
    let env = TestEnv::new();
    let mount = r#"
        mkdir -p "$IMAGE/lower" "$IMAGE/upper" "$IMAGE/work" "$IMAGE/other"
        remount() { mount -t overlay none -o userxattr,lowerdir=lower,upperdir=upper,workdir=work "$DISK"; }
        other() { mount -t tmpfs none "$IMAGE/other"; }
        cd "$IMAGE" && remount"#;
    // `remount` has relative names.
    let prepare =
        PREPARE.replace("            remount || exit 7", "            cd \"$IMAGE\"; remount || exit 7");
    let script = format!("{prepare}\n{OTHER_CONTENT}");
    check(&Steps::on_disk(&env, mount, "", &script).unwrap());
}

#[test]
fn a_vault_on_an_image_that_is_mounted_again_is_trusted() {
    const TEST: &str = "e2e::a_vault_on_an_image_that_is_mounted_again_is_trusted";
    if !support::is_root() {
        return support::skip(TEST, "only root mounts disks");
    }
    let mount = format!(
        r#"
        remount() {{ mount -o loop "$IMAGE" "$DISK"; }}
        other() {{
            mkdir -p "$OUT/other-$n"; truncate -s 1M "$OUT/image-$n"; mkfs.ext4 -q -F "$OUT/image-$n"
            mount -o loop "$OUT/image-$n" "$OUT/other-$n"
        }}
        {}"#,
        ext4("")
    );
    // A copy of the whole disk has the same inodes and birth times, but another id.
    let script = format!(
        r#"{PREPARE}
        cd /; umount "$DISK"; cp "$IMAGE" "$IMAGE.copy"; e2fsck -fy "$IMAGE.copy" > /dev/null 2>&1
        step new-id tune2fs -U random "$IMAGE.copy"
        remount() {{ mount -o loop "$IMAGE.copy" "$DISK"; }}
        remount; again "$before"
        step copy-device test "$(device)" != "$before"
        step copy "$AVFS" --json log
        remount() {{ mount -o loop "$IMAGE" "$DISK"; }}
        again "$before"
        {OTHER_CONTENT}"#
    );
    let Some(steps) = Steps::on_disk(&TestEnv::new(), &mount, "24M", &script) else {
        return support::skip(TEST, "no image of a disk can be mounted here");
    };
    check(&steps);
    steps.assert_code(&["new-id", "copy-device"], 0);
    steps.assert_error("copy", 1, "vault.untrusted");
}

/// The answer of a command in a directory of the test.
fn in_dir(env: &TestEnv, dir: &str, program: &std::path::Path, words: &[&str]) -> Value {
    let mut command = env.clean(program);
    command.arg("--json").args(words).env("AVFS_VAULT_PLACE", "data").current_dir(env.at(dir));
    Running::start(&mut command).answer().envelope()
}

#[test]
fn a_vault_that_its_owner_moved_is_trusted() {
    let env = TestEnv::with_project();
    let rename = |from: &str, to: &str| std::fs::rename(env.at(from), env.at(to)).unwrap();
    let log = |dir: &str| in_dir(&env, dir, &avfs(), &["log"]);
    rename("project", "moved");
    std::fs::create_dir(env.project()).unwrap();
    assert_eq!(log("moved")["success"], json!(true), "the recorded path of the vault is gone");
    std::fs::remove_dir(env.project()).unwrap();
    rename("moved", "again");
    // A copy is another file.
    let copied = std::process::Command::new("cp").arg("-a").arg(env.at("again")).arg(env.at("copy")).status();
    assert!(copied.unwrap().success());
    assert_eq!(log("copy")["error"]["code"], json!("vault.untrusted"));
    std::fs::hard_link(env.at("again/.avfs/vault.db"), env.at("link")).unwrap();
    let refused = log("again");
    assert_eq!(refused["error"]["code"], json!("vault.untrusted"), "{refused}");
    let hint = refused["error"]["hint"].as_str().unwrap();
    assert!(hint.contains(env.at("moved").to_str().unwrap()), "{hint}");
    assert!(hint.contains(&format!("avfs vault trust {}", env.at("again").display())), "{hint}");
    std::fs::remove_file(env.at("link")).unwrap();
    assert_eq!(log("again")["success"], json!(true));
}

#[test]
fn a_vault_in_the_data_directory_follows_its_directory() {
    let env = TestEnv::new();
    env.put("file", b"old\n");
    let run = |dir: &str, words: &[&str]| in_dir(&env, dir, &runner(), words);
    let result = |dir: &str, words: &[&str]| {
        let answer = in_dir(&env, dir, &avfs(), words);
        assert_eq!(answer["success"], json!(true), "{answer}");
        answer["result"].clone()
    };
    let rebound = |answer: &Value| {
        let notes = answer["result"]["notes"].as_array().unwrap();
        notes.iter().filter(|note| note["code"] == json!("vault.rebound")).count()
    };
    let first = run("project", &["--shell", "echo new > file"]);
    assert_eq!((&first["success"], rebound(&first)), (&json!(true), 0), "{first}");
    let id = result("project", &["vault", "info"])["id"].clone();
    // A copy does not get the vault: its directory still exists.
    let copied = std::process::Command::new("cp").arg("-a").arg(env.project()).arg(env.at("copy")).status();
    assert!(copied.unwrap().success());
    let near = in_dir(&env, "copy", &avfs(), &["log"]);
    assert_eq!(near["error"]["code"], json!("vault.not_found"), "{near}");
    std::fs::rename(env.project(), env.at("moved")).unwrap();
    std::fs::create_dir_all(env.at("moved/below")).unwrap();
    let moved = run("moved/below", &["--", "cat", "../file"]);
    assert_eq!((&moved["result"]["stdout"], rebound(&moved)), (&json!("old\n"), 1), "{moved}");
    assert_eq!(rebound(&run("moved", &["--", "true"])), 0);
    let info = result("moved", &["vault", "info"]);
    assert_eq!((&info["id"], &info["bound"]), (&id, &json!(env.at("moved"))), "{info}");
    let run_id = first["run_id"].as_str().unwrap();
    result("moved", &["apply", &format!("run:{run_id}")]);
    assert_eq!(std::fs::read(env.at("moved/file")).unwrap(), b"new\n");
    // The old path is free for another directory.
    std::fs::create_dir(env.project()).unwrap();
    let other = run("project", &["--", "true"]);
    assert_eq!((&other["success"], rebound(&other)), (&json!(true), 0), "{other}");
    assert_ne!(result("project", &["vault", "info"])["id"], id);
    assert_eq!(result("moved", &["fsck"])["findings"], json!([]));
    result("moved", &["audit", "verify"]);
    // It is also found by a command that would create one.
    std::fs::rename(env.at("moved"), env.at("again")).unwrap();
    for _ in 0..2 {
        let init = result("again", &["init"]);
        assert_eq!((&init["id"], &init["made"]), (&id, &json!(false)), "{init}");
    }
    let info = result("again", &["vault", "info"]);
    assert_eq!((&info["id"], &info["bound"]), (&id, &json!(env.at("again"))), "{info}");
}
