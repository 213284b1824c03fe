//! Bases: versions made usable as directories, kept in a cache and never changed by others.

use std::collections::HashSet;
use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};

use rustix::fs::XattrFlags;

use avfs_vault::edit::{Edit, Edits};
use avfs_vault::materialize::{Base, BaseCache, Built, Trust};
use avfs_vault::meter::Meter;
use avfs_vault::page::{DirMeta, FileNode, Node};
use avfs_vault::{Advance, Vault, VaultError, When, transfer, tree};

use crate::attributes::set_mtime;
use crate::support;
use crate::support::wait::wait_for;
use crate::support::{Scratch, snapshot};

struct Bases {
    scratch: Scratch,
    vault: Vault,
    dir: PathBuf,
}

impl Bases {
    fn new() -> Self {
        let scratch = Scratch::new();
        let dir = scratch.dir("dir");
        support::many_files(&dir, 50);
        fs::write(dir.join("large"), support::noise(4, 2 << 20)).unwrap();
        symlink("d000", dir.join("link")).unwrap();
        rustix::fs::setxattr(dir.join("large"), "user.overlay.opaque", b"y", XattrFlags::empty()).unwrap();
        rustix::fs::setxattr(dir.join("d000"), "user.overlay.whiteout", b"", XattrFlags::empty()).unwrap();
        rustix::fs::setxattr(dir.join("d000"), "user.plain", b"p", XattrFlags::empty()).unwrap();
        let vault = support::create_real_vault(&scratch.join("vault.db"));
        support::import(&vault, &dir);
        Self { scratch, vault, dir }
    }

    fn cache(&self, boot: &str) -> BaseCache {
        BaseCache::new(&self.scratch.join("cache"), boot)
    }

    fn get(&self, boot: &str, trust: Trust) -> Base {
        let root = support::root(&self.vault, "main");
        self.vault.materialize(&root, &self.cache(boot), trust, &Meter::default()).unwrap()
    }
}

/// A file that its owner cannot read cannot be compared, and does not count as damage.
#[test]
fn base_with_unreadable_files_is_reused() {
    let bases = Bases::new();
    for (path, mode) in [("d000/f00000", 0o000), ("d001", 0o000)] {
        let edited = |vault: &Vault| {
            let reader = vault.read().unwrap();
            let root = support::root(vault, "main");
            match tree::require(&&*reader, &root, &support::path(path)).unwrap() {
                Node::File(file) => Edit::Put(Node::File(FileNode { mode, ..file })),
                Node::Dir(dir) => {
                    let (meta, _) = tree::top(&&*reader, &dir.tree).unwrap();
                    Edit::Dir(DirMeta { mode, ..meta })
                }
                other @ (Node::Symlink(_) | Node::Fifo(_)) => panic!("{other:?}"),
            }
        };
        let edits = Edits::from([(support::path(path), edited(&bases.vault))]);
        let advance = Advance { action: "fork.edit", message: "close", run: None, when: When::Changed };
        bases.vault.commit_edits(&support::main_fork(), &edits, &[], &advance).unwrap();
    }
    assert_eq!(bases.get("b1", Trust::Nothing).built, Built::New);
    assert_eq!(bases.get("b1", Trust::Nothing).built, Built::Reused);
    bases.cache("b1").evict(0).unwrap();
}

#[test]
fn overlayfs_attributes_are_escaped_in_a_base() {
    let bases = Bases::new();
    let base = bases.get("b1", Trust::Seal);
    assert_eq!(base.built, Built::New);
    let found = snapshot::take(&base.root).facts;
    let names = |path: &str| -> Vec<String> {
        found[path.as_bytes()].xattrs.keys().map(|name| String::from_utf8(name.clone()).unwrap()).collect()
    };
    assert_eq!(names("large"), ["user.overlay.overlay.opaque"]);
    assert_eq!(names("d000"), ["user.overlay.overlay.whiteout", "user.plain"]);
    // Apart from that a base is a faithful copy.
    let mut original = snapshot::take(&bases.dir);
    let mut copy = snapshot::take(&base.root);
    for snapshot in [&mut original, &mut copy] {
        snapshot.facts.values_mut().for_each(|fact| fact.xattrs.clear());
    }
    assert_eq!(snapshot::differences(&original, &copy), [] as [String; 0]);
    drop(base);
    assert_eq!(bases.get("b1", Trust::Nothing).built, Built::Reused);
}

#[test]
fn base_of_another_boot_is_rebuilt() {
    let bases = Bases::new();
    drop(bases.get("b1", Trust::Seal));
    assert_eq!(bases.get("b1", Trust::Seal).built, Built::Reused);
    assert_eq!(bases.get("b2", Trust::Seal).built, Built::Rebuilt);
    assert_eq!(bases.get("b2", Trust::Seal).built, Built::Reused);
}

