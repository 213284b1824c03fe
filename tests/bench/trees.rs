//! Whole trees: import, repeated import, export, materialize, with `avfs` as a user calls it.

use std::path::{Path, PathBuf};
use std::process::Command;

use avfs_types::ids::VersionId;
use avfs_vault::Vault;

use crate::peers::run;
use crate::{Bench, Goal, Row, context, generate, median, new_vault, options, peers, program, quiet};

/// A vault and the caches of `avfs` for it.
pub struct Home(PathBuf);

impl Home {
    pub fn new(bench: &Bench) -> Self {
        let home = Self(bench.fresh("vault"));
        drop(new_vault(&home.vault()));
        home
    }

    fn vault(&self) -> PathBuf {
        self.0.join("vault.db")
    }

    fn avfs(&self, words: &[&str]) -> Command {
        let mut command = Command::new(program("avfs"));
        command.arg("--vault").arg(self.vault()).args(words);
        command.env("XDG_CACHE_HOME", self.0.join("cache"));
        command
    }

    pub fn import(&self, tree: &Path) -> f64 {
        run(self.avfs(&["import"]).arg(tree))
    }

    fn head(&self) -> VersionId {
        let vault = Vault::open(&self.vault(), options(), context()).unwrap();
        vault.fork(&avfs_types::ids::ForkName::main()).unwrap().head
    }
}

pub fn generated(bench: &Bench) -> Vec<Row> {
    let tree = bench.dir.join(format!("tree-{}", bench.files));
    if !tree.exists() {
        std::fs::create_dir_all(&tree).unwrap();
        generate::tree(&tree, bench.files);
    }
    measure(bench, &tree, &format!("{} generated files", bench.files))
}

/// The sources of the crates that this project is built from: a real tree that every build machine has.
pub fn real(bench: &Bench) -> Vec<Row> {
    let cargo =
        std::env::var("CARGO_HOME").unwrap_or_else(|_| format!("{}/.cargo", std::env::var("HOME").unwrap()));
    let sources = Path::new(&cargo).join("registry/src");
    let tree = bench.fresh("real");
    peers::copy(&sources, &tree);
    let count = walkdir::WalkDir::new(&tree).into_iter().count();
    measure(bench, &tree, &format!("{count} entries of crate sources"))
}

/// Five files, spread over the tree.
fn five_of(tree: &Path) -> Vec<PathBuf> {
    let entries = walkdir::WalkDir::new(tree).sort_by_file_name().into_iter().map(Result::unwrap);
    let files: Vec<PathBuf> =
        entries.filter(|entry| entry.file_type().is_file()).map(walkdir::DirEntry::into_path).collect();
    files.iter().step_by(files.len().div_ceil(5).max(1)).cloned().collect()
}

fn measure(bench: &Bench, tree: &Path, name: &str) -> Vec<Row> {
    let mut rows = Vec::new();
    let mut row = |what: &str, ours: f64, peer: &str, theirs: f64, goal: Goal| {
        let (what, peer) = (format!("{what}, {name}"), peer.to_owned());
        rows.push(Row { what, ours, unit: "s", peer, theirs, goal });
    };
    // Alternating, because earlier work changes the state of the machine and its disk.
    let has_restic = peers::has("restic");
    let turns: Vec<_> =
        (0..3).map(|_| (bench.fresh("git"), Home::new(bench), bench.fresh("restic"))).collect();
    let mut times = [const { Vec::new() }; 3];
    for (repository, home, restic) in &turns {
        // Timestamps newer than the scan prove nothing, neither to git nor to avfs.
        quiet();
        times[0].push(peers::git_import(repository, tree));
        quiet();
        times[1].push(home.import(tree));
        if has_restic {
            quiet();
            times[2].push(peers::restic_import(restic, tree));
        }
    }
    let [git, first, by_restic] = times;
    let first = median(first);
    row("first import", first, "git add -A && git commit", median(git), Goal::AtMost(0.25));
    if has_restic {
        row("first import", first, "restic backup", median(by_restic), Goal::AtMost(0.4));
    }
    let (repository, home, restic) = &turns[0];
    let vault_bytes = std::fs::metadata(home.vault()).unwrap().len();

    quiet();
    let status = median((0..15).map(|_| peers::git_status(repository, tree)).collect());
    quiet();
    let [mut repeat, mut changed] = [const { Vec::new() }; 2];
    let chosen = five_of(tree);
    let pause = || std::thread::sleep(std::time::Duration::from_millis(100));
    for round in 0..15 {
        pause();
        repeat.push(home.import(tree));
        for file in &chosen {
            let mut text = std::fs::read(file).unwrap();
            text.extend_from_slice(format!("// round {round}\n").as_bytes());
            std::fs::write(file, text).unwrap();
        }
        pause();
        let before = home.head();
        changed.push(home.import(tree));
        assert_ne!(home.head(), before);
        // Lets the timestamps of the changed files settle.
        pause();
        home.import(tree);
    }
    let repeat = median(repeat);
    row("import, nothing changed", repeat, "git status", status, Goal::AtMost(1.3));
    row("import, 5 files changed", median(changed), "import, nothing changed", repeat, Goal::AtMost(1.2));

    let copies = bench.fresh("copies");
    let mut times = [const { Vec::new() }; 4];
    for n in 0..5 {
        let to = |name: &str| copies.join(format!("{name}-{n}"));
        quiet();
        std::fs::create_dir(to("cp")).unwrap();
        times[0].push(peers::copy(tree, &to("cp")));
        quiet();
        times[1].push(run(home.avfs(&["export", "main"]).arg(to("export"))));
        quiet();
        times[2].push(run(home.avfs(&["materialize", "main"]).env("XDG_CACHE_HOME", to("cache"))));
        quiet();
        std::fs::create_dir(to("git")).unwrap();
        times[3].push(peers::git_checkout(repository, &to("git")));
        // Copies that fill the memory would be evicted during the next round, at the cost of tools that use every core.
        for name in ["cp", "export", "cache", "git"] {
            avfs_hostfs::remove::remove_tree(&to(name)).unwrap();
        }
    }
    let [copy, export, base, checkout] = times.map(median);
    row("export", export, "cp -a", copy, Goal::AtMost(1.0));
    row("export", export, "git checkout", checkout, Goal::AtMost(0.35));
    row("materialize", base, "cp -a", copy, Goal::AtMost(1.0));
    row("materialize", base, "git checkout", checkout, Goal::AtMost(0.35));
    if has_restic {
        let megabytes = |bytes: u64| bytes as f64 / 1e6;
        rows.push(Row {
            what: format!("size of the vault after the first import, {name}"),
            ours: megabytes(vault_bytes),
            unit: "MB",
            peer: "restic's repository".to_owned(),
            theirs: megabytes(peers::size_of(restic)),
            goal: Goal::AtMost(1.2),
        });
    }
    rows
}
