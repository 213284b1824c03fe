//! Tried: redirecting what the user's own avfs writes: a command that can write the directory of an export, a report or
//! the user's configuration leaves a symlink there, or swaps a directory while avfs works in it.
//! Stopped by: the way to a destination is resolved once, without the symlinks of others; then only descriptors are
//! used, and a name is renamed or removed, and metadata is set, only while it is the same file.

use std::io::Write;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::env::{Answer, Running, TestEnv, avfs};
use crate::support::is_root;
use crate::support::pause::Pauses;

/// A directory that a command can write, and one that it cannot.
struct Dirs {
    env: TestEnv,
    out: PathBuf,
    victim: PathBuf,
}

impl Dirs {
    fn new() -> Self {
        let env = TestEnv::with_project();
        env.avfs(&["import"]).expect(0);
        let (out, victim) = (env.at("out"), env.at("victim"));
        for dir in [&out, &victim] {
            std::fs::create_dir(dir).unwrap();
        }
        std::fs::write(victim.join("precious"), "precious").unwrap();
        Self { env, out, victim }
    }

    /// A path in the directory that the command can write.
    fn at(&self, name: &str) -> String {
        self.out.join(name).to_str().unwrap().to_owned()
    }

    /// Runs a line as a command that can write `$OUT`, and knows the path `$VICTIM`.
    #[track_caller]
    fn hostile(&self, line: &str) {
        let (out, victim) = (self.out.to_str().unwrap(), self.victim.to_str().unwrap());
        let sets = [format!("OUT={out}"), format!("VICTIM={victim}")];
        let words = ["--discard", "--rw", out, "--env", &sets[0], "--env", &sets[1], "--shell", line];
        self.env.run(&words).expect(0);
    }

    fn avfs(&self, words: &[&str]) -> Command {
        let mut command = self.env.clean(&avfs());
        command.args(words);
        command
    }

    /// Runs `avfs`, and a line of a hostile command when it is at a pause point.
    #[track_caller]
    fn swapped(&self, words: &[&str], point: &str, line: &str) -> Answer {
        let pauses = Pauses::new(&self.env.at(""));
        pauses.hold(point);
        let mut running = Running::start(pauses.set(&mut self.avfs(words)));
        pauses.wait(point, &mut running.child);
        self.hostile(line);
        pauses.release(point);
        running.answer()
    }

    /// The control: a program that works by path does the first part, waits for the same line, and does the second.
    #[track_caller]
    fn control(&self, first: &str, line: &str, second: &str) {
        let program = format!("import os, sys\n{first}\nprint(flush=True)\nsys.stdin.readline()\n{second}");
        let mut python = self.env.clean(Path::new("python3"));
        python.args(["-c", &program]).current_dir(&self.out).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = python.spawn().unwrap();
        let mut ready = [0];
        std::io::Read::read_exact(child.stdout.as_mut().unwrap(), &mut ready).unwrap();
        self.hostile(line);
        child.stdin.take().unwrap().write_all(b"\n").unwrap();
        assert!(child.wait().unwrap().success());
    }

    fn victims(&self) -> Vec<String> {
        let listed = std::fs::read_dir(&self.victim).unwrap();
        let mut names: Vec<String> =
            listed.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
        names.sort();
        names
    }

    #[track_caller]
    fn assert_untouched(&self) {
        assert_eq!(self.victims(), ["precious"]);
        assert_eq!(std::fs::read_to_string(self.victim.join("precious")).unwrap(), "precious");
    }

    /// The control has changed it: puts it back.
    #[track_caller]
    fn assert_touched(&self) {
        assert_ne!(self.victims(), ["precious"], "the control failed");
        std::fs::remove_dir_all(&self.victim).unwrap();
        std::fs::create_dir(&self.victim).unwrap();
        std::fs::write(self.victim.join("precious"), "precious").unwrap();
    }
}

