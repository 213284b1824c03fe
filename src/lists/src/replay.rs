//! Decides whether a replayed command did the same as before. Pure: recorded and observed results are arguments.

use globset::{GlobSet, GlobSetBuilder};
use regex::bytes::Regex;

use avfs_types::glob;
use avfs_types::path::TreePath;
use avfs_vault::changes::Changes;
use avfs_vault::diff::{Change, ChangeKind};
use avfs_wire::{ListExpected, ListNoise, ReplayVerdict};

/// The observed results of a run.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Seen {
    pub exit_code: Option<i32>,
    pub signal: Option<i32>,
    /// Digests in hexadecimal. `None` if unknown.
    pub stdout: Option<String>,
    pub stderr: Option<String>,
    pub tree: String,
    pub content: String,
}

/// One difference between a run and its recording.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Difference {
    /// `exit`, `stdout`, `stderr`, `tree` or `times`.
    pub what: &'static str,
    pub text: String,
    /// True if declared noise explains the difference.
    pub noise: bool,
}

/// Differences to ignore, declared by the item or by the caller.
#[derive(Debug)]
pub struct Noise {
    times: bool,
    paths: GlobSet,
    output: Vec<(Regex, Vec<u8>)>,
}

#[derive(Debug, thiserror::Error)]
#[error("{text:?} is not {what}: {problem}")]
pub struct NoiseError {
    pub what: &'static str,
    pub text: String,
    pub problem: String,
}

impl avfs_types::diagnose::Diagnose for NoiseError {
    fn code(&self) -> &'static str {
        "replay.bad_noise"
    }
}

impl Noise {
    /// The noise that an item declares, plus `more`. Times are noise if the item declares no noise.
    pub fn of(declared: Option<&ListNoise>, more: &ListNoise) -> Result<Self, NoiseError> {
        let times = more.mtimes || declared.is_none_or(|noise| noise.mtimes);
        let declared = declared.cloned().unwrap_or_default();
        let mut paths = GlobSetBuilder::new();
        for text in declared.paths.iter().chain(&more.paths) {
            let glob = glob::of_path(text);
            paths.add(glob.map_err(|error| bad("a glob", text, &error))?);
        }
        let mut output = Vec::new();
        for noise in declared.output.iter().chain(&more.output) {
            let pattern = Regex::new(&noise.pattern);
            let pattern = pattern.map_err(|error| bad("a regular expression", &noise.pattern, &error))?;
            output.push((pattern, noise.replace.clone().into_bytes()));
        }
        let paths = paths.build().map_err(|error| bad("globs", "", &error))?;
        Ok(Self { times, paths, output })
    }

    /// True if outputs that differ may be equal after noise is removed.
    #[must_use]
    pub fn is_in_outputs(&self) -> bool {
        !self.output.is_empty()
    }

    /// Output with noise removed.
    #[must_use]
    pub fn quieted(&self, output: &[u8]) -> Vec<u8> {
        self.output.iter().fold(output.to_vec(), |output, (pattern, replace)| {
            pattern.replace_all(&output, replace.as_slice()).into_owned()
        })
    }

    fn covers(&self, change: &Change) -> bool {
        let named = |path: &TreePath| {
            let path = String::from_utf8_lossy(path.as_bytes());
            self.paths.is_match(path.as_ref())
        };
        change.kind == ChangeKind::Time && self.times || named(&change.path)
    }
}

fn bad(what: &'static str, text: &str, problem: &dyn std::fmt::Display) -> NoiseError {
    // Regex reports an error over several lines; the last line is the summary.
    let problem = problem.to_string();
    let problem = problem.lines().last().unwrap_or_default().trim_start_matches("error: ").to_owned();
    NoiseError { what, text: text.chars().take(80).collect(), problem }
}

/// Both outputs of one stream, where they are known.
pub struct Outputs<'a> {
    pub recorded: Option<&'a [u8]>,
    pub seen: Option<&'a [u8]>,
}

