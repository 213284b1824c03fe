//! Why a result is not cached or not found. Every reason has a code and a sentence.

use std::path::Path;

use avfs_policy::ExecutionDecision;
use avfs_request::{ExecutionRequest, Extra, NetMode, Profile, Purity, Retention};
use avfs_vault::backend::MemoRecord;
use avfs_vault::capture::{LeftOut, LeftOutReason};
use avfs_vault::memo::{Lost, MemoParts};

use super::key;
use crate::git::repository::CommonDir;
use crate::launcher::{Completion, Exit};
use crate::output::Output;
use crate::run::Notes;

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reason {
    /// Stable: part of the JSON contract.
    pub code: &'static str,
    pub text: String,
}

impl Reason {
    fn new(code: &'static str, text: impl Into<String>) -> Self {
        Self { code, text: text.into() }
    }
}

/// Why the result of a request can never be cached: it depends on more than its key, or has effects beyond
/// its changes. `common` is the repository of a linked worktree, which the command sees without naming it.
pub fn of_request(request: &ExecutionRequest, common: Option<&CommonDir>) -> Vec<Reason> {
    let mut reasons = Vec::new();
    let pure = request.purity == Purity::Declared;
    if let Some(common) = common.filter(|_| !pure)
        && common.shown(request).any(|entry| !is_declared(&entry.path, request))
    {
        let path = common.path.display();
        let text = format!(
            "it may read {path}, the repository of this linked worktree; declare it: --input {path}, or --pure"
        );
        reasons.push(Reason::new("host.ro", text));
    }
    if request.net != NetMode::None && !pure {
        let text = format!(
            "it may use the network (--net {}); if that does not affect the result: --pure",
            request.net
        );
        reasons.push(Reason::new("network", text));
    }
    for extra in request.extras.iter().filter(|_| !pure) {
        let path = extra.path().display();
        let (code, text) = match extra {
            Extra::Tmpfs(_) | Extra::Hide(_) => continue,
            Extra::ReadOnly(shown) if is_declared(&shown.path, request) => continue,
            Extra::ReadOnly(_) => {
                ("host.ro", format!("it may read {path} of the host; declare it: --input {path}, or --pure"))
            }
            // Reusing a result does not repeat writes to the host.
            Extra::ReadWrite(_) => (
                "host.rw",
                format!("it may write to {path} of the host; if that does not affect the result: --pure"),
            ),
            Extra::Cache { .. } => (
                "host.cache_dir",
                format!(
                    "{path} persists between runs (cache.dirs); if that does not affect the result: --pure"
                ),
            ),
        };
        reasons.push(Reason::new(code, text));
    }
    if request.profile == Profile::Host {
        reasons.push(Reason::new("host.profile", "with --profile host it may read any file of the host"));
    }
    let given = request.environment.secret_names().len() + request.secret_files.len();
    if given > 0 {
        reasons.push(Reason::new("secret", "it is given a secret, which must not be part of a key"));
    }
    reasons
}

/// True if the content of the path is part of the key.
fn is_declared(path: &Path, request: &ExecutionRequest) -> bool {
    // Compare real paths: a symlink beneath an input is not followed.
    let real = |path: &Path| std::fs::canonicalize(path).unwrap_or_else(|_| path.to_owned());
    let path = real(path);
    request.inputs.iter().any(|input| path.starts_with(real(input)))
}

/// Why the result of a request is not cached, although a cached result could be used for it.
pub fn of_asking(request: &ExecutionRequest) -> Vec<Reason> {
    let mut reasons = Vec::new();
    if request.retention == Retention::Discard {
        reasons.push(Reason::new("discarded", "its changes are not kept (--discard)"));
    }
    reasons
}

/// All reasons known before a run why its result will not be cached.
#[must_use]
pub fn why_not_remembered(request: &ExecutionRequest, bound: Option<&Path>) -> Vec<Reason> {
    let mut reasons = of_request(request, bound.and_then(|bound| CommonDir::of(bound).ok()).as_ref());
    reasons.extend(of_asking(request));
    reasons
}