fn refusal(answer: &Answer) -> (String, String) {
    let value: serde_json::Value = serde_json::from_slice(&answer.stdout).unwrap();
    let text = |key: &str| value["error"][key].as_str().unwrap_or_default().to_owned();
    (text("code"), text("hint"))
}

#[test]
fn symlink_as_a_destination_is_refused_with_its_real_path() {
    let dirs = Dirs::new();
    dirs.hostile("ln -s $VICTIM $OUT/link; ln -s $VICTIM/new $OUT/dangling; ln -s ../new $OUT/above");
    // Control: by path, both lead to the victim.
    let copy = format!("cp -r . {0}/link/copy && cp -r . {0}/dangling", dirs.out.display());
    let mut shell = dirs.env.clean(Path::new("/bin/sh"));
    Running::start(shell.args(["-c", &copy])).answer();
    dirs.assert_touched();
    let victim = dirs.victim.to_str().unwrap();
    for (name, real) in [
        ("link", victim.to_owned()),
        ("link/copy", format!("{victim}/copy")),
        ("dangling", format!("{victim}/new")),
        ("link/../copy", dirs.env.at("copy").to_str().unwrap().to_owned()),
        ("above", dirs.env.at("new").to_str().unwrap().to_owned()),
    ] {
        for overwrite in [&[][..], &["--overwrite"]] {
            let dest = dirs.at(name);
            let words = [&["--json", "export", "main", &dest][..], overwrite].concat();
            let answer = Running::start(&mut dirs.avfs(&words)).answer().expect(1);
            assert_eq!(
                refusal(&answer),
                ("export.symlink".to_owned(), format!("name the real path: {real}"))
            );
        }
    }
    dirs.assert_untouched();
    // The same directory by its real path.
    dirs.env.avfs(&["export", "main", &format!("{victim}/copy")]).expect(0);
    assert!(dirs.victim.join("copy/src/main.rs").exists());
}

#[test]
fn swapped_staging_directory_is_not_written() {
    for dest in ["new", "."] {
        let dirs = Dirs::new();
        // The name of the staging directory, found by the hostile command.
        let line = "cd $OUT; name=$(echo .avfs-export-*); mv $name moved; ln -s $VICTIM $name";
        dirs.control("os.mkdir('.avfs-export-1')", line, "open('.avfs-export-1/file', 'w')");
        dirs.assert_touched();
        std::fs::remove_dir_all(&dirs.out).unwrap();
        std::fs::create_dir(&dirs.out).unwrap();
        let words = ["export", "main", &dirs.at(dest), "--overwrite"];
        // It makes another one.
        dirs.swapped(&words, "staging-made", line).expect(0);
        dirs.assert_untouched();
        assert!(dirs.out.join(dest).join("src/main.rs").exists());
        // Nor a directory with files, which would be published with the export.
        std::fs::remove_dir_all(&dirs.out).unwrap();
        std::fs::create_dir(&dirs.out).unwrap();
        let line = "cd $OUT; name=$(echo .avfs-export-*); mv $name moved; mkdir $name; echo > $name/planted";
        dirs.swapped(&words, "staging-made", line).expect(0);
        assert!(!dirs.out.join(dest).join("planted").exists());
    }
}

#[test]
fn swapped_parent_does_not_redirect_an_export() {
    let dirs = Dirs::new();
    let line = "cd $OUT; mv sub moved; ln -s $VICTIM sub";
    let again = "cd $OUT; rm sub; mv moved sub; rm -rf sub/*";
    std::fs::create_dir(dirs.out.join("sub")).unwrap();
    dirs.control(
        "os.mkdir('sub/staged')",
        line,
        "os.mkdir('sub/staged'); os.rename('sub/staged', 'sub/copy')",
    );
    dirs.assert_touched();
    for (dest, point) in
        [("sub/copy", "staging-made"), ("sub/copy", "publish"), ("sub", "staging-made"), ("sub", "rename")]
    {
        dirs.hostile(again);
        dirs.swapped(&["export", "main", &dirs.at(dest)], point, line).expect(0);
        dirs.assert_untouched();
        let there = dirs.out.join(dest.replace("sub", "moved")).join("src/main.rs");
        assert!(there.exists(), "{dest} at {point}");
    }
}

