//! Tried: giving a directory the name of a staging directory, so that the next export or apply removes it.
//! Stopped by: only the directory that a killed process has noted is removed with its files, known by device, inode and
//! birth; any other is removed only if it is empty.

use std::path::Path;
use std::process::Command;

use crate::env::{TestEnv, avfs};
use crate::shared::kill_at;

const STAGED: &str = ".avfs-export-0123456789abcdef";

fn fill(dir: &Path) {
    std::fs::create_dir_all(dir.join("sub")).unwrap();
    std::fs::write(dir.join("sub/file"), "precious").unwrap();
}

fn staged(dir: &Path) -> Vec<String> {
    let names =
        std::fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap());
    names.filter(|name| name.starts_with(".avfs-export-")).collect()
}

fn command(env: &TestEnv, words: &[&str]) -> Command {
    let mut command = env.clean(&avfs());
    command.args(words);
    command
}

#[test]
fn directory_with_the_name_of_a_staging_directory_is_kept() {
    let env = TestEnv::with_project();
    env.avfs(&["import"]).expect(0);
    env.ok(&["--fork", "f"], "echo x > x");
    let (out, dest) = (env.at("out"), env.at("out/new"));
    std::fs::create_dir(&out).unwrap();
    let places = [out.clone(), env.project(), env.project().join(".avfs")];
    for place in &places {
        fill(&place.join(STAGED));
        std::fs::create_dir(place.join(".avfs-export-fedcba9876543210")).unwrap();
    }
    env.avfs(&["export", "main", dest.to_str().unwrap()]).expect(0);
    env.avfs(&["export", "main", "--overwrite", "."]).expect(0);
    env.avfs(&["apply", "f"]).expect(0);
    env.avfs(&["unapply", "f"]).expect(0);
    for place in &places {
        assert_eq!(std::fs::read(place.join(STAGED).join("sub/file")).unwrap(), b"precious");
        // An empty leftover is removed.
        assert_eq!(staged(place), [STAGED], "{}", place.display());
    }
}

/// A process is killed with a full staging directory; another directory gets its name.
#[test]
fn only_the_noted_directory_is_removed() {
    let env = TestEnv::with_project();
    env.avfs(&["import"]).expect(0);
    env.ok(&["--fork", "f"], "echo x > x");
    let (out, dest) = (env.at("out"), env.at("out/new"));
    std::fs::create_dir(&out).unwrap();
    let own = env.project().join(".avfs");
    let export: &[&str] = &["export", "main", dest.to_str().unwrap()];
    for (words, point, place) in [(export, "publish", &out), (&["apply", "f"], "check-again", &own)] {
        kill_at(&env, &mut command(&env, words), point);
        let [name] = &staged(place)[..] else { panic!("{words:?}: {:?}", staged(place)) };
        std::fs::rename(place.join(name), place.join("moved")).unwrap();
        fill(&place.join(name));
        env.avfs(words).expect(0);
        assert_eq!(std::fs::read(place.join(name).join("sub/file")).unwrap(), b"precious", "{words:?}");
        std::fs::remove_dir_all(place.join(name)).unwrap();
        std::fs::remove_dir_all(place.join("moved")).unwrap();
        std::fs::remove_dir_all(&dest).unwrap_or_default();
        // Control: the directory of the killed process itself is removed, by a command for another place.
        env.avfs(&["unapply", "f"]);
        kill_at(&env, &mut command(&env, words), point);
        assert_eq!(staged(place).len(), 1, "{words:?}");
        let other = env.at("other");
        env.avfs(&["export", "main", other.to_str().unwrap()]).expect(0);
        assert_eq!(staged(place), [""; 0], "{words:?}");
        std::fs::remove_dir_all(&other).unwrap();
    }
}
