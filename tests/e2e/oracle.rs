//! The differential oracle: runs the same commands in the sandbox and in a plain directory and compares every bit.
//!
//! First the sandboxed runs, each of which must leave the host unchanged; then an export of their result; then the
//! same lines in the directory itself. Both happen at the same path, so that tools that write paths into their output
//! write the same ones.

use std::path::Path;

use rustix::fs::{AtFlags, CWD, Timespec, Timestamps, utimensat};

use crate::env::{Answer, Running, TestEnv};
use crate::support;
use crate::support::snapshot;
use crate::support::snapshot::Snapshot;

/// Later times were set by the clock during a test; earlier ones were chosen by the test.
const NOW_SECONDS: i64 = 1_700_000_000;

/// How the sandboxed side is run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Way<'a> {
    pub options: &'a [&'a str],
    pub runs: Runs,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Runs {
    /// All lines in one run without a fork.
    One,
    /// Each line in a separate run, on one fork.
    Each,
}

pub const WAYS: [Way<'static>; 9] = [
    Way { options: &[], runs: Runs::One },
    Way { options: &["--base", "live", "--scratch", "memory"], runs: Runs::One },
    Way { options: &["--base", "live", "--scratch", "disk"], runs: Runs::One },
    Way { options: &["--base", "cached", "--scratch", "memory"], runs: Runs::One },
    Way { options: &["--base", "cached", "--scratch", "disk"], runs: Runs::One },
    Way { options: &["--backend", "copy"], runs: Runs::One },
    Way { options: &["--fork", "work", "--scratch", "memory"], runs: Runs::Each },
    Way { options: &["--fork", "work", "--scratch", "disk"], runs: Runs::Each },
    Way { options: &["--fork", "work", "--backend", "copy"], runs: Runs::Each },
];
/// The ways that differ most, for tests that take long.
const FEW: [Way<'static>; 2] = [WAYS[0], WAYS[7]];

/// One comparison.
pub struct Trial<'a> {
    pub fixture: &'a dyn Fn(&TestEnv),
    pub lines: &'a [String],
    /// Files whose content includes inodes or times of the host: only their existence is compared.
    pub of_the_host: &'a [&'a str],
    pub ends: Ends,
}

/// How the lines end, on both sides.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ends {
    /// All lines succeed; a missing tool must not look like agreement.
    Well,
    /// The exit status does not matter.
    Somehow,
    /// Both sides have the same exit status and the same output.
    Alike,
}

impl Ends {
    const fn accepts(self, is_success: bool) -> bool {
        match self {
            Self::Well => is_success,
            Self::Somehow | Self::Alike => true,
        }
    }
}

/// The exit status and the output of a line.
#[derive(Debug, PartialEq, Eq)]
struct End {
    code: Option<i64>,
    signal: Option<i64>,
    stdout: String,
    stderr: String,
}

impl End {
    /// From the envelope of a run.
    fn inside(answer: &serde_json::Value) -> Self {
        let result = &answer["result"];
        let text = |field: &str| result[field].as_str().unwrap().to_owned();
        let [code, signal] = ["exit_code", "signal"].map(|field| result[field].as_i64());
        Self { code, signal, stdout: text("stdout"), stderr: text("stderr") }
    }

    fn outside(answer: &Answer) -> Self {
        let [code, signal] = [answer.code, answer.signal].map(|status| status.map(i64::from));
        Self { code, signal, stdout: answer.text(), stderr: answer.stderr.clone() }
    }
}