#[test]
fn only_the_staged_directory_is_published() {
    let dirs = Dirs::new();
    std::fs::create_dir(dirs.out.join("other")).unwrap();
    std::fs::write(dirs.out.join("other/planted"), "").unwrap();
    let line = "cd $OUT; name=$(echo .avfs-export-*); mv $name moved; mv other $name";
    dirs.control("os.mkdir('.avfs-export-1')", line, "os.rename('.avfs-export-1', 'copy')");
    assert!(dirs.out.join("copy/planted").exists(), "the control failed");
    dirs.hostile("cd $OUT; mv copy other; rm -r moved");
    let answer = dirs.swapped(&["export", "main", &dirs.at("copy")], "publish", line).expect(1);
    assert!(answer.stderr.contains("was moved or replaced by another process"), "{answer:?}");
    assert!(!dirs.out.join("copy").exists());
    // The other directory keeps its files, although it has the name of the staging directory.
    let kept = std::fs::read_dir(&dirs.out).unwrap().flatten();
    assert!(kept.filter(|entry| entry.path().join("planted").exists()).count() == 1);
}

#[test]
fn removal_of_a_failed_export_does_not_empty_another_directory() {
    let dirs = Dirs::new();
    let line = "cd $OUT; name=$(echo .avfs-export-*); mv $name moved; ln -s $VICTIM $name";
    let empty = "for name in os.listdir('.avfs-export-1'): os.unlink('.avfs-export-1/' + name)";
    dirs.control("os.mkdir('.avfs-export-1')", line, empty);
    dirs.assert_touched();
    dirs.hostile("cd $OUT; rm -rf .avfs-export-1 moved");
    let pauses = Pauses::new(&dirs.env.at(""));
    pauses.hold("publish").hold("remove-tree");
    let mut running = Running::start(pauses.set(&mut dirs.avfs(&["export", "main", &dirs.at("copy")])));
    pauses.wait("publish", &mut running.child);
    // The export fails because its name is taken.
    dirs.hostile("mkdir $OUT/copy; echo > $OUT/copy/file");
    pauses.release("publish");
    pauses.wait("remove-tree", &mut running.child);
    dirs.hostile(line);
    pauses.release("remove-tree");
    running.answer().expect(1);
    dirs.assert_untouched();
}

/// The vault is elsewhere, so the command can write the directory while its changes are applied.
#[test]
fn swapped_directory_does_not_redirect_an_apply() {
    let dirs = Dirs::new();
    let (work, vault) = (dirs.out.join("work"), dirs.env.at("v.db"));
    std::fs::create_dir(&work).unwrap();
    let vault = ["--vault", vault.to_str().unwrap()];
    let run = |words: &[&str]| dirs.env.avfs(&[&vault[..], words].concat());
    run(&["init", work.to_str().unwrap(), "--import"]).expect(0);
    run(&["fork", "create", "f"]).expect(0);
    let line = "cd $OUT; mv work moved; ln -s $VICTIM work";
    let swap_staged = "cd $OUT/work; name=$(echo .avfs-export-*); mv $name ../staged; ln -s $VICTIM $name";
    let back = "cd $OUT; rm -rf work/.avfs-export-* staged; if test -L work; then rm work; mv moved work; fi";
    dirs.control("os.mkdir('work/.staged')", line, "open('work/file', 'w')");
    dirs.assert_touched();
    for (file, point, line) in [
        ("one", "staging-made", swap_staged),
        ("two", "staging-made", line),
        ("three", "check-again", line),
        ("four", "rename", line),
    ] {
        dirs.hostile(back);
        run(&["write", file, "--text", "new", "--fork", "f"]).expect(0);
        dirs.swapped(&[&vault[..], &["apply", "f"]].concat(), point, line).expect(0);
        dirs.assert_untouched();
        let there = if line == swap_staged { "work" } else { "moved" };
        assert!(dirs.out.join(there).join(file).exists(), "{file}");
    }
    // A symlink that is there before the apply.
    run(&["write", "five", "--text", "new", "--fork", "f"]).expect(0);
    let answer = run(&["--json", "apply", "f"]).expect(1);
    assert_eq!(refusal(&answer).0, "apply.symlink");
    dirs.assert_untouched();
}

