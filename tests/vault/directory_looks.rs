//! Comparing a part of a directory with known versions finds every change, and nothing else.

use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::Path;

use avfs_vault::Vault;
use avfs_vault::import::{ImportOptions, LOOK_STEPS_MAX, LookPlace, Looked, OnTrouble};
use avfs_vault::meter::Meter;
use avfs_vault::page::DirRef;

use crate::support;
use crate::support::Scratch;

const FILES: [&str; 12] =
    ["a", "d/a", "d/b", "d/deep/a", "d/deep/er/a", "d/deep/er/b", "d/z", "d.x/a", "m", "z/a/b", "z/b", "z.z"];
/// With the directories.
const NAMES: usize = FILES.len() + 6;
/// Each name is listed, and compared as an entry of a version.
const STEPS: usize = 2 * NAMES;

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

    fn look(&self, known: &[DirRef], from: Option<&LookPlace>, steps_max: usize) -> Looked {
        let (dir, meter) = (self.scratch.join("dir"), Meter::default());
        let from = from.map(|place| LookPlace::from_bytes(&place.to_bytes()).unwrap());
        let is_enough = |steps| steps >= steps_max;
        self.vault.look_for_changes(&dir, known, from.as_ref(), &is_enough, &self.options(&meter)).unwrap()
    }

    fn is_changed(&self, known: &[DirRef]) -> bool {
        match self.look(known, None, 2 * STEPS) {
            Looked::Unchanged => false,
            Looked::Changed(_) => true,
            Looked::Unfinished(place) => panic!("the directory is larger than expected: {place:?}"),
        }
    }

    /// All places at which looks of this size end.
    fn places(&self, known: &[DirRef], steps_max: usize) -> Vec<LookPlace> {
        let mut places: Vec<LookPlace> = Vec::new();
        loop {
            match self.look(known, places.last(), steps_max) {
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
    for steps_max in 1..=STEPS {
        assert!(steps_max == STEPS || !bench.places(&known, steps_max).is_empty());
    }
    for file in FILES {
        let path = bench.scratch.join("dir").join(file);
        let before = fs::metadata(&path).unwrap().modified().unwrap();
        fs::write(&path, "changed by others").unwrap();
        for steps_max in 1..=STEPS {
            for place in [None].into_iter().chain(places.iter().map(Some)) {
                let mut place = place.cloned();
                let mut looks = 0;
                loop {
                    looks += 1;
                    match bench.look(&known, place.as_ref(), steps_max) {
                        Looked::Unfinished(next) => place = Some(next),
                        Looked::Changed(found) => {
                            let again = bench.look(&known, Some(&found), steps_max);
                            assert_eq!(again, Looked::Changed(found), "{file}, {steps_max} steps");
                            break;
                        }
                        Looked::Unchanged => panic!("{file} is not found from {place:?}"),
                    }
                    assert!(looks <= STEPS.div_ceil(steps_max) + 1, "{file}, {steps_max} steps: {place:?}");
                }
                assert!(looks == 1 || steps_max < STEPS, "{file} from {place:?}");
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

#[test]
fn looks_find_each_change_in_a_directory_with_many_names() {
    /// More than a page of a version or a call to the kernel holds.
    const MANY: usize = 3000;
    let bench = Bench::new();
    let dir = bench.scratch.join("dir");
    for number in 0..MANY {
        let name = dir.join(format!("d/{number}"));
        if number % 10 == 0 { fs::create_dir(name) } else { fs::write(name, "") }.unwrap();
    }
    fs::write(dir.join("d/1230/inside"), "").unwrap();
    support::settle();
    let known = [bench.import()];
    // An unchanged list is not searched.
    assert_eq!(bench.look(&known, None, STEPS + MANY + 1), Looked::Unchanged);
    let is_changed = || {
        let mut place = None;
        for _ in 0..=(NAMES + MANY) * LOOK_STEPS_MAX / 100 {
            match bench.look(&known, place.as_ref(), 100) {
                Looked::Changed(_) => return true,
                Looked::Unchanged => return false,
                Looked::Unfinished(next) => place = Some(next),
            }
        }
        false
    };
    for name in ["d/1", "d/777", "d/2999", "d/1230/inside", "z/b"] {
        fs::rename(dir.join(name), bench.scratch.join("kept")).unwrap();
        assert!(is_changed(), "{name} is missing");
        fs::rename(bench.scratch.join("kept"), dir.join(name)).unwrap();
        let new = dir.join(name).with_extension("new");
        fs::write(&new, "").unwrap();
        assert!(is_changed(), "{new:?} is new");
        fs::remove_file(new).unwrap();
    }
    assert!(!is_changed());
}
