//! Files that contain the value of a secret are kept out of versions and layers, however it is encoded.

use std::fs;
use std::os::fd::AsFd;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use avfs_hostfs::beneath;
use avfs_types::ids::BlobId;
use avfs_types::renamed::RenamedNames;
use avfs_types::secrets::Secrets;
use avfs_vault::backend::ObjectKind;
use avfs_vault::capture::{CaptureOptions, LeftOutReason, UpperKind};
use avfs_vault::chunk::FILE_BYTES_MAX;
use avfs_vault::layers::{KeptUpper, NotKept};
use avfs_vault::materialize::BaseCache;
use avfs_vault::meter::Meter;
use avfs_vault::{Advance, Vault, When, content};

use crate::support::Scratch;
use crate::{overlay, support};

const VALUE: &str = "s3cr3t-v4lue-of-all";
const OTHER: &str = "an0ther-0ne-entirely";

fn secrets() -> Secrets {
    Secrets::new([("TOKEN".to_owned(), VALUE.as_bytes()), ("KEY".to_owned(), OTHER.as_bytes())])
}

/// A vault with a base, and the directory it was imported from.
struct Case {
    scratch: Scratch,
    vault: Vault,
    dir: PathBuf,
}

/// The paths that a capture left out, each with the name of the secret.
type LeftOut = Vec<(String, String)>;

impl Case {
    fn new(setup: &str) -> Self {
        let scratch = Scratch::new();
        let dir = scratch.dir("dir");
        overlay::in_dir(&dir, setup);
        let vault = support::create_vault(&scratch.join("vault.db"));
        support::import(&vault, &dir);
        Self { scratch, vault, dir }
    }

    /// Captures and commits the changes of a script, and keeps the upper if the kind has one.
    #[track_caller]
    fn run(&self, kind: UpperKind, script: &str, secrets: &Secrets) -> (LeftOut, Option<KeptUpper>) {
        let base = support::root(&self.vault, "main");
        let cache = BaseCache::new(&self.scratch.join("cache"), "boot");
        let stack = self.vault.stack(&base, &cache, &Meter::default()).unwrap();
        let upper = self.scratch.join("upper");
        match kind {
            UpperKind::Layer => {
                fs::create_dir(&upper).unwrap();
                let fd = beneath::open_root(&upper).unwrap();
                self.vault.prepare_upper(fd.as_fd(), &base).unwrap();
                overlay::overlay(&self.scratch, &stack.dirs, &upper, script, None).unwrap();
            }
            UpperKind::Whole => {
                support::export(&self.vault, "main", &upper);
                overlay::in_dir(&upper, script);
            }
        }
        let fd = beneath::open_root(&upper).unwrap();
        let options = CaptureOptions {
            kind,
            exclude: &[],
            hidden: &[],
            file_bytes_max: FILE_BYTES_MAX,
            secrets,
            times: avfs_vault::capture::Times::AsWritten,
            since: avfs_types::clock::FileTime::default(),
            renamed: &RenamedNames::default(),
            modes_journal: &self.scratch.join("modes"),
            meter: &Meter::default(),
        };
        let captured = self.vault.capture(fd.as_fd(), &base, &options).unwrap();
        let (left_out, size) = (captured.left_out.clone(), captured.footprint());
        let head = self.vault.fork(&support::main_fork()).unwrap().head;
        let advance = Advance { action: "run.capture", message: "run", run: None, when: When::Changed };
        self.vault.commit_captured(&support::main_fork(), &head, captured, &advance).unwrap();
        let kept = (kind == UpperKind::Layer).then(|| {
            let tree = support::root(&self.vault, "main");
            cache.keep_upper(&stack, &upper, (&left_out, &Default::default()), size, &tree).unwrap()
        });
        if upper.exists() {
            avfs_hostfs::remove::remove_tree(&upper).unwrap();
        }
        let listed = left_out.iter().map(|left| match &left.reason {
            LeftOutReason::Secret(name) => (left.path.to_string(), name.clone()),
            LeftOutReason::SecretAttribute(name) => (left.path.to_string(), format!("attribute {name}")),
            LeftOutReason::Special(_)
            | LeftOutReason::Ignored
            | LeftOutReason::Excluded
            | LeftOutReason::Hidden
            | LeftOutReason::Own
            | LeftOutReason::NoPermission
            | LeftOutReason::TooLarge { .. }
            | LeftOutReason::TooDeep
            | LeftOutReason::Attribute(_) => panic!("{}: {}", left.path, left.reason),
        });
        (listed.collect(), kept)
    }