/// A directory and a file that only their owner can use, next to those that are written.
struct Private(PathBuf);

impl Private {
    fn new(dir: &Path) -> Self {
        let made = Self(dir.to_owned());
        std::fs::create_dir(dir.join("private")).unwrap();
        std::fs::write(dir.join("private/key"), "precious").unwrap();
        std::fs::write(dir.join("secret"), "precious").unwrap();
        made.set("private", 0o500);
        made.set("secret", 0o600);
        made
    }

    fn set(&self, name: &str, mode: u32) {
        std::fs::set_permissions(self.0.join(name), PermissionsExt::from_mode(mode)).unwrap();
    }

    /// Fails unless it is unchanged under its new name; gives it its own name again.
    #[track_caller]
    fn assert_unchanged(&self, name: &str, mode: u32, new_name: &str) {
        let (at, moved) = (self.0.join(name), self.0.join(new_name));
        let found = moved.metadata().unwrap();
        assert_eq!(found.permissions().mode() & 0o7777, mode, "{}", moved.display());
        if found.is_dir() {
            let names = std::fs::read_dir(&moved).unwrap().map(|entry| entry.unwrap().file_name());
            assert_eq!(names.collect::<Vec<_>>(), ["key"]);
        }
        std::fs::rename(moved, at).unwrap();
    }
}

#[test]
fn export_does_not_change_a_directory_that_is_swapped_in() {
    let dirs = Dirs::new();
    std::fs::create_dir(dirs.out.join("src")).unwrap();
    let private = Private::new(&dirs.out);
    let line = "cd $OUT; mv src moved; mv private src";
    dirs.control("", line, "os.chmod('src', 0o755)");
    assert_eq!(dirs.out.join("src").metadata().unwrap().permissions().mode() & 0o777, 0o755);
    private.set("src", 0o500);
    private.assert_unchanged("private", 0o500, "src");
    for (point, file) in [("rename", "src/main.rs"), ("remove-tree", "README.md")] {
        // As the caller who exports again would.
        dirs.hostile("cd $OUT; mv moved src");
        let words = ["export", "main", dirs.out.to_str().unwrap(), "--overwrite"];
        let answer = dirs.swapped(&words, point, line).expect(1);
        assert!(answer.stderr.contains("src was moved or replaced by another process"), "{answer:?}");
        assert_eq!(dirs.out.join(file).exists(), point == "remove-tree", "{point}");
        private.assert_unchanged("private", 0o500, "src");
    }
    // Control: nothing is swapped.
    dirs.hostile("cd $OUT; mv moved src");
    dirs.env.avfs(&["export", "main", dirs.out.to_str().unwrap(), "--overwrite"]).expect(0);
    assert!(dirs.out.join("src/main.rs").exists());
}

