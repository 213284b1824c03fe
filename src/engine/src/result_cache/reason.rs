//! Why a result is not remembered, or why none was found. Every reason has a code and a sentence.

use std::path::Path;

use avfs_policy::ExecutionDecision;
use avfs_request::{ExecutionRequest, Extra, NetMode, Profile, Purity, Retention};
use avfs_vault::backend::MemoRecord;
use avfs_vault::capture::{LeftOut, LeftOutReason};
use avfs_vault::memo::{Lost, MemoParts};

use super::key;
use crate::launcher::{Completion, Exit};
use crate::output::Output;
use crate::run::Run;

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

/// What keeps a request from ever being remembered: its result depends on more than its key tells, or would be
/// more than what is kept.
pub fn of_request(request: &ExecutionRequest) -> Vec<Reason> {
    let mut reasons = Vec::new();
    let pure = request.purity == Purity::Declared;
    if request.net != NetMode::None && !pure {
        let text =
            format!("it may use the network (--net {}); if that makes no difference: --pure", request.net);
        reasons.push(Reason::new("network", text));
    }
    for extra in request.extras.iter().filter(|_| !pure) {
        let path = extra.path().display();
        let (code, text) = match extra {
            Extra::Tmpfs(_) | Extra::Hide(_) => continue,
            Extra::ReadOnly(shown) if is_declared(&shown.path, request) => continue,
            Extra::ReadOnly(_) => {
                ("host.ro", format!("{path} of the host is shown; declare it: --input {path}, or --pure"))
            }
            // What it writes there is not done again.
            Extra::ReadWrite(_) => (
                "host.rw",
                format!("it may write to {path} of the host; if that makes no difference: --pure"),
            ),
            Extra::Cache { .. } => (
                "host.cache_dir",
                format!("{path} persists between runs (cache.dirs); if that makes no difference: --pure"),
            ),
        };
        reasons.push(Reason::new(code, text));
    }
    if request.profile == Profile::Host {
        reasons.push(Reason::new("host.profile", "with --profile host it may read anything of the host"));
    }
    let given = request.environment.secret_names().len() + request.secret_files.len();
    if given > 0 {
        reasons.push(Reason::new("secret", "it is given a secret, and nothing may be found by that"));
    }
    reasons
}

/// True if the content of what is shown is a part of the key.
fn is_declared(path: &Path, request: &ExecutionRequest) -> bool {
    // Where they lead to: a link beneath an input is only a link in it.
    let real = |path: &Path| std::fs::canonicalize(path).unwrap_or_else(|_| path.to_owned());
    let path = real(path);
    request.inputs.iter().any(|input| path.starts_with(real(input)))
}

/// What keeps the result of a request from being remembered, though one could be taken for it.
pub fn of_asking(request: &ExecutionRequest) -> Vec<Reason> {
    let mut reasons = Vec::new();
    if request.retention == Retention::Discard {
        reasons.push(Reason::new("discarded", "its changes are not kept (--discard)"));
    }
    reasons
}

/// Everything that is known before a run to keep its result from being remembered.
#[must_use]
pub fn why_not_remembered(request: &ExecutionRequest) -> Vec<Reason> {
    let mut reasons = of_request(request);
    reasons.extend(of_asking(request));
    reasons
}

/// What a run has come to, as far as it matters.
pub struct Ending<'a> {
    pub run: &'a Run,
    pub completion: &'a Completion,
    pub left_out: &'a [LeftOut],
    /// It was taken for a command that only looks.
    pub violated: bool,
}