/// The relevant facts about an ended run.
pub(crate) struct Ending<'a> {
    /// The requested features that were given up.
    pub degraded: &'a [String],
    pub notes: &'a Notes,
    pub completion: &'a Completion,
    pub left_out: &'a [LeftOut],
    /// True if it was classified read-only but changed content.
    pub violated: bool,
}

const OUTPUT_UNKNOWN: (&str, &str) = ("output.unknown", "its output is not known");

/// Why the result of an ended command is not cached: it might differ the next time.
pub(crate) fn of_ending(ending: &Ending<'_>) -> Vec<Reason> {
    let Ending { degraded, notes, completion, left_out, violated } = ending;
    let mut reasons = Vec::new();
    let mut add_if = |holds: bool, code, text: &str| {
        if holds {
            reasons.push(Reason::new(code, text));
        }
    };
    add_if(completion.timed_out, "timed_out", "it timed out");
    add_if(completion.stopped_by.is_some(), "limit", "it was stopped because it exceeded a limit");
    let killed = matches!(completion.exit, Exit::Signal(_)) && !completion.timed_out;
    add_if(killed, "killed", "it was killed by a signal");
    add_if(completion.signalled, "signalled", "it was sent a signal");
    add_if(!degraded.is_empty(), "degraded", "it ran with less isolation than requested");
    let outputs = [&completion.stdout, &completion.stderr];
    let unknown = outputs.iter().any(|output| output.is_none());
    add_if(unknown, OUTPUT_UNKNOWN.0, OUTPUT_UNKNOWN.1);
    let truncated = outputs.into_iter().flatten().any(Output::is_truncated);
    add_if(truncated, "output.truncated", "its output was truncated (--output-max)");
    add_if(notes.has("limit.reached"), "limit.reached", "it reached a limit");
    add_if(notes.has("scratch.full"), "scratch.full", "the scratch was full");
    add_if(*violated, "classification_violated", "it was classified read-only, but it changed files");
    // A left-out path where something else is mounted is a mount point, which belongs to the sandbox.
    let left_out: Vec<&LeftOut> =
        left_out.iter().filter(|left| left.reason != LeftOutReason::Hidden).collect();
    if let Some(first) = left_out.first() {
        let more = match left_out.len() {
            1 => String::new(),
            count => format!(" and {} more", count - 1),
        };
        reasons.push(Reason::new("left_out", format!("{}{more} is not kept with its changes", first.path)));
    }
    reasons
}

/// The vault's quota has no room for the result.
pub fn no_room() -> Reason {
    Reason::new("quota", "the vault's quota has no room for it")
}

/// The output of the command is not known.
pub fn output_unknown() -> Reason {
    Reason::new(OUTPUT_UNKNOWN.0, OUTPUT_UNKNOWN.1)
}

/// The policy does not allow the request.
pub fn refused(decision: &ExecutionDecision) -> Reason {
    Reason::new("policy", format!("the policy says {}: {}", decision.action, decision.reason))
}

/// No result of this command is cached.
pub fn unknown() -> Reason {
    Reason::new("unknown", "no result of this command is cached")
}

/// A result that is no longer available.
pub fn lost(memo: &MemoRecord, why: Lost) -> Reason {
    let run = &memo.run;
    let text = match why {
        Lost::Expired => format!("the result of run:{run} has expired"),
        Lost::Version => format!("the versions of run:{run} are no longer kept"),
        Lost::Output => format!("the output of run:{run} is no longer kept"),
    };
    Reason::new("lost", text)
}