#[test]
fn apply_does_not_change_a_file_that_is_swapped_in() {
    for (change, point, swapped, (name, mode)) in [
        ("chmod 755 file", "apply-step", "file", ("secret", 0o600)),
        ("chmod 755 dir", "apply-step", "dir", ("private", 0o500)),
        // Its owner makes it writable before it is removed.
        ("echo x > new; chmod 700 closed; rmdir closed", "rename", "closed", ("private", 0o500)),
    ] {
        let dirs = Dirs::new();
        let (work, vault) = (dirs.out.join("work"), dirs.env.at("v.db"));
        std::fs::create_dir(&work).unwrap();
        let private = Private::new(&work);
        std::fs::write(work.join("file"), "").unwrap();
        for dir in ["dir", "closed"] {
            std::fs::create_dir(work.join(dir)).unwrap();
        }
        private.set("dir", 0o700);
        private.set("closed", 0o500);
        let vault = ["--vault", vault.to_str().unwrap()];
        let init = [&vault[..], &["init", work.to_str().unwrap(), "--import"]].concat();
        dirs.env.avfs(&init).expect(0);
        let run = [&vault[..], &["--fork", "f", "--shell", change]].concat();
        Running::start(dirs.env.command(&run).current_dir(&work)).answer().expect(0);
        let time = || work.join(name).metadata().unwrap().modified().unwrap();
        let before = time();
        let line = format!("cd $OUT/work; mv {swapped} moved; mv {name} {swapped}");
        let answer = dirs.swapped(&[&vault[..], &["apply", "f"]].concat(), point, &line);
        private.assert_unchanged(name, mode, swapped);
        assert_eq!(time(), before, "{change}");
        if answer.code == Some(0) {
            // Root needs no mode to remove a name, and leaves a directory that is not empty.
            assert!(is_root() && swapped == "closed", "{answer:?}");
            continue;
        }
        assert!(answer.stderr.contains("was moved or replaced by another process"), "{answer:?}");
        // Control: nothing is swapped.
        std::fs::rename(work.join("moved"), work.join(swapped)).unwrap();
        dirs.env.avfs(&[&vault[..], &["apply", "f"]].concat()).expect(0);
        let found = work.join(swapped).metadata().ok().map(|found| found.permissions().mode() & 0o777);
        assert_eq!(found, (swapped != "closed").then_some(0o755));
    }
}

/// Each command that writes a report to a path that it is given.
fn reports(path: &str, list: &str) -> [Vec<String>; 5] {
    let words = |words: &[&str]| words.iter().map(|word| (*word).to_owned()).collect();
    [
        words(&["batch", list, "--results", path]),
        words(&["batch", list, "--junit", path]),
        words(&["batch", list, "--summary", path]),
        words(&["replay", list, "--results", path]),
        words(&["record", "export", "..", "--output", path]),
    ]
}

#[test]
fn report_is_not_written_through_a_symlink() {
    let dirs = Dirs::new();
    let list = dirs.env.at("list.jsonl");
    std::fs::write(&list, "{\"command\": [\"true\"]}\n").unwrap();
    let list = list.to_str().unwrap();
    let line = "ln -s $VICTIM/report $OUT/report; ln -s $VICTIM $OUT/dir";
    dirs.hostile(line);
    // Control: by path, the victim is written.
    std::fs::write(dirs.out.join("report"), "").unwrap();
    std::fs::write(dirs.out.join("dir/other"), "").unwrap();
    dirs.assert_touched();
    for name in ["report", "dir/report"] {
        for words in reports(&dirs.at(name), list) {
            let mut command = dirs.avfs(&["--json"]);
            let answer = Running::start(command.args(&words)).answer().expect(1);
            let real = dirs.victim.join("report");
            let hint = format!("name the real path: {}", real.display());
            assert_eq!(refusal(&answer), ("host.symlink".to_owned(), hint), "{words:?}");
            dirs.assert_untouched();
        }
    }
    // Control: the same commands write a file.
    for (number, words) in reports(&dirs.at("file"), list).into_iter().enumerate() {
        Running::start(dirs.avfs(&[]).args(&words)).answer().expect(0);
        assert!(std::fs::remove_file(dirs.out.join("file")).is_ok(), "{number}");
    }
}

