//! Comparing a part of a directory with known versions finds every change, and nothing else.

use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::Path;

use avfs_vault::Vault;
use avfs_vault::import::{ImportOptions, LookPlace, Looked, OnTrouble};
use avfs_vault::meter::Meter;
use avfs_vault::page::DirRef;

use crate::support;
use crate::support::Scratch;

const FILES: [&str; 12] =
    ["a", "d/a", "d/b", "d/deep/a", "d/deep/er/a", "d/deep/er/b", "d/z", "d.x/a", "m", "z/a/b", "z/b", "z.z"];
/// With the directories and the root.
const NAMES: usize = FILES.len() + 7;

fn plant(dir: &Path) {
    for file in FILES {
        fs::create_dir_all(dir.join(file).parent().unwrap()).unwrap();
        fs::write(dir.join(file), file).unwrap();
    }
}

struct Bench {
    scratch: Scratch,
    vault: Vault,
    exclude: Vec<String>,
}

impl Bench {
    fn new() -> Self {
        let bench = Self { scratch: Scratch::new(), vault: support::memory_vault(), exclude: Vec::new() };
        plant(&bench.scratch.dir("dir"));
        bench
    }

    fn import(&self) -> DirRef {
        let meter = Meter::default();
        let (root, _, _) = self
            .vault
            .survey(&self.scratch.join("dir"), &support::main_fork(), &self.options(&meter))
            .unwrap();
        support::import(&self.vault, &self.scratch.join("dir"));
        root
    }

    fn options<'a>(&'a self, meter: &'a Meter) -> ImportOptions<'a> {
        ImportOptions { on_trouble: OnTrouble::KeepGoing, stat_cache: None, exclude: &self.exclude, meter }
    }

    fn look(&self, known: &[DirRef], from: Option<&LookPlace>, looks_max: usize) -> Looked {
        let (dir, meter) = (self.scratch.join("dir"), Meter::default());
        let from = from.map(|place| LookPlace::from_bytes(&place.to_bytes()).unwrap());
        let is_enough = |compared| compared >= looks_max;
        self.vault.look_for_changes(&dir, known, from.as_ref(), &is_enough, &self.options(&meter)).unwrap()
    }

    fn is_changed(&self, known: &[DirRef]) -> bool {
        self.is_changed_in(known, 2 * NAMES)
    }

    /// For a directory with at most this many names.
    fn is_changed_in(&self, known: &[DirRef], names: usize) -> bool {
        match self.look(known, None, names) {
            Looked::Unchanged => false,
            Looked::Changed(_) => true,
            Looked::Unfinished(place) => panic!("the directory is larger than expected: {place:?}"),
        }
    }

    /// All places at which looks of this size end.
    fn places(&self, known: &[DirRef], looks_max: usize) -> Vec<LookPlace> {
        let mut places: Vec<LookPlace> = Vec::new();
        loop {
            match self.look(known, places.last(), looks_max) {
                Looked::Unfinished(place) if places.contains(&place) => return places,
                Looked::Unfinished(place) => places.push(place),
                Looked::Unchanged => return places,
                Looked::Changed(place) => panic!("nothing changed at {place:?}"),
            }
        }
    }
}

#[test]
fn looks_of_any_size_find_a_change_from_any_place() {
    let bench = Bench::new();
    let known = [bench.import()];
    let places = bench.places(&known, 1);
    assert!(places.len() >= NAMES - 1, "{places:?}");
    for looks_max in 1..=NAMES {
        assert!(looks_max == NAMES || !bench.places(&known, looks_max).is_empty());
    }
    for file in FILES {
        let path = bench.scratch.join("dir").join(file);
        let before = fs::metadata(&path).unwrap().modified().unwrap();
        fs::write(&path, "changed by others").unwrap();
        for looks_max in 1..=NAMES {
            for place in [None].into_iter().chain(places.iter().map(Some)) {
                let mut place = place.cloned();
                let mut looks = 0;
                loop {
                    looks += 1;
                    match bench.look(&known, place.as_ref(), looks_max) {
                        Looked::Unfinished(next) => place = Some(next),
                        Looked::Changed(found) => {
                            let again = bench.look(&known, Some(&found), looks_max);
                            assert_eq!(again, Looked::Changed(found), "{file}, {looks_max} names");
                            break;
                        }
                        Looked::Unchanged => panic!("{file} is not found from {place:?}"),
                    }
                    assert!(looks <= NAMES.div_ceil(looks_max) + 1, "{file}, {looks_max} names: {place:?}");
                }
                assert!(looks == 1 || looks_max < NAMES, "{file} from {place:?}");
            }
        }
        fs::write(&path, file).unwrap();
        fs::File::open(&path).unwrap().set_modified(before).unwrap();
    }
    assert!(!bench.is_changed(&known));
}