    /// The content of all stored objects, referenced or not.
    fn stored(&self) -> Vec<Vec<u8>> {
        let reader = self.vault.read().unwrap();
        let rows = reader.objects_before(ObjectKind::Blob, i64::MAX, 100_000).unwrap();
        let blobs = rows.iter().map(|(_, id)| content::fetch(&*reader, &BlobId(*id)).unwrap());
        // Chunk lists are not content.
        blobs.filter_map(|blob| content::decode(blob).ok()).collect()
    }

    #[track_caller]
    fn assert_nowhere(&self) {
        let secrets = secrets();
        assert!(self.stored().iter().all(|bytes| secrets.held_by(bytes).is_none()), "a value is stored");
        for file in ["vault.db", "vault.db-wal"] {
            let bytes = fs::read(self.scratch.join(file)).unwrap_or_default();
            assert_eq!(secrets.held_by(&bytes), None, "a value is in {file}");
        }
        let mut dirs = vec![self.scratch.join("cache")];
        while let Some(dir) = dirs.pop() {
            for entry in fs::read_dir(dir).unwrap() {
                let path = entry.unwrap().path();
                assert_eq!(secrets.held_by(path.as_os_str().as_encoded_bytes()), None, "{}", path.display());
                let kind = path.symlink_metadata().unwrap().file_type();
                if kind.is_dir() {
                    dirs.push(path);
                } else if kind.is_file() {
                    assert_eq!(secrets.held_by(&fs::read(&path).unwrap()), None, "{}", path.display());
                }
            }
        }
        support::assert_clean(&self.vault);
    }

    /// The files of the version, and the files that the next run sees.
    #[track_caller]
    fn shown(&self) -> (PathBuf, PathBuf) {
        let (version, seen) = (self.scratch.join("version"), self.scratch.join("seen"));
        for dir in [&version, &seen] {
            if dir.exists() {
                avfs_hostfs::remove::remove_tree(dir).unwrap();
            }
        }
        support::export(&self.vault, "main", &version);
        let cache = BaseCache::new(&self.scratch.join("cache"), "boot");
        let stack = self.vault.stack(&support::root(&self.vault, "main"), &cache, &Meter::default()).unwrap();
        overlay::show(&self.scratch, &stack.dirs, &seen);
        (version, seen)
    }
}

fn left_out(paths: &[(&str, &str)]) -> LeftOut {
    paths.iter().map(|(path, name)| ((*path).to_owned(), (*name).to_owned())).collect()
}

#[track_caller]
fn assert_text(dirs: &(PathBuf, PathBuf), file: &str, text: &str) {
    for dir in [&dirs.0, &dirs.1] {
        assert_eq!(fs::read_to_string(dir.join(file)).unwrap(), text, "{file} in {}", dir.display());
    }
}

#[track_caller]
fn assert_none(dirs: &(PathBuf, PathBuf), file: &str) {
    for dir in [&dirs.0, &dirs.1] {
        assert!(dir.join(file).symlink_metadata().is_err(), "{file} in {}", dir.display());
    }
}

const SETUP: &str = "mkdir d; echo old >changed; echo old >d/deep; echo same >same; ln -s same link";

fn script() -> String {
    let hex: String = VALUE.bytes().map(|byte| format!("{byte:02x}")).collect();
    format!(
        "echo 'a {VALUE} b' >new; echo {OTHER} >changed; echo fine >d/fine; printf %s {VALUE} | base64 >d/encoded
         rm link; ln -s /tmp/{VALUE} link; echo x >named-{VALUE}; mkdir dir-{VALUE}; echo x >dir-{VALUE}/x
         echo {hex} >hex; ln new linked; echo short >s3cr3t"
    )
}

