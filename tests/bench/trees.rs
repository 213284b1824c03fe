//! Whole trees: import, import again, export, materialize.

use std::path::Path;

use avfs::ids::ForkName;
use avfs::vault::export::{ExportOptions, Overwrite};
use avfs::vault::import::{ImportOptions, Imported, OnTrouble};
use avfs::vault::materialize::{BaseCache, Trust};
use avfs::vault::meter::Meter;
use avfs::vault::version::full_root_of;
use avfs::vault::{Vault, require_version};

use crate::{Bench, Goal, Row, context, generate, median, new_vault, options, peers, quiet, timed};

/// As a process would: opens the vault, imports, closes it.
pub fn import(vault: &Path, tree: &Path, cache: &Path) -> (f64, Imported) {
    timed(|| {
        let vault = Vault::open(vault, options(), context()).unwrap();
        let meter = Meter::default();
        let how = ImportOptions {
            on_trouble: OnTrouble::Fail,
            stat_cache: Some(cache),
            exclude: &[],
            meter: &meter,
        };
        vault.import(tree, &ForkName::main(), "bench", &how).unwrap()
    })
}

pub fn generated(bench: &Bench) -> Vec<Row> {
    let tree = bench.dir.join(format!("tree-{}", bench.files));
    if !tree.exists() {
        std::fs::create_dir_all(&tree).unwrap();
        generate::tree(&tree, bench.files);
    }
    measure(bench, &tree, &format!("{} generated files", bench.files))
}

/// The sources of the crates this project is built from: a real tree that every builder has.
pub fn real(bench: &Bench) -> Vec<Row> {
    let cargo =
        std::env::var("CARGO_HOME").unwrap_or_else(|_| format!("{}/.cargo", std::env::var("HOME").unwrap()));
    let sources = Path::new(&cargo).join("registry/src");
    let tree = bench.fresh("real");
    peers::copy(&sources, &tree);
    let count = walkdir::WalkDir::new(&tree).into_iter().count();
    measure(bench, &tree, &format!("{count} entries of crate sources"))
}

fn measure(bench: &Bench, tree: &Path, name: &str) -> Vec<Row> {
    let mut rows = Vec::new();
    let mut row = |what: &str, ours: f64, peer: &str, theirs: f64, goal: Goal| {
        let (what, peer) = (format!("{what}, {name}"), peer.to_owned());
        rows.push(Row { what, ours, unit: "s", peer, theirs, goal });
    };
    // Stamps younger than the scan prove nothing, to git as to avfs.
    quiet();
    let repository = bench.fresh("git");
    let git_first = peers::git_import(&repository, tree);
    quiet();
    let status = |repository: &Path| median((0..7).map(|_| peers::git_status(repository, tree)).collect());
    let git_status = status(&repository);

    let home = bench.fresh("vault");
    let (vault_path, cache) = (home.join("vault.db"), home.join("stat"));
    drop(new_vault(&vault_path));
    quiet();
    let (first, imported) = import(&vault_path, tree, &cache);
    row("first import", first, "git add -A && git commit", git_first, Goal::AtMost(0.25));
    let has_restic = peers::has("restic");
    let restic = bench.fresh("restic");
    if has_restic {
        quiet();
        row("first import", first, "restic backup", peers::restic_import(&restic, tree), Goal::AtMost(0.4));
    }
    let vault_bytes = {
        let vault = Vault::open(&vault_path, options(), context()).unwrap();
        vault.backend().settle().unwrap();
        std::fs::metadata(&vault_path).unwrap().len()
    };
    quiet();
    let repeat = median((0..7).map(|_| import(&vault_path, tree, &cache).0).collect());
    row("import, nothing changed", repeat, "git status", git_status, Goal::AtMost(1.3));
    let changed: Vec<f64> = (0..5)
        .map(|round| {
            let files: Vec<_> = walkdir::WalkDir::new(tree)
                .into_iter()
                .map(Result::unwrap)
                .filter(|entry| entry.file_type().is_file())
                .step_by(bench.files / 5 + 1)
                .map(walkdir::DirEntry::into_path)
                .collect();
            for file in files.iter().take(5) {
                let mut text = std::fs::read(file).unwrap();
                text.extend_from_slice(format!("// round {round}\n").as_bytes());
                std::fs::write(file, text).unwrap();
            }
            std::thread::sleep(std::time::Duration::from_millis(100));
            let (time, imported) = import(&vault_path, tree, &cache);
            assert!(imported.committed.changed());
            // Settles the stamps of what was just changed.
            std::thread::sleep(std::time::Duration::from_millis(100));
            import(&vault_path, tree, &cache);
            time
        })
        .collect();
    row("import, 5 files changed", median(changed), "import, nothing changed", repeat, Goal::AtMost(1.2));

    let vault = Vault::open(&vault_path, options(), context()).unwrap();
    let root = {
        let reader = vault.read().unwrap();
        let version = require_version(&*reader, &imported.committed.version.id).unwrap();
        full_root_of(&*reader, &version).unwrap()
    };
    // In turns: what the disk is like changes with what was written before.
    let copies = bench.fresh("copies");
    let mut times = [const { Vec::new() }; 4];
    for n in 0..3 {
        let to = |name: &str| copies.join(format!("{name}-{n}"));
        let meter = Meter::default();
        quiet();
        std::fs::create_dir(to("cp")).unwrap();
        times[0].push(peers::copy(tree, &to("cp")));
        quiet();
        let how = ExportOptions { overwrite: Overwrite::Refuse, paths: &[], meter: &meter };
        times[1].push(timed(|| vault.export(&root, &to("export"), &how).unwrap()).0);
        quiet();
        let bases = BaseCache::new(&to("bases"), "boot");
        times[2].push(timed(|| vault.materialize(&root, &bases, Trust::Seal, &meter).unwrap()).0);
        quiet();
        std::fs::create_dir(to("git")).unwrap();
        times[3].push(peers::git_checkout(&repository, &to("git")));
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
            theirs: megabytes(peers::size_of(&restic)),
            goal: Goal::AtMost(1.2),
        });
    }
    rows
}