/// The differences between a request and the most similar run.
pub fn differences(memo: &MemoRecord, parts: &MemoParts) -> Vec<Reason> {
    let run = &memo.run;
    let Some(known) = MemoParts::from_json(&memo.parts) else { return vec![unknown()] };
    let reason_for = |name: &&str| match *name {
        key::BASE => {
            Reason::new("differs.base", format!("the files differ from those that run:{run} started with"))
        }
        key::PLACES => Reason::new(
            "differs.places",
            format!("run:{run} ran in another directory, or at another path in the sandbox"),
        ),
        key::ENVIRONMENT => Reason::new(
            "differs.environment",
            format!("its variables differ from those that run:{run} was given"),
        ),
        key::SANDBOX => Reason::new(
            "differs.sandbox",
            format!("run:{run} had a different sandbox: limits, paths, or settings"),
        ),
        key::INPUTS => Reason::new("differs.inputs", format!("the --input files differ from run:{run}")),
        key::SYSTEM => Reason::new(
            "differs.system",
            format!("the system has changed since run:{run}: packages, kernel, or user"),
        ),
        key::PROGRAMS => {
            Reason::new("differs.programs", format!("programs on PATH have changed since run:{run}"))
        }
        other => Reason::new("differs.other", format!("{other} differs from run:{run}")),
    };
    known.differing(parts).iter().map(reason_for).collect()
}

#[cfg(test)]
mod tests {
    use avfs_hostfs::held::HeldFile;
    use avfs_request::{HostPath, SecretFile};
    use avfs_types::CommandLine;

    use super::*;

    fn request() -> ExecutionRequest {
        ExecutionRequest::of(CommandLine::Argv(vec!["make".into(), "test".into()]))
    }

    fn codes(change: impl Fn(&mut ExecutionRequest)) -> Vec<&'static str> {
        let mut request = request();
        change(&mut request);
        of_request(&request, None).into_iter().map(|reason| reason.code).collect()
    }

    fn host_path(path: &str) -> HostPath {
        HostPath { path: path.into(), real: path.into(), file: HeldFile::default() }
    }

    #[test]
    fn results_that_depend_on_more_than_the_key_are_not_remembered() {
        assert_eq!(codes(|_| {}), [""; 0]);
        let cache = || Extra::Cache { source: "/c".into(), path: "/w/target".into() };
        assert_eq!(codes(|it| it.net = NetMode::Host), ["network"]);
        assert_eq!(codes(|it| it.net = "allow=a.org".parse().unwrap()), ["network"]);
        assert_eq!(codes(|it| it.extras = vec![Extra::ReadOnly(host_path("/data/x"))]), ["host.ro"]);
        assert_eq!(codes(|it| it.extras = vec![Extra::ReadWrite(host_path("/data"))]), ["host.rw"]);
        assert_eq!(codes(|it| it.extras = vec![cache()]), ["host.cache_dir"]);
        assert_eq!(
            codes(|it| it.extras = vec![Extra::Tmpfs("/t".into()), Extra::Hide("/h".into())]),
            [""; 0]
        );
        assert_eq!(codes(|it| it.profile = Profile::Host), ["host.profile"]);
        let secret = || SecretFile { name: "T".into(), bytes: Vec::new(), source: None };
        assert_eq!(codes(|it| it.secret_files = vec![secret()]), ["secret"]);
    }

    #[test]
    fn results_with_declared_inputs_are_remembered() {
        let shown = |it: &mut ExecutionRequest| it.extras = vec![Extra::ReadOnly(host_path("/data/x"))];
        let declared = |input: &'static str| {
            codes(move |it| {
                shown(it);
                it.inputs = vec![input.into()];
            })
        };
        assert_eq!(declared("/data"), [""; 0]);
        assert_eq!(declared("/data/x"), [""; 0]);
        assert_eq!(declared("/data/x/y"), ["host.ro"]);
        // `--pure` covers the network and shown paths, but not the host profile or secrets.
        let all = codes(|it| {
            it.purity = Purity::Declared;
            it.net = NetMode::Host;
            it.extras = vec![Extra::ReadWrite(host_path("/data"))];
            it.profile = Profile::Host;
        });
        assert_eq!(all, ["host.profile"]);
    }
}