#[test]
fn files_with_a_secret_are_left_out_and_the_base_stays() {
    for kind in [UpperKind::Layer, UpperKind::Whole] {
        if !overlay::works("secrets::files_with_a_secret_are_left_out_and_the_base_stays") {
            return;
        }
        let case = Case::new(SETUP);
        let (left, kept) = case.run(kind, &script(), &secrets());
        let (dir, named) = (format!("dir-{VALUE}"), format!("named-{VALUE}"));
        let expected = left_out(&[
            ("changed", "KEY"),
            ("d/encoded", "TOKEN"),
            (&dir, "TOKEN"),
            ("hex", "TOKEN"),
            ("link", "TOKEN"),
            ("linked", "TOKEN"),
            (&named, "TOKEN"),
            ("new", "TOKEN"),
        ]);
        assert_eq!(left, expected, "{kind:?}");
        assert!(matches!(kept, None | Some(KeptUpper::Not(NotKept::HoldsMore))), "{kept:?}");
        case.assert_nowhere();
        let dirs = case.shown();
        assert_text(&dirs, "changed", "old\n");
        assert_text(&dirs, "d/fine", "fine\n");
        assert_text(&dirs, "s3cr3t", "short\n");
        assert_eq!(fs::read_link(dirs.0.join("link")).unwrap(), Path::new("same"));
        ["new", "linked", "hex", "d/encoded", &dir, &named].iter().for_each(|path| assert_none(&dirs, path));
        case.assert_nowhere();
        // Control: without the search everything is kept.
        let control = Case::new(SETUP);
        let (left, kept) = control.run(kind, &script(), &Secrets::default());
        assert_eq!(left, [], "{kind:?}");
        assert!(matches!(kept, None | Some(KeptUpper::Layer)), "{kept:?}");
        assert!(control.stored().iter().any(|bytes| secrets().held_by(bytes).is_some()));
        assert_text(&control.shown(), "new", &format!("a {VALUE} b\n"));
    }
}

#[test]
fn secrets_already_in_the_base_are_kept() {
    let setup = format!(
        "echo {VALUE} >known; echo {VALUE} >touched; ln -s {VALUE} link; mkdir dir-{OTHER}; echo 1 >dir-{OTHER}/x"
    );
    for kind in [UpperKind::Layer, UpperKind::Whole] {
        if !overlay::works("secrets::secrets_already_in_the_base_are_kept") {
            return;
        }
        let case = Case::new(&setup);
        let script = format!(
            "chmod 600 known; echo more >>touched; touch -h -d @5 link; echo 2 >dir-{OTHER}/x; echo 3 >dir-{OTHER}/y"
        );
        let (left, _) = case.run(kind, &script, &secrets());
        assert_eq!(left, left_out(&[("touched", "TOKEN")]), "{kind:?}");
        let dirs = case.shown();
        assert_text(&dirs, "known", &format!("{VALUE}\n"));
        assert_text(&dirs, "touched", &format!("{VALUE}\n"));
        assert_text(&dirs, &format!("dir-{OTHER}/y"), "3\n");
        assert_text(&dirs, &format!("dir-{OTHER}/x"), "2\n");
    }
}

#[test]
fn recreated_directory_keeps_the_base_of_left_out_files() {
    if !overlay::works("secrets::recreated_directory_keeps_the_base_of_left_out_files") {
        return;
    }
    let case = Case::new(SETUP);
    let script = format!(
        "rm -r d; mkdir d; echo {VALUE} >d/deep; echo new >d/new; rm same; mkdir same; echo {VALUE} >same/x"
    );
    let (left, _) = case.run(UpperKind::Layer, &script, &secrets());
    assert_eq!(left, left_out(&[("d/deep", "TOKEN"), ("same/x", "TOKEN")]));
    let dirs = case.shown();
    assert_text(&dirs, "d/deep", "old\n");
    assert_text(&dirs, "d/new", "new\n");
    assert!(dirs.0.join("same").is_dir() && dirs.1.join("same").is_dir());
    assert_none(&dirs, "same/x");
    case.assert_nowhere();
}

