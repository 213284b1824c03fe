//! Scripts that mount file systems: each step is a command, whose exit status and answer are kept.

use std::collections::BTreeMap;
use std::path::Path;

use serde_json::Value;

use crate::env::{Running, TestEnv, avfs, runner};
use crate::support;

/// The exit status and the answer of each step; an answer that is not JSON is a string.
pub struct Steps(BTreeMap<String, (i32, Value)>);

/// `step NAME COMMAND…` keeps a step.
const HELPERS: &str = "
    step() { name=$1; shift; \"$@\" > \"$OUT/$name\" 2>&1; echo \"$name $?\"; }
    run() { \"$RUN\" --json --scratch memory \"$@\"; }";

impl Steps {
    /// Runs a script in its own mount namespace. The directory `$DISK` is free for mounts, `$IMAGE` for an image of a
    /// disk of `$SIZE`. `None` if the script `mount` fails, which mounts on `$DISK`.
    pub fn on_disk(env: &TestEnv, mount: &str, size: &str, script: &str) -> Option<Self> {
        let disk = env.at("disk");
        let _ = std::fs::create_dir(&disk);
        let out = support::Scratch::new();
        let start = |script: &str| {
            let mut command = env.clean(Path::new("unshare"));
            let namespaces = if support::is_root() { "-m" } else { "-Urm" };
            command.args([namespaces, "sh", "-c", script]);
            command.env("AVFS", avfs()).env("RUN", runner()).env("DISK", &disk);
            command.env("IMAGE", env.at("image")).env("SIZE", size).env("OUT", out.path());
            Running::start(&mut command).answer()
        };
        if start(&format!("{{ {mount}\n}} 2> /dev/null || exit 9")).code != Some(0) {
            return None;
        }
        let answer = start(&format!("{{ {mount}\n}} || exit 9\n{HELPERS}\n{script}")).expect(0);
        let answer_of = |name: &str| {
            let text = std::fs::read_to_string(out.join(name)).unwrap();
            serde_json::from_str(&text).unwrap_or(Value::String(text))
        };
        let text = answer.text();
        let steps = text.lines().map(|line| {
            let (name, code) = line.rsplit_once(' ').unwrap();
            (name.to_owned(), (code.parse().unwrap(), answer_of(name)))
        });
        Some(Self(steps.collect()))
    }

    /// The answer of a step.
    #[track_caller]
    pub fn answer(&self, name: &str) -> &Value {
        &self.0.get(name).unwrap_or_else(|| panic!("no step {name}: {:#?}", self.0)).1
    }

    #[track_caller]
    pub fn code(&self, name: &str) -> i32 {
        self.0.get(name).unwrap_or_else(|| panic!("no step {name}: {:#?}", self.0)).0
    }

    /// Fails unless the steps ended with this exit status.
    #[track_caller]
    pub fn assert_code(&self, names: &[&str], code: i32) {
        for name in names {
            assert_eq!(self.code(name), code, "{name}: {:#}", self.answer(name));
        }
    }

    /// Fails unless the step failed with this error; returns the error.
    #[track_caller]
    pub fn assert_error(&self, name: &str, code: i32, error: &str) -> &Value {
        self.assert_code(&[name], code);
        let found = &self.answer(name)["error"];
        assert_eq!(found["code"], error, "{name}: {found:#}");
        found
    }
}

/// The script that mounts an image of ext4 with these options of mkfs.
pub fn ext4(options: &str) -> String {
    format!(
        "truncate -s $SIZE \"$IMAGE\" && mkfs.ext4 -q -F {options} \"$IMAGE\" && mount -o loop \"$IMAGE\" \"$DISK\""
    )
}