/// Compares a run with its recording. `changes` are the changes from the recorded tree to the observed tree, if
/// both are available.
#[must_use]
pub fn compare(
    expected: &ListExpected,
    seen: &Seen,
    noise: &Noise,
    changes: Option<&TreeChanges>,
    streams: [Outputs<'_>; 2],
) -> Vec<Difference> {
    let mut found = Vec::new();
    let exit = |code: Option<i32>, signal: Option<i32>| match (code, signal) {
        (_, Some(signal)) => format!("signal {signal}"),
        (Some(code), None) => format!("exit code {code}"),
        (None, None) => "no exit code".to_owned(),
    };
    let (code, signal) = (expected.exit_code.map(i32::from), expected.signal.map(i32::from));
    if (code.is_some() || signal.is_some()) && (code, signal) != (seen.exit_code, seen.signal) {
        let text = format!("{}, not {}", exit(seen.exit_code, seen.signal), exit(code, signal));
        found.push(Difference { what: "exit", text, noise: false });
    }
    let named = [("stdout", &expected.stdout, &seen.stdout), ("stderr", &expected.stderr, &seen.stderr)];
    for ((what, recorded, now), both) in named.into_iter().zip(streams) {
        let (text, noise) = match (recorded, now) {
            (Some(recorded), Some(now)) if recorded == now => continue,
            (Some(_), Some(_)) => {
                let quiet = |bytes: &[u8]| noise.quieted(bytes);
                match (noise.is_in_outputs(), both.recorded, both.seen) {
                    (true, Some(old), Some(new)) if quiet(old) == quiet(new) => ("differs in noise", true),
                    (true, None, _) => (
                        "differs; the recorded output was not kept, or is longer than 10 MiB, so noise cannot be ignored",
                        false,
                    ),
                    _ => ("differs", false),
                }
            }
            (Some(_), None) => ("differs: it is longer than the output limit", false),
            (None, _) => ("was not recorded", true),
        };
        found.push(Difference { what, text: text.to_owned(), noise });
    }
    found.extend(tree_difference(expected, seen, noise, changes));
    found
}

fn tree_difference(
    expected: &ListExpected,
    seen: &Seen,
    noise: &Noise,
    changes: Option<&TreeChanges>,
) -> Option<Difference> {
    let same = |recorded: &Option<String>, now: &String| recorded.as_ref().is_none_or(|it| it == now);
    let difference = |what, text: &str, noise| Some(Difference { what, text: text.to_owned(), noise });
    match (&expected.tree, &expected.content) {
        (Some(tree), _) if *tree == seen.tree && same(&expected.content, &seen.content) => return None,
        (None, None) => return difference("tree", "was not recorded", true),
        (None, Some(content)) if *content == seen.content => {
            return difference("times", "were not recorded", true);
        }
        (Some(_), Some(content)) if *content == seen.content => {
            return difference("times", "same content, different times", noise.times);
        }
        (Some(_) | None, _) => {}
    }
    let Some(changes) = changes.filter(|changes| changes.count > 0) else {
        let text = "differs; the recorded tree is not in this vault".to_owned();
        return Some(Difference { what: "tree", text, noise: false });
    };
    let loud = changes.loud.len();
    let text = match loud {
        0 => "differs in noise".to_owned(),
        1 => "1 path differs".to_owned(),
        more => format!("{more} paths differ"),
    };
    Some(Difference { what: "tree", text, noise: loud == 0 })
}

/// The verdict on the differences. A result that was not recorded is never reported as identical.
#[must_use]
pub fn verdict(expected: &ListExpected, differences: &[Difference]) -> ReplayVerdict {
    if *expected == ListExpected::default() {
        ReplayVerdict::Unrecorded
    } else if differences.is_empty() {
        ReplayVerdict::Identical
    } else if differences.iter().all(|difference| difference.noise) {
        ReplayVerdict::Equivalent
    } else {
        ReplayVerdict::Diverged
    }
}

/// The changes from a recorded tree to the observed one.
#[derive(Debug, Default)]
pub struct TreeChanges {
    /// The number of all changes.
    pub count: usize,
    /// The changes that declared noise does not explain.
    pub loud: Changes,
}

impl TreeChanges {
    /// Counts a change, and keeps it unless it is noise.
    pub fn add(&mut self, change: Change, noise: &Noise) {
        self.count += 1;
        if !noise.covers(&change) {
            self.loud.push(change);
        }
    }
}

#[cfg(test)]
mod tests {
    use avfs_wire::OutputNoise;

    use super::*;

    fn expected() -> ListExpected {
        ListExpected {
            exit_code: Some(0),
            stdout: Some("o".into()),
            stderr: Some("e".into()),
            tree: Some("t".into()),
            content: Some("c".into()),
            ..ListExpected::default()
        }
    }

    fn seen() -> Seen {
        Seen {
            exit_code: Some(0),
            signal: None,
            stdout: Some("o".into()),
            stderr: Some("e".into()),
            tree: "t".into(),
            content: "c".into(),
        }
    }

    const NONE: fn() -> [Outputs<'static>; 2] =
        || [Outputs { recorded: None, seen: None }, Outputs { recorded: None, seen: None }];

    fn judge(
        seen: &Seen,
        noise: Option<&ListNoise>,
        changes: Option<&[Change]>,
    ) -> (ReplayVerdict, Vec<&'static str>) {
        let noise = Noise::of(noise, &ListNoise::default()).unwrap();
        let changes = changes.map(|changes| {
            let mut found = TreeChanges::default();
            changes.iter().for_each(|change| found.add(change.clone(), &noise));
            found
        });
        let found = compare(&expected(), seen, &noise, changes.as_ref(), NONE());
        (verdict(&expected(), &found), found.iter().map(|difference| difference.what).collect())
    }

    fn change(path: &str, kind: ChangeKind) -> Change {
        Change { path: TreePath::parse(path.as_bytes()).unwrap(), kind, before: None, after: None }
    }

    #[test]
    fn unrecorded_results_are_never_identical() {
        assert_eq!(judge(&seen(), None, None), (ReplayVerdict::Identical, vec![]));
        let noise = Noise::of(None, &ListNoise::default()).unwrap();
        let judged = |expected: &ListExpected| {
            let found = compare(expected, &seen(), &noise, None, NONE());
            let parts: Vec<&str> = found.iter().map(|difference| difference.what).collect();
            (verdict(expected, &found), parts)
        };
        assert_eq!(judged(&ListExpected::default()).0, ReplayVerdict::Unrecorded);
        let no_output = ListExpected { stdout: None, ..expected() };
        assert_eq!(judged(&no_output), (ReplayVerdict::Equivalent, vec!["stdout"]));
        let no_times = ListExpected { tree: None, ..expected() };
        assert_eq!(judged(&no_times), (ReplayVerdict::Equivalent, vec!["times"]));
        let no_tree = ListExpected { tree: None, content: None, ..expected() };
        assert_eq!(judged(&no_tree), (ReplayVerdict::Equivalent, vec!["tree"]));
        let other = ListExpected { tree: None, content: Some("other".into()), ..expected() };
        assert_eq!(judged(&other), (ReplayVerdict::Diverged, vec!["tree"]));
        let cut = compare(&expected(), &Seen { stdout: None, ..seen() }, &noise, None, NONE());
        assert_eq!(verdict(&expected(), &cut), ReplayVerdict::Diverged);
    }

    #[test]
    fn times_are_noise_unless_the_item_declares_noise() {
        let later = Seen { tree: "u".into(), ..seen() };
        assert_eq!(judge(&later, None, None), (ReplayVerdict::Equivalent, vec!["times"]));
        assert_eq!(judge(&later, Some(&ListNoise::default()), None).0, ReplayVerdict::Diverged);
        let times = ListNoise { mtimes: true, ..ListNoise::default() };
        assert_eq!(judge(&later, Some(&times), None).0, ReplayVerdict::Equivalent);
    }

    #[test]
    fn exit_code_output_and_tree_are_each_compared() {
        for (other, what) in [
            (Seen { exit_code: Some(1), ..seen() }, "exit"),
            (Seen { exit_code: None, signal: Some(9), ..seen() }, "exit"),
            (Seen { stdout: Some("p".into()), ..seen() }, "stdout"),
            (Seen { tree: "u".into(), content: "d".into(), ..seen() }, "tree"),
        ] {
            assert_eq!(judge(&other, None, None), (ReplayVerdict::Diverged, vec![what]));
        }
    }

    #[test]
    fn paths_that_are_noise_are_not_compared() {
        let other = Seen { tree: "u".into(), content: "d".into(), ..seen() };
        let noise = ListNoise { mtimes: true, paths: vec!["log/**".into()], ..ListNoise::default() };
        let quiet = [change("log/a/b", ChangeKind::Modified), change("log", ChangeKind::Time)];
        assert_eq!(judge(&other, Some(&noise), Some(&quiet)).0, ReplayVerdict::Equivalent);
        let loud = [change("log/a", ChangeKind::Modified), change("src", ChangeKind::Modified)];
        assert_eq!(judge(&other, Some(&noise), Some(&loud)).0, ReplayVerdict::Diverged);
    }

    #[test]
    fn outputs_are_compared_with_noise_removed_if_both_are_known() {
        let output = vec![OutputNoise { pattern: r"\d+ ms".into(), replace: "N ms".into() }];
        let noise = Noise::of(None, &ListNoise { output, ..ListNoise::default() }).unwrap();
        let other = Seen { stdout: Some("p".into()), ..seen() };
        let with = |recorded: Option<&'static [u8]>, now: &'static [u8]| {
            let streams = [Outputs { recorded, seen: Some(now) }, Outputs { recorded: None, seen: None }];
            verdict(&expected(), &compare(&expected(), &other, &noise, None, streams))
        };
        assert_eq!(with(Some(b"took 12 ms"), b"took 9 ms"), ReplayVerdict::Equivalent);
        assert_eq!(with(Some(b"took 12 ms"), b"took 9 s"), ReplayVerdict::Diverged);
        assert_eq!(with(None, b"took 9 ms"), ReplayVerdict::Diverged);
        assert!(Noise::of(None, &ListNoise { paths: vec!["[".into()], ..ListNoise::default() }).is_err());
        let open = vec![OutputNoise { pattern: "(".into(), replace: String::new() }];
        let error = Noise::of(None, &ListNoise { output: open, ..ListNoise::default() }).unwrap_err();
        assert_eq!(error.to_string(), r#""(" is not a regular expression: unclosed group"#);
    }
}