/// What keeps a result from being remembered once the command has ended: another time it might be another one.
pub fn of_ending(ending: &Ending<'_>) -> Vec<Reason> {
    let Ending { run, completion, left_out, violated } = ending;
    let mut reasons = Vec::new();
    let mut tell = |holds: bool, code, text: &str| {
        if holds {
            reasons.push(Reason::new(code, text));
        }
    };
    tell(completion.timed_out, "timed_out", "it ran for too long and was ended");
    tell(completion.stopped_by.is_some(), "limit", "it was ended for going beyond a limit");
    let killed = matches!(completion.exit, Exit::Signal(_)) && !completion.timed_out;
    tell(killed, "killed", "a signal ended it");
    tell(completion.signalled, "signalled", "somebody sent it a signal");
    tell(!run.degraded.is_empty(), "degraded", "it ran with less isolation than was asked for");
    let outputs = [&completion.stdout, &completion.stderr];
    let unknown = outputs.iter().any(|output| output.is_none());
    tell(unknown, "output.unknown", "what it wrote is not known");
    let truncated = outputs.into_iter().flatten().any(Output::is_truncated);
    tell(truncated, "output.truncated", "it wrote more than is kept (--output-max)");
    let noted = |code: &str| run.notes.iter().any(|note| note.code == code);
    tell(noted("limit.reached"), "limit.reached", "it came up against a limit");
    tell(noted("scratch.full"), "scratch.full", "there was no room for what it wrote");
    tell(*violated, "classification_violated", "it was taken for a command that only looks, and it wrote");
    // Where something else is shown there is a mount point, which is the sandbox's.
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

/// The quota has no room for it.
pub fn no_room() -> Reason {
    Reason::new("quota", "the vault's quota has no room for it")
}

/// The policy comes first.
pub fn refused(decision: &ExecutionDecision) -> Reason {
    Reason::new("policy", format!("the policy says {}: {}", decision.action, decision.reason))
}

/// Nothing like it was run before.
pub fn unknown() -> Reason {
    Reason::new("unknown", "nothing is remembered of this command")
}

/// A result that cannot be had any more.
pub fn lost(memo: &MemoRecord, why: Lost) -> Reason {
    let run = &memo.run;
    let text = match why {
        Lost::Expired => format!("the result of run:{run} has expired"),
        Lost::Version => format!("the versions of run:{run} are no longer kept"),
        Lost::Output => format!("what run:{run} wrote is no longer kept"),
    };
    Reason::new("lost", text)
}

/// What tells a request from the run that is most like it.
pub fn differences(memo: &MemoRecord, parts: &MemoParts) -> Vec<Reason> {
    let run = &memo.run;
    let Some(known) = MemoParts::from_json(&memo.parts) else { return vec![unknown()] };
    let told = |name: &&str| match *name {
        key::BASE => {
            Reason::new("differs.base", format!("the files are not those that run:{run} began with"))
        }
        key::PLACES => Reason::new(
            "differs.places",
            format!("run:{run} was run in another directory, or seen at another path"),
        ),
        key::ENVIRONMENT => Reason::new(
            "differs.environment",
            format!("its variables are not those that run:{run} was given"),
        ),
        key::SANDBOX => Reason::new(
            "differs.sandbox",
            format!("run:{run} had another sandbox: limits, paths, or settings"),
        ),
        key::INPUTS => Reason::new("differs.inputs", format!("what --input names is not what run:{run} had")),
        key::SYSTEM => Reason::new(
            "differs.system",
            format!("the system has changed since run:{run}: packages, kernel, or user"),
        ),
        key::PROGRAMS => {
            Reason::new("differs.programs", format!("programs on PATH have changed since run:{run}"))
        }
        other => Reason::new("differs.other", format!("{other} is not as it was in run:{run}")),
    };
    known.differing(parts).iter().map(told).collect()
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
        of_request(&request).into_iter().map(|reason| reason.code).collect()
    }

    fn host_path(path: &str) -> HostPath {
        HostPath { path: path.into(), real: path.into(), file: HeldFile::default() }
    }

    #[test]
    fn what_reaches_beyond_the_key_is_not_remembered() {
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
    fn what_is_declared_is_remembered() {
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
        // A promise goes as far as the network and what is shown, not as far as everything, or a secret.
        let all = codes(|it| {
            it.purity = Purity::Declared;
            it.net = NetMode::Host;
            it.extras = vec![Extra::ReadWrite(host_path("/data"))];
            it.profile = Profile::Host;
        });
        assert_eq!(all, ["host.profile"]);
    }
}
