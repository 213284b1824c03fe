//! Tried: leaving a setuid program in the workspace, so that an apply or an export writes it to the host.
//! Stopped by: apply and export write regular files without setuid and setgid bits, unless `--keep-setid` is given.

use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use serde_json::json;

use crate::env::TestEnv;

const PLANT: &str = "mkdir new; for f in program new/program; do cp /bin/true $f; chmod 6755 $f; done; \
                     ln program linked; chmod 2775 new";
const PLANTED: [&str; 3] = ["linked", "new/program", "program"];

fn mode(path: &Path) -> u32 {
    path.symlink_metadata().unwrap().permissions().mode() & 0o7777
}

fn names(paths: &serde_json::Value) -> Vec<&str> {
    paths.as_array().unwrap().iter().map(|path| path["path"].as_str().unwrap()).collect()
}

#[test]
fn export_strips_set_id_bits() {
    let env = TestEnv::with_project();
    env.ok(&["--fork", "f"], PLANT);
    let kept = env.at("kept");
    let result = env.avfs_result(&["export", "f", kept.to_str().unwrap(), "--keep-setid"]);
    assert_eq!(result["set_ids_stripped"], json!([]));
    let stripped = env.at("stripped");
    let result = env.avfs_result(&["export", "f", stripped.to_str().unwrap()]);
    assert_eq!(names(&result["set_ids_stripped"]), PLANTED);
    for name in PLANTED {
        assert_eq!(mode(&kept.join(name)), 0o6755, "the control failed");
        assert_eq!(mode(&stripped.join(name)), 0o755);
    }
    // The setgid bit of a directory passes its group on to new files, and does nothing else.
    assert_eq!(mode(&stripped.join("new")), 0o2775);
}

#[test]
fn apply_strips_set_id_bits() {
    let control = TestEnv::with_project();
    control.ok(&["--fork", "f"], PLANT);
    let result = control.avfs_result(&["apply", "f", "--keep-setid"]);
    assert_eq!(result["set_ids_stripped"], json!([]));
    let env = TestEnv::with_project();
    env.ok(&["--fork", "f"], PLANT);
    let result = env.avfs_result(&["apply", "f"]);
    assert_eq!(names(&result["set_ids_stripped"]), PLANTED);
    for name in PLANTED {
        assert_eq!(mode(&control.project().join(name)), 0o6755, "the control failed");
        assert_eq!(mode(&env.project().join(name)), 0o755);
    }
    assert_eq!(env.avfs_result(&["status", "--fork", "f"])["clean"], json!(true));
    // Stripped bits are not a conflict, neither for the same changes nor for later ones.
    let run = env.avfs_result(&["runs", "list"])["runs"][0]["id"].as_str().unwrap().to_owned();
    let again = env.avfs(&["apply", &format!("run:{run}")]).expect(0);
    assert!(again.text().starts_with("already up to date"), "{again:?}");
    env.ok(&["--fork", "f"], "echo >> new/program; chmod 6755 new/program; chmod 6700 program");
    env.avfs_result(&["apply", "f"]);
    assert_eq!(mode(&env.project().join("new/program")), 0o755);
    assert_eq!(mode(&env.project().join("program")), 0o700);
}

#[test]
fn set_id_bits_of_unmodified_host_files_are_kept() {
    let env = TestEnv::with_project();
    for name in ["edited", "untouched"] {
        env.put(name, b"host\n");
        std::fs::set_permissions(env.project().join(name), PermissionsExt::from_mode(0o4755)).unwrap();
    }
    let line = "echo run >> edited; chmod 4755 edited; chmod 4775 untouched; touch new; chmod 4755 new";
    let answer =
        crate::env::Running::start(&mut env.command(&["--apply", "--json", "--shell", line])).answer();
    let envelope = answer.expect(0).envelope();
    let notes = envelope["result"]["notes"].as_array().unwrap().iter();
    let stripped: Vec<_> = notes.filter(|note| note["code"] == "apply.set_ids_stripped").collect();
    assert_eq!(stripped.len(), 3, "{envelope}");
    assert_eq!(std::fs::read(env.project().join("edited")).unwrap(), b"host\nrun\n");
    assert_eq!(mode(&env.project().join("edited")), 0o755);
    assert_eq!(mode(&env.project().join("untouched")), 0o4775);
    assert_eq!(mode(&env.project().join("new")), 0o755);
}