#[test]
fn swapped_directory_does_not_redirect_a_report() {
    let dirs = Dirs::new();
    let line = "cd $OUT; mv sub moved; ln -s $VICTIM sub";
    std::fs::create_dir(dirs.out.join("sub")).unwrap();
    dirs.control("open('sub/.new', 'w')", line, "open('sub/.new', 'w'); os.rename('sub/.new', 'sub/report')");
    dirs.assert_touched();
    dirs.hostile("cd $OUT; rm sub; mv moved sub");
    dirs.swapped(&["record", "export", "..", "--output", &dirs.at("sub/report")], "publish", line).expect(0);
    dirs.assert_untouched();
    assert!(dirs.out.join("moved/report").exists());
    // A command of the batch itself swaps the directory of a report that is written at the end.
    dirs.hostile("cd $OUT; rm sub; mv moved sub");
    let list = dirs.env.at("list.jsonl");
    let (out, victim) = (dirs.out.to_str().unwrap(), dirs.victim.to_str().unwrap());
    let swap = serde_json::json!({ "command": format!("cd {out} && mv sub moved && ln -s {victim} sub") });
    std::fs::write(&list, format!("{swap}\n")).unwrap();
    let words = ["batch", list.to_str().unwrap(), "--rw", out, "--junit", &dirs.at("sub/junit")];
    Running::start(&mut dirs.avfs(&words)).answer().expect(0);
    dirs.assert_untouched();
    assert!(dirs.out.join("moved/junit").exists());
}

/// Files of avfs in the user's home. A command of root can make links in root's directories.
#[test]
fn configuration_is_not_written_through_a_symlink() {
    let dirs = Dirs::new();
    let (config, data, victim) = (dirs.env.at("config"), dirs.env.at("data"), &dirs.victim);
    let link = |at: &Path, to: &Path| {
        std::fs::remove_dir_all(at).unwrap();
        std::os::unix::fs::symlink(to, at).unwrap();
    };
    // The list of trusted vaults.
    link(&data.join("avfs"), victim);
    std::fs::create_dir(dirs.env.at("second")).unwrap();
    let second = dirs.env.at("second");
    let init = || {
        let mut command = dirs.avfs(&["--json", "init"]);
        command.current_dir(&second);
        Running::start(&mut command).answer()
    };
    let answer = init().expect(1);
    assert_eq!(refusal(&answer).0, "vault.trust_list", "{answer:?}");
    assert!(refusal(&answer).1.contains(victim.to_str().unwrap()), "{answer:?}");
    dirs.assert_untouched();
    // Control: in a directory it is written.
    std::fs::remove_file(data.join("avfs")).unwrap();
    init().expect(0);
    assert!(data.join("avfs/trusted-vaults").exists());
    // The policy.
    std::fs::write(config.join("avfs/policy.toml"), "# mine\n").unwrap();
    dirs.env.avfs(&["vault", "trust"]).expect(0);
    let ask = || {
        let answer =
            dirs.env.run(&["--json", "--", "git", "fetch", "https://example.org"]).expect(120).envelope();
        answer["decision"]["approval_id"].as_str().unwrap_or_else(|| panic!("{answer}")).to_owned()
    };
    let policy = config.join("avfs/policy.toml");
    std::fs::rename(&policy, victim.join("policy.toml")).unwrap();
    std::os::unix::fs::symlink(victim.join("policy.toml"), &policy).unwrap();
    let before = std::fs::read(&policy).unwrap();
    let id = ask();
    let answer = dirs.env.avfs(&["--json", "approvals", "approve", &id, "--net", "host", "--always"]);
    assert_eq!(refusal(&answer.expect(1)).0, "policy.symlink");
    assert_eq!(std::fs::read(victim.join("policy.toml")).unwrap(), before);
    // The request is not answered either.
    assert_eq!(dirs.env.avfs_result(&["approvals", "show", &id])["state"], "pending");
    // Control: a file is replaced.
    std::fs::rename(victim.join("policy.toml"), &policy).unwrap();
    dirs.env.avfs(&["approvals", "approve", &id, "--net", "host", "--always"]).expect(0);
    assert!(std::fs::read(&policy).unwrap().len() > before.len());
}