impl Trial<'_> {
    /// All differences between the sandboxed side and the plain one.
    pub fn differences(&self, way: Way<'_>) -> Vec<String> {
        let env = TestEnv::new();
        env.avfs(&["init"]).expect(0);
        (self.fixture)(&env);
        set_old_times(&env.project());
        let mut ends = Vec::new();
        let reference = match way.runs {
            Runs::One => {
                let answer = env.json(way.options, &self.lines.join("\n"));
                assert_eq!(answer["result"]["left_out"], serde_json::json!([]), "{way:?}: {answer}");
                self.check_end(&answer);
                ends.push(End::inside(&answer));
                let landed = answer["result"]["fork"].is_string();
                if landed {
                    format!("run:{}", answer["result"]["run_id"].as_str().unwrap())
                } else {
                    "main".to_owned()
                }
            }
            Runs::Each => {
                for line in self.lines {
                    let answer = env.json(way.options, line);
                    self.check_end(&answer);
                    ends.push(End::inside(&answer));
                }
                "work".to_owned()
            }
        };
        let export = env.export(&reference, "export");
        env.assert_sound();
        assert_eq!(env.scratches(), [""; 0], "{way:?}: a scratch was left behind");
        std::fs::create_dir(env.at("plain-home")).unwrap();
        let lines = match way.runs {
            Runs::One => &[self.lines.join("\n")],
            Runs::Each => self.lines,
        };
        let mut found = Vec::new();
        for (line, inside) in lines.iter().zip(ends) {
            // A line that hangs is killed with all processes it has started. Root has no capabilities inside, so it
            // must have none here: with them modes have no effect.
            let mut command = env.clean(Path::new("timeout"));
            command
                .args(["--signal=KILL", "240", "setpriv"])
                .args(["--bounding-set=-all", "--inh-caps=-all"].into_iter().filter(|_| support::is_root()));
            command
                .args(["--no-new-privs", "/bin/sh", "-c", line])
                .env("HOME", env.at("plain-home"))
                .env("TMPDIR", "/tmp");
            let answer = Running::start(&mut command).answer();
            let outside = End::outside(&answer);
            if self.ends == Ends::Alike {
                found.extend((inside != outside).then(|| format!("{line}: {outside:?} became {inside:?}")));
                continue;
            }
            assert_eq!(answer.signal, None, "{line}: {answer:?}");
            assert!(self.ends.accepts(answer.code == Some(0)), "{line}: {answer:?}");
        }
        let plain = self.comparable(&env.project());
        found.extend(snapshot::differences(&plain, &self.comparable(&export)));
        found
    }

    #[track_caller]
    fn check_end(&self, answer: &serde_json::Value) {
        assert!(answer["error"].is_null(), "{answer}");
        assert!(self.ends.accepts(answer["success"] == true), "{answer}");
    }

    fn comparable(&self, dir: &Path) -> Snapshot {
        comparable(dir, self.of_the_host)
    }

    #[track_caller]
    pub fn agrees(&self, ways: &[Way<'_>]) {
        for way in ways {
            let found = self.differences(*way);
            assert!(found.is_empty(), "{way:?}: {found:#?}");
        }
    }
}

/// The state of a directory without times set by the clock, and without the content of the files `of_the_host`.
pub fn comparable(dir: &Path, of_the_host: &[&str]) -> Snapshot {
    let mut taken = snapshot::take_without(dir, &[".avfs"]);
    for (path, fact) in &mut taken.facts {
        if fact.mtime.0 >= NOW_SECONDS {
            fact.mtime = (NOW_SECONDS, 0);
        }
        if of_the_host.iter().any(|left| left.as_bytes() == path) {
            fact.kind = snapshot::Kind::Other;
        }
    }
    taken
}

/// Gives each path in a directory a distinct old time, with nanoseconds.
pub fn set_old_times(dir: &Path) {
    let taken = snapshot::take_without(dir, &[".avfs"]);
    for (number, path) in (1..).zip(taken.facts.keys().rev()) {
        let time = Timespec { tv_sec: 1_000_000_000 + number, tv_nsec: 123_456_000 + number };
        let times = Timestamps { last_access: time, last_modification: time };
        let path = dir.join(std::str::from_utf8(path).unwrap());
        utimensat(CWD, path, &times, AtFlags::SYMLINK_NOFOLLOW).unwrap();
    }
}