#[test]
fn damaged_base_is_rebuilt_if_nothing_is_trusted() {
    let bases = Bases::new();
    let keep_time = |file: &Path, change: &dyn Fn()| {
        let time = fs::metadata(file).unwrap().modified().unwrap();
        change();
        fs::File::open(file).unwrap().set_modified(time).unwrap();
    };
    type Damage = (&'static str, Box<dyn Fn(&Path)>);
    let damages: Vec<Damage> = vec![
        (
            "content",
            Box::new(move |root| {
                let file = root.join("d000/f00007");
                let size = fs::read(&file).unwrap().len();
                keep_time(&file, &|| fs::write(&file, vec![b'?'; size]).unwrap());
            }),
        ),
        (
            "large content",
            Box::new(move |root| {
                let file = root.join("large");
                keep_time(&file, &|| fs::write(&file, support::noise(5, 2 << 20)).unwrap());
            }),
        ),
        (
            "mode",
            Box::new(|root| {
                fs::set_permissions(root.join("large"), fs::Permissions::from_mode(0o777)).unwrap()
            }),
        ),
        ("time", Box::new(|root| set_mtime(&root.join("large"), 1, 0))),
        ("missing file", Box::new(|root| fs::remove_file(root.join("d001/f00041")).unwrap())),
        ("extra file", Box::new(|root| fs::write(root.join("extra"), "x").unwrap())),
        (
            "link",
            Box::new(|root| {
                fs::remove_file(root.join("link")).unwrap();
                symlink("elsewhere", root.join("link")).unwrap();
            }),
        ),
        (
            "attribute gone",
            Box::new(|root| {
                rustix::fs::removexattr(root.join("large"), "user.overlay.overlay.opaque").unwrap()
            }),
        ),
        (
            "attribute added",
            Box::new(|root| {
                rustix::fs::setxattr(root.join("d001"), "user.new", b"", XattrFlags::empty()).unwrap()
            }),
        ),
        (
            "file for directory",
            Box::new(|root| {
                fs::remove_dir_all(root.join("d001")).unwrap();
                fs::write(root.join("d001"), "x").unwrap();
            }),
        ),
    ];
    let whole = snapshot::take(&bases.get("b1", Trust::Seal).root);
    for (what, damage) in damages {
        let base = bases.get("b1", Trust::Nothing);
        assert_eq!(base.built, Built::Reused, "before {what}");
        damage(&base.root);
        drop(base);
        let base = bases.get("b1", Trust::Nothing);
        assert_eq!(base.built, Built::Rebuilt, "{what} was not noticed");
        assert_eq!(snapshot::differences(&whole, &snapshot::take(&base.root)), [] as [String; 0], "{what}");
    }
    // A base without its seal is not used, even if the seal is trusted.
    fs::remove_file(bases.get("b1", Trust::Seal).root.with_file_name("sealed")).unwrap();
    assert_eq!(bases.get("b1", Trust::Seal).built, Built::Rebuilt);
}

#[test]
fn eviction_spares_leased_bases_and_takes_the_oldest_first() {
    let bases = Bases::new();
    let cache = bases.cache("b1");
    // The mtime of the lease file is the time of the last use.
    let used_at = |base: Base, seconds| {
        set_mtime(&base.root.with_file_name("lease"), seconds, 0);
        base
    };
    let first = used_at(bases.get("b1", Trust::Seal), 1);
    let first_tree = support::root(&bases.vault, "main").tree.to_hex();
    support::write(&bases.vault, "more", b"1");
    drop(used_at(bases.get("b1", Trust::Seal), 2));
    support::write(&bases.vault, "more", b"2");
    let last_tree = support::root(&bases.vault, "main").tree.to_hex();
    drop(used_at(bases.get("b1", Trust::Seal), 3));
    let trees = || -> Vec<String> { cache.list().unwrap().into_iter().map(|base| base.tree).collect() };
    assert_eq!(trees().len(), 3);
    let one = cache.list().unwrap()[0].bytes;
    assert!(one > 2 << 20);
    assert_eq!(cache.evict(u64::MAX).unwrap(), 0);
    // A process that another test is starting may share a lease until its exec.
    let evict = |bytes_max: u64, left: &[&String]| {
        wait_for("an eviction", || {
            cache.evict(bytes_max).unwrap();
            trees().iter().collect::<HashSet<_>>() == left.iter().copied().collect()
        });
    };
    // Room for two: the leased base is older than the evicted one.
    evict(one * 2 + one / 2, &[&first_tree, &last_tree]);
    evict(0, &[&first_tree]);
    assert!(first.root.join("d000/f00000").is_file());
    drop(first);
    evict(0, &[]);
}

#[test]
fn interrupted_build_leaves_no_base() {
    let bases = Bases::new();
    let root = support::root(&bases.vault, "main");
    let cache = bases.cache("b1");
    let meter = Meter::default();
    meter.stop();
    let stopped = bases.vault.materialize(&root, &cache, Trust::Seal, &meter);
    assert!(matches!(stopped, Err(transfer::Error::Vault(VaultError::Interrupted))), "{stopped:?}");
    assert_eq!(cache.list().unwrap(), []);
    assert_eq!(fs::read_dir(bases.scratch.join("cache/base")).unwrap().count(), 0);
    assert_eq!(bases.get("b1", Trust::Seal).built, Built::New);
}
