//! Tried: reading the state of avfs itself: the vault, the cache, the scratch with upper and work.
//! Stopped by: they are not in the view; if the whole host is shown, they are hidden.

use crate::attempt::{assert_all_gained, assert_nothing_gained, inside, natively, own_host, program};
use crate::env::TestEnv;
use crate::shared::Shared;

fn look(env: &TestEnv) -> String {
    format!(
        "tried('vault', lambda: open('{0}').close())
tried('beside', lambda: os.stat('.avfs/vault.db'))
def listed(path):
    if not os.listdir(path): raise OSError(errno.ENOENT, '')
tried('cache', lambda: listed('{1}'))
tried('scratches', lambda: listed('{1}/run'))",
        env.vault_file().display(),
        env.at("cache/avfs").display()
    )
}

const NAMES: [&str; 4] = ["vault", "beside", "cache", "scratches"];

#[test]
fn vault_and_cache_are_not_visible() {
    let env = TestEnv::with_project();
    env.ok(&["--fork", "f"], "echo x > x");
    // Control: while a run lives, its scratch is visible to processes outside.
    let shared = Shared::new(&env);
    let running = shared.start(&env, &[], ": > $S/ready; while [ ! -e $S/go ]; do sleep 0.01; done");
    let running = shared.wait_for_word(running, "ready");
    assert_all_gained(&natively(&env, &look(&env)), &NAMES);
    let look = look(&env);
    for options in [
        &[][..],
        &["--profile", "host"],
        &["--profile", "host", "--fork", "f"],
        &["--allow-degraded", "--ro", "/", "--fork", "g"],
        &["--scratch", "disk"],
        &["--backend", "copy"],
    ] {
        assert_nothing_gained(&inside(&env, options, &look), &NAMES);
    }
    shared.put("go");
    running.answer().expect(0);
}

#[test]
fn upper_and_work_have_no_path_inside() {
    let env = TestEnv::with_project();
    // The mount table names layers by the paths they were opened with, which mean nothing inside.
    let follow = program(
        "import re
options = [line for line in open('/proc/self/mountinfo') if ' - overlay ' in line]
assert options, 'no overlay'
for path in re.findall(r'(?:upperdir|workdir|lowerdir[+]?)=([^,\\s]+)', options[0]):
    for part in path.split(':'): tried(part, lambda: os.listdir(part))
print('end end')",
    );
    for options in [&["--scratch", "disk"][..], &["--scratch", "memory"], &["--profile", "host"]] {
        let mut words = options.to_vec();
        words.extend(["--", "python3", "-c", &follow]);
        let answer = env.run(&words).expect(0);
        let seen: Vec<String> = crate::attempt::gained(&answer);
        // A live base is the directory of the workspace itself: listing it shows the fork.
        let own = env.project().display().to_string();
        assert!(seen.iter().all(|path| *path == own), "{options:?}: {answer:?}");
    }
}

/// The host may have mounted the same directory at another path too.
#[test]
fn mounts_of_the_cache_and_the_vault_elsewhere_are_hidden() {
    let env = TestEnv::with_project();
    env.ok(&["--fork", "f"], "echo x > x");
    let (around, project) = (env.at("around"), env.project());
    std::fs::create_dir_all(around.join("cache")).unwrap();
    let list = format!(
        "def listed(path):
    if not os.listdir(path): raise OSError(errno.ENOENT, '')
tried('cache', lambda: listed('{0}/cache/avfs'))
tried('vault', lambda: open('{0}/project/.avfs/vault.db').close())",
        around.display()
    );
    std::fs::create_dir_all(around.join("project")).unwrap();
    let with = |start: &str| {
        let script = format!(
            "set -e; mount --bind {cache} {around}/cache; mount --bind {project} {around}/project; cd {project}
            {start} -- python3 -c \"$P\"",
            cache = env.at("cache").display(),
            around = around.display(),
            project = project.display(),
        );
        own_host(&env, &script, &list)
    };
    assert_all_gained(&with("env"), &["cache", "vault"]);
    let shown = around.display();
    for options in [
        format!("--ro {shown}"),
        format!("--rw {shown}"),
        format!("--ro {shown}/cache --ro {shown}/project"),
        format!("--ro {shown}/cache/avfs --ro {shown}/project/.avfs"),
    ] {
        assert_nothing_gained(&with(&format!("\"$RUN\" -q --allow-degraded {options}")), &["cache", "vault"]);
    }
}