/// Files larger than a blob, with the value across the boundary of two reads, next to a hole, and absent.
#[test]
fn large_files_are_searched_before_anything_is_stored() {
    let case = Case::new("echo x >x");
    let upper = case.scratch.dir("made");
    let noise = support::noise(1, 6 << 20);
    for (name, at) in
        [("first", 0), ("border", (1 << 20) - 7), ("block", (16 << 10) - 3), ("last", (6 << 20) - 19)]
    {
        let mut bytes = noise.clone();
        bytes[at..at + VALUE.len()].copy_from_slice(VALUE.as_bytes());
        fs::write(upper.join(name), bytes).unwrap();
    }
    fs::write(upper.join("none"), &noise).unwrap();
    let sparse = fs::File::create(upper.join("sparse")).unwrap();
    sparse.set_len(64 << 20).unwrap();
    sparse.write_all_at(VALUE.as_bytes(), 40 << 20).unwrap();
    fs::File::create(upper.join("hollow")).unwrap().set_len(64 << 20).unwrap();
    let copy = format!("cp --sparse=always {}/* .", upper.display());
    let (left, _) = case.run(UpperKind::Whole, &copy, &secrets());
    let names = ["block", "border", "first", "last", "sparse"];
    assert_eq!(left, names.map(|name| (name.to_owned(), "TOKEN".to_owned())));
    case.assert_nowhere();
    let version = case.scratch.join("version");
    support::export(&case.vault, "main", &version);
    assert!(fs::read(version.join("none")).unwrap() == noise);
    assert_eq!(fs::metadata(version.join("hollow")).unwrap().len(), 64 << 20);
    // Again, with most of the content unchanged.
    let again = format!("cat none {}/border >both; chmod 600 none", upper.display());
    let (left, _) = case.run(UpperKind::Whole, &again, &secrets());
    assert_eq!(left, left_out(&[("both", "TOKEN")]));
    case.assert_nowhere();
    assert!(case.dir.exists());
}

#[test]
fn attributes_are_searched_too() {
    let case = Case::new("echo x >x");
    let upper = case.scratch.dir("upper");
    fs::create_dir(upper.join("d")).unwrap();
    for (file, name, value) in [
        ("by-value", "user.note".to_owned(), VALUE),
        ("by-name", format!("user.{VALUE}"), "x"),
        ("fine", "user.note".to_owned(), "fine"),
        ("d", "user.note".to_owned(), OTHER),
        ("d", "user.fine".to_owned(), "fine"),
    ] {
        let path = upper.join(file);
        if !path.exists() {
            fs::write(&path, "x").unwrap();
        }
        rustix::fs::setxattr(&path, &*name, value.as_bytes(), rustix::fs::XattrFlags::empty()).unwrap();
    }
    let base = support::root(&case.vault, "main");
    let secrets = secrets();
    let options = CaptureOptions {
        kind: UpperKind::Layer,
        exclude: &[],
        hidden: &[],
        file_bytes_max: FILE_BYTES_MAX,
        secrets: &secrets,
        times: avfs_vault::capture::Times::AsWritten,
        since: avfs_types::clock::FileTime::default(),
        renamed: &RenamedNames::default(),
        modes_journal: &case.scratch.join("modes"),
        meter: &Meter::default(),
    };
    let fd = beneath::open_root(&upper).unwrap();
    let captured = case.vault.capture(fd.as_fd(), &base, &options).unwrap();
    let listed: Vec<String> =
        captured.left_out.iter().map(|left| format!("{}: {}", left.path, left.reason)).collect();
    assert_eq!(
        listed,
        [
            "by-name: holds the value of the secret TOKEN",
            "by-value: holds the value of the secret TOKEN",
            "d: an attribute of it holds the value of the secret KEY",
        ]
    );
    let head = case.vault.fork(&support::main_fork()).unwrap().head;
    let advance = Advance { action: "run.capture", message: "run", run: None, when: When::Changed };
    case.vault.commit_captured(&support::main_fork(), &head, captured, &advance).unwrap();
    let version = case.scratch.join("version");
    support::export(&case.vault, "main", &version);
    let mut value = [0; 64];
    assert_eq!(rustix::fs::getxattr(version.join("d"), "user.fine", &mut value).unwrap(), 4);
    assert!(rustix::fs::getxattr(version.join("d"), "user.note", &mut value).is_err());
    assert!(version.join("fine").exists() && !version.join("by-value").exists());
    assert!(case.stored().iter().all(|bytes| secrets.held_by(bytes).is_none()));
}