/// A tree with every kind of file.
pub fn mixed(env: &TestEnv) {
    for (path, content) in [
        ("a", "one\n"),
        ("b", "two\n"),
        ("d/a", "three\n"),
        ("d/b", "four\n"),
        ("d/e/a", "five\n"),
        ("d/e/f/a", "six\n"),
        ("x/y/z", "deep\n"),
    ] {
        env.put(path, content.as_bytes());
    }
    env.put("big", &crate::support::noise(7, 1_000_000));
    std::os::unix::fs::symlink("d/a", env.project().join("to-a")).unwrap();
    std::os::unix::fs::symlink("nowhere", env.project().join("d/broken")).unwrap();
    std::fs::create_dir(env.project().join("empty")).unwrap();
    let file = std::fs::File::create(env.project().join("holes")).unwrap();
    file.set_len(6 << 20).unwrap();
    rustix::fs::mknodat(
        CWD,
        env.project().join("pipe"),
        rustix::fs::FileType::Fifo,
        rustix::fs::Mode::from_raw_mode(0o640),
        0,
    )
    .unwrap();
}

#[track_caller]
fn agree_on(lines: &[&str], ways: &[Way<'_>]) {
    let lines: Vec<String> = lines.iter().map(|line| (*line).to_owned()).collect();
    Trial { fixture: &mixed, lines: &lines, of_the_host: &[], ends: Ends::Well }.agrees(ways);
}

#[test]
fn content_is_changed_as_in_a_plain_directory() {
    agree_on(
        &[
            "set -e; sed -i s/one/ONE/ a; echo more >> d/a; printf x | dd of=big bs=1 seek=1000 conv=notrunc",
            "set -e; : > b; truncate -s 1000 d/b; echo new > new; mkdir -p p/q/r; echo deep > p/q/r/s",
            "set -e; sed -i -e 1d x/y/z; cp a d/copy; cat a b d/a > all; touch empty/now",
            "set -e; dd if=/dev/zero of=holes bs=1 count=1 seek=5000000 conv=notrunc; cp --sparse=always holes h2",
        ],
        &WAYS,
    );
}

#[test]
fn files_are_removed_and_moved_as_in_a_plain_directory() {
    agree_on(
        &[
            "set -e; rm -rf d; mkdir -p d/e; echo again > d/e/a",
            "set -e; mv x y; mv y/y y/renamed; mv empty d/; mv a d/moved; mv big small",
            "set -e; mv d/e d/g; rm -r y/renamed; mkdir y/renamed; mv -T d/g e; rmdir d/empty",
            "set -e; rm -rf ./*; mkdir -p d/a/b; echo after > d/a/b/c",
        ],
        &WAYS,
    );
}

#[test]
fn types_change_as_in_a_plain_directory() {
    agree_on(
        &[
            "set -e; rm a; mkdir a; echo in > a/file; rm -r d; echo file > d",
            "set -e; rm b; ln -s a b; rm to-a; echo now > to-a; rm pipe; mkdir pipe; rm -r x; mkfifo x",
            "set -e; rm -r a; mkfifo a; rm d; mkdir d; rm b; echo b > b; rmdir empty; ln -s d empty",
            "set -e; rm x; mkdir -p x/y; echo z > x/y/z; ln -sfn other to-a",
        ],
        &WAYS,
    );
}

#[test]
fn modes_times_links_and_attributes_are_as_in_a_plain_directory() {
    let set = "import os, sys; [os.setxattr(p, n, v.encode()) for p, n, v in zip(*[iter(sys.argv[1:])] * 3)]";
    let unset = "import os, sys; os.removexattr(sys.argv[1], sys.argv[2])";
    agree_on(
        &[
            "set -e; chmod 600 a; chmod 4755 b; chmod 1777 empty; chmod 2750 d/e; chmod 711 .",
            "set -e; touch -d '2001-02-03 04:05:06.789012345' a d x/y; touch -h -d 1999-01-01 to-a; touch -d @1 pipe",
            &format!("set -e; python3 -c '{set}' a user.k v d user.dir x . user.root r"),
            &format!(
                "set -e; python3 -c '{unset}' a user.k; python3 -c '{set}' a user.other 1 b user.empty ''"
            ),
            "set -e; echo l > l1; ln l1 l2; ln l1 d/l3; mkfifo -m 600 p2; ln -s /etc/hostname absolute",
        ],
        &WAYS,
    );
}

#[test]
fn attributes_that_look_like_overlayfs_marks_belong_to_the_user() {
    let set = "import os, sys; [os.setxattr(p, n, v.encode()) for p, n, v in zip(*[iter(sys.argv[1:])] * 3)]";
    agree_on(
        &[
            &format!(
                "set -e; python3 -c '{set}' d user.overlay.opaque y a user.overlay.metacopy '' . user.overlay.x 1"
            ),
            &format!(
                "set -e; python3 -c '{set}' d user.overlay.overlay.opaque y b user.overlay.whiteout y; rm d/a"
            ),
        ],
        &WAYS,
    );
}

#[test]
fn unusual_names_work_as_in_a_plain_directory() {
    let long = "n".repeat(255);
    agree_on(
        &[
            "set -e; printf x > \"$(printf 'new\\nline')\"; printf y > \"$(printf '\\377\\376')\"; printf z > .wh.a",
            &format!("set -e; echo long > {long}; mkdir -p '.wh..wh..opq' ' '; echo b > ' /b'; rm a"),
            "set -e; echo c > 'a,b:c\\d'; mkdir -- -rf; echo e > ./-rf/e; mv .wh.a .wh.b",
        ],
        &WAYS,
    );
}

#[test]
fn archives_unpack_as_in_a_plain_directory() {
    agree_on(
        &[
            "set -e; mkdir u; tar cf u/t.tar d x to-a pipe; tar xpf u/t.tar -C u; rm u/t.tar",
            "set -e; mkdir w; tar cf - u | tar xpf - -C w; rm -r u",
        ],
        &WAYS,
    );
}

#[test]
fn rsync_copies_as_in_a_plain_directory() {
    agree_on(
        &[
            "set -e; mkdir to; rsync -aH d x a to-a holes to/",
            "set -e; echo more >> d/a; rm d/b; rsync -aH --delete --sparse d holes to/",
            "set -e; rsync -a --remove-source-files to/ moved/; find to -type d -empty -delete",
        ],
        &WAYS,
    );
}

#[test]
fn git_works_as_in_a_plain_directory() {
    let who = "export GIT_AUTHOR_NAME=a GIT_AUTHOR_EMAIL=a@b GIT_COMMITTER_NAME=a GIT_COMMITTER_EMAIL=a@b \
               GIT_AUTHOR_DATE='1700000000 +0000' GIT_COMMITTER_DATE='1700000000 +0000' GIT_CONFIG_NOSYSTEM=1; set -e; ";
    let lines = [
        "git init -q -b main .; git add a b d; git commit -qm first",
        "git checkout -qb side; echo side > a; git rm -q d/b; mkdir s; echo s > s/s; git add .; git commit -qm side",
        "git checkout -q main; echo main > b; git commit -qam main; git merge -q -m merged side",
        "git checkout -q side; git checkout -q main; git tag t; git gc -q; git status --porcelain > status",
        "git stash list; git mv a renamed; git commit -qm renamed; git reset -q --hard HEAD~1; git clean -qfdx",
    ];
    let lines = lines.map(|line| format!("{who}{line}"));
    // The index and files derived from it contain inodes and times.
    let of_the_host = [".git/index", ".git/ORIG_HEAD.lock"];
    Trial { fixture: &mixed, lines: &lines, of_the_host: &of_the_host, ends: Ends::Well }.agrees(&FEW);
}

#[test]
fn a_database_is_written_as_in_a_plain_directory() {
    let script =
        "import sqlite3, sys; c = sqlite3.connect('data.db'); c.executescript(sys.argv[1]); c.close()";
    agree_on(
        &[
            &format!("set -e; python3 -c \"{script}\" 'create table t(a); insert into t values (1), (2);'"),
            &format!(
                "set -e; python3 -c \"{script}\" 'insert into t select a + 10 from t; delete from t where a = 1; vacuum;'"
            ),
            &format!(
                "set -e; python3 -c \"{script}\" 'pragma journal_mode = truncate; update t set a = a * 2;'"
            ),
        ],
        &WAYS,
    );
}

/// A Python package as a wheel: an archive with three metadata files.
const WHEEL: &str = "import zipfile; w = zipfile.ZipFile('tiny-1.0-py3-none-any.whl', 'w'); \
    put = lambda n, t: w.writestr(zipfile.ZipInfo(n), t); \
    put('tiny/__init__.py', 'answer = 42\\n'); \
    put('tiny-1.0.dist-info/METADATA', 'Metadata-Version: 2.1\\nName: tiny\\nVersion: 1.0\\n'); \
    put('tiny-1.0.dist-info/WHEEL', 'Wheel-Version: 1.0\\nGenerator: t\\nRoot-Is-Purelib: true\\nTag: py3-none-any\\n'); \
    put('tiny-1.0.dist-info/RECORD', ''); w.close()";

#[test]
fn a_python_package_is_installed_as_in_a_plain_directory() {
    // Compiled files contain the time of their source; without them an installation is the same every time.
    let lines = [
        format!("set -e; python3 -c \"{WHEEL}\""),
        "set -e; if python3 -m pip --version >/dev/null 2>&1; then python3 -m pip install -q --no-index --no-compile \
         --target lib tiny-1.0-py3-none-any.whl; else python3 -m zipfile -e tiny-1.0-py3-none-any.whl lib; fi"
            .to_owned(),
        "set -e; PYTHONDONTWRITEBYTECODE=1 PYTHONPATH=lib python3 -c 'import tiny; print(tiny.answer)' > answer; rm *.whl"
            .to_owned(),
    ];
    Trial { fixture: &mixed, lines: &lines, of_the_host: &[], ends: Ends::Well }.agrees(&FEW);
}

#[test]
fn a_node_package_is_installed_as_in_a_plain_directory() {
    const NAME: &str = "a_node_package_is_installed_as_in_a_plain_directory";
    if !Path::new("/usr/bin/npm").exists() {
        return crate::support::skip(NAME, "npm is not installed");
    }
    let fixture = |env: &TestEnv| {
        env.put("package.json", br#"{"name":"top","version":"1.0.0"}"#);
        env.put("tiny/package.json", br#"{"name":"tiny","version":"1.0.0","main":"i.js"}"#);
        env.put("tiny/i.js", b"module.exports = 42\n");
    };
    let lines = [
        "set -e; npm pack --silent ./tiny".to_owned(),
        "set -e; npm install --silent --offline --no-audit --no-fund ./tiny-1.0.0.tgz".to_owned(),
        "set -e; node -p 'require(\"tiny\")' > answer; rm -r tiny".to_owned(),
    ];
    Trial { fixture: &fixture, lines: &lines, of_the_host: &[], ends: Ends::Well }.agrees(&FEW);
}

#[test]
fn a_crate_is_built_as_in_a_plain_directory() {
    const NAME: &str = "a_crate_is_built_as_in_a_plain_directory";
    let cargo = Path::new(env!("CARGO"));
    let tools = cargo.parent().unwrap();
    if std::fs::File::open(cargo).is_err() || !tools.join("rustc").exists() {
        return crate::support::skip(NAME, "this user cannot run cargo");
    }
    let fixture = |env: &TestEnv| {
        env.put("Cargo.toml", b"[package]\nname = \"tiny\"\nversion = \"0.1.0\"\nedition = \"2021\"\n");
        env.put("src/main.rs", b"fn main() { println!(\"{}\", tiny::answer()) }\n");
        env.put("src/lib.rs", b"pub fn answer() -> u32 { 42 }\n");
    };
    let around = format!(
        "export PATH={}:$PATH CARGO_HOME=$HOME/cargo-home CARGO_INCREMENTAL=0; set -e; ",
        tools.display()
    );
    let lines = [
        format!("{around}cargo build -q --offline"),
        format!("{around}echo 'pub fn more() {{}}' >> src/lib.rs; cargo build -q --offline"),
        format!("{around}target/debug/tiny > answer; rm -rf target; cargo build -q --offline"),
    ];
    let shown = tools.parent().unwrap().to_str().unwrap();
    let ways = [
        Way { options: &["--ro", shown], runs: Runs::One },
        Way { options: &["--ro", shown, "--fork", "work"], runs: Runs::Each },
    ];
    // The file contains a digest of the compiler's environment.
    let of_the_host = ["target/.rustc_info.json"];
    Trial { fixture: &fixture, lines: &lines, of_the_host: &of_the_host, ends: Ends::Well }.agrees(&ways);
}