#[test]
fn every_kind_of_change_is_found() {
    let bench = Bench::new();
    let dir = bench.scratch.join("dir");
    symlink("a", dir.join("link")).unwrap();
    fs::create_dir(dir.join("empty")).unwrap();
    let mode = |path: &str, mode| {
        fs::set_permissions(dir.join(path), fs::Permissions::from_mode(mode)).unwrap();
    };
    for file in FILES {
        mode(file, 0o644);
    }
    for path in ["d/deep", "empty"] {
        mode(path, 0o755);
    }
    let known = [bench.import()];
    let is_changed = || bench.is_changed(&known);
    assert!(!is_changed());
    let moved = |from: &str, to: &str| fs::rename(dir.join(from), dir.join(to)).unwrap();
    type Step<'a> = (&'a str, &'a dyn Fn(), &'a dyn Fn());
    let steps: [Step<'_>; 9] = [
        ("a new file", &|| fs::write(dir.join("z/new"), "").unwrap(), &|| {
            fs::remove_file(dir.join("z/new")).unwrap();
        }),
        ("a new directory", &|| fs::create_dir(dir.join("z/new")).unwrap(), &|| {
            fs::remove_dir(dir.join("z/new")).unwrap();
        }),
        ("a removed file", &|| moved("d/deep/a", "../kept"), &|| moved("../kept", "d/deep/a")),
        ("a removed directory", &|| moved("empty", "../kept"), &|| moved("../kept", "empty")),
        ("a mode", &|| mode("m", 0o600), &|| mode("m", 0o644)),
        ("the mode of a directory", &|| mode("d/deep", 0o700), &|| mode("d/deep", 0o755)),
        ("a symlink", &|| moved("link", "../kept"), &|| moved("../kept", "link")),
        (
            "a file instead of a directory",
            &|| {
                moved("d/deep", "../kept");
                fs::write(dir.join("d/deep"), "").unwrap();
            },
            &|| {
                fs::remove_file(dir.join("d/deep")).unwrap();
                moved("../kept", "d/deep");
            },
        ),
        (
            "a directory instead of a file",
            &|| {
                moved("a", "../kept");
                fs::create_dir(dir.join("a")).unwrap();
            },
            &|| {
                fs::remove_dir(dir.join("a")).unwrap();
                moved("../kept", "a");
            },
        ),
    ];
    for (what, change, revert) in steps {
        change();
        assert!(is_changed(), "{what}");
        revert();
        assert!(!is_changed(), "{what} is reverted");
    }
}

#[test]
fn unversioned_paths_are_no_change() {
    let mut bench = Bench::new();
    bench.exclude = vec!["excluded".to_owned()];
    let dir = bench.scratch.join("dir");
    fs::write(dir.join("z/.avfsignore"), "*.o\n/out/\n.avfsignore\n").unwrap();
    support::settle();
    let known = [bench.import()];
    assert!(!bench.is_changed(&known));
    fs::create_dir_all(dir.join("z/out/deep")).unwrap();
    fs::write(dir.join("z/out/deep/new"), "").unwrap();
    fs::write(dir.join("z/a/new.o"), "").unwrap();
    fs::create_dir(dir.join("d/excluded")).unwrap();
    fs::create_dir(dir.join(".avfs")).unwrap();
    std::os::unix::net::UnixListener::bind(dir.join("socket")).unwrap();
    assert!(!bench.is_changed(&known));
    // The control: the same names elsewhere.
    fs::write(dir.join("d/new.o"), "").unwrap();
    assert!(bench.is_changed(&known));
    fs::remove_file(dir.join("d/new.o")).unwrap();
    // Files that are versioned and become unversioned later are no change either.
    bench.exclude.push("deep".to_owned());
    fs::write(dir.join("d/deep/er/a"), "changed by others").unwrap();
    assert!(!bench.is_changed(&known));
}

#[test]
fn each_path_can_be_as_in_any_known_version() {
    let bench = Bench::new();
    let dir = bench.scratch.join("dir");
    let before = bench.import();
    fs::write(dir.join("a"), "second a").unwrap();
    fs::write(dir.join("d/new"), "new").unwrap();
    fs::rename(dir.join("z"), bench.scratch.join("kept")).unwrap();
    let after = bench.import();
    assert!(bench.is_changed(&[before]) && !bench.is_changed(&[after]));
    // A part of the changes, as after an apply of some paths.
    fs::rename(bench.scratch.join("kept"), dir.join("z")).unwrap();
    assert!(bench.is_changed(&[before]) && bench.is_changed(&[after]));
    assert!(!bench.is_changed(&[before, after]) && !bench.is_changed(&[after, before]));
    fs::write(dir.join("z/b"), "changed by others").unwrap();
    assert!(bench.is_changed(&[before, after]));
}

/// Listing it would make each run on a fork slower.
#[test]
fn the_content_of_a_directory_with_many_names_is_not_compared() {
    let bench = Bench::new();
    let wide = bench.scratch.join("dir/wide");
    fs::create_dir_all(wide.join("in")).unwrap();
    fs::write(wide.join("in/file"), "").unwrap();
    let import_with = |files: std::ops::Range<usize>| {
        files.for_each(|number| fs::write(wide.join(number.to_string()), "").unwrap());
        [bench.import()]
    };
    let few = import_with(0..500);
    fs::write(wide.join("in/file"), "changed by others").unwrap();
    // The control.
    assert!(bench.is_changed_in(&few, 1000));
    // Too many on the host, then also in the version.
    (500..5000).for_each(|number| fs::write(wide.join(number.to_string()), "").unwrap());
    fs::write(bench.scratch.join("dir/wide/in/file"), "").unwrap();
    assert!(!bench.is_changed_in(&few, 1000));
    let many = import_with(0..1);
    fs::write(wide.join("in/file"), "changed by others").unwrap();
    fs::remove_file(wide.join("7")).unwrap();
    assert!(!bench.is_changed_in(&many, 1000));
    fs::write(bench.scratch.join("dir/a"), "changed by others").unwrap();
    assert!(bench.is_changed_in(&many, 1000));
}
