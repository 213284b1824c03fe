//! `avfs bisect`

use std::collections::HashMap;

use clap::{ArgGroup, Args};

use avfs_lists::bisect::{End, Finding, ProbeVerdict, Search};
use avfs_ops::{OpError, fork_meant};
use avfs_present::hint;
use avfs_request::Retention;
use avfs_terminal::Tone;
use avfs_types::diagnose::Diagnose;
use avfs_types::ids::{ForkName, RunPrefix};
use avfs_types::reference::Reference;
use avfs_vault::backend::{ForkRecord, RunRecord, VersionRecord};
use avfs_vault::discard::ChangesOf;
use avfs_vault::version::{History, root_of};
use avfs_vault::{Vault, VaultError};
use avfs_wire::{Bisect, BisectProbe, EndedObject, ErrorBody, ResultObject, VerdictName, WorkItem};

use crate::context::CommandContext;
use crate::run_options::{CommandWords, RunOptions, command_request};
use crate::signals::Asked;
use crate::ui::{Out, Outcome};
use crate::view::{command_line, local_time, message_line, plural};
use crate::worker_pool::{Done, LOOK_EVERY, WORKERS_MAX, WorkerPool, result_of};
use avfs_ops::command_text;

/// The exit code of a test that cannot judge a version.
const EXIT_SKIP: u8 = 125;

/// Find the first version of a fork on which a test fails
///
/// Runs the test on versions between a good one, where it passes, and a bad one, where it fails, each time in
/// a new sandbox whose changes are discarded. Exit code 0 means good, 125 means that the version cannot be
/// tested, and anything else means bad, including signals and timeouts. Versions with the same content are
/// tested once. Prints the run that made the first bad version.
///
/// With --jobs N, N versions are tested at once, and each round divides the remaining versions by N+1.
#[derive(Debug, Args)]
#[command(group = ArgGroup::new("test").required(true).args(["command", "shell"]))]
#[command(
    override_usage = "avfs bisect [OPTIONS] <FORK|RUN> -- <COMMAND>...\n       avfs bisect [OPTIONS] <FORK|RUN> --shell <LINE>"
)]
#[command(after_help = "\
Examples:
  avfs bisect fix-1 -- make test
  avfs bisect main --good main~40 --jobs 4 -- cargo test -q
  avfs bisect fix-1 --timeout 30s --shell 'make || exit 125; ./smoke-test'")]
pub struct BisectArgs {
    /// The fork whose history to search, or a run on it
    #[arg(value_name = "FORK|RUN")]
    fork: ChangesOf,
    /// Use this version as good [default: the start of the fork]
    #[arg(long, value_name = "REF")]
    good: Option<Reference>,
    /// Use this version as bad [default: the head of the fork]
    #[arg(long, value_name = "REF")]
    bad: Option<Reference>,
    /// Test N versions at once
    #[arg(short, long, value_name = "N", default_value = "1")]
    #[arg(value_parser = clap::value_parser!(u16).range(1..=WORKERS_MAX))]
    jobs: u16,
    /// Print the output of each test
    #[arg(short, long)]
    verbose: bool,
    #[command(flatten)]
    what: CommandWords,
    #[command(flatten)]
    options: RunOptions,
}

#[derive(Debug, thiserror::Error)]
enum BisectError {
    #[error("{good} is not an ancestor of {bad}")]
    NotAncestor { good: String, bad: String },
    #[error("nothing to search: {version} is both the good and the bad version")]
    NothingBetween { version: String },
    #[error("the test does not pass on the good version {version} ({how})")]
    NotGood { version: String, how: String },
    #[error("the test does not fail on the bad version {version} ({how})")]
    NotBad { version: String, how: String },
    #[error("the {which} version {version} cannot be tested ({how})")]
    Untestable { which: &'static str, version: String, how: String },
    #[error("interrupted before the version was found")]
    Interrupted,
}

impl Diagnose for BisectError {
    fn code(&self) -> &'static str {
        match self {
            Self::NotAncestor { .. } => "bisect.not_ancestor",
            Self::NothingBetween { .. } => "bisect.nothing_between",
            Self::NotGood { .. } => "bisect.not_good",
            Self::NotBad { .. } => "bisect.not_bad",
            Self::Untestable { .. } => "bisect.untestable",
            Self::Interrupted => "bisect.interrupted",
        }
    }
}

hint!(BisectError, |error, avfs| {
    let hint = match error {
        Self::NotAncestor { .. } => return Some(format!("list the ancestors with: {avfs} log FORK")),
        Self::NothingBetween { .. } | Self::NotGood { .. } => {
            "name a version where it passes with: --good REF; print its output with: --verbose"
        }
        Self::NotBad { .. } => {
            "name a version where it fails with: --bad REF; print its output with: --verbose"
        }
        Self::Untestable { .. } => "name another with: --good REF, --bad REF",
        Self::Interrupted => return None,
    };
    Some(hint.to_owned())
});

pub fn run(ctx: &CommandContext, args: &BisectArgs) -> Outcome {
    args.options.check_without_fork()?;
    let vault = ctx.open_vault()?;
    let fork = fork_meant(&vault, &args.fork)?;
    let versions = history(&vault, &fork, args)?;
    let mut bisection = Bisection {
        ctx,
        args,
        fork: &fork.name,
        versions: &versions,
        probes: Vec::new(),
        how: HashMap::new(),
    };
    let asked = Asked::watch()?;
    let mut pool = WorkerPool::hire(
        usize::from(args.jobs),
        &ctx.ui.avfs,
        vault.path().unwrap_or(ctx.client.surroundings.cwd.as_path()),
        args.options.words(),
    )?;
    let found = bisection.search(&mut pool, &asked);
    let dismissed = pool.dismiss(ctx, &vault);
    let suspects = bisection.suspects(found?)?;
    for note in dismissed? {
        ctx.ui.note(format_args!("note: {}", note.text));
    }
    let run = match suspects {
        [only] => run_of(&vault, only)?,
        _ => None,
    };
    bisection.answer(suspects, run.as_ref())
}

/// The versions to search, oldest first: the good one, its successors, and the bad one last.
fn history(vault: &Vault, fork: &ForkRecord, args: &BisectArgs) -> Result<Vec<VersionRecord>, OpError> {
    let reader = vault.read()?;
    let resolve = |reference: &Option<Reference>, default| match reference {
        Some(reference) => Ok::<_, VaultError>(avfs_vault::version::resolve(&*reader, reference)?.0.id),
        None => Ok(default),
    };
    let (good, bad) = (resolve(&args.good, fork.base)?, resolve(&args.bad, fork.head)?);
    if good == bad {
        return Err(BisectError::NothingBetween { version: good.short() }.into());
    }
    let mut versions = Vec::new();
    for version in History::new(&*reader, bad) {
        let version = version?;
        // Refuses a partial version before any probe runs.
        root_of(&version)?;
        let last = version.id == good;
        versions.push(version);
        if last {
            versions.reverse();
            return Ok(versions);
        }
    }
    Err(BisectError::NotAncestor { good: good.short(), bad: bad.short() }.into())
}

/// The run that made a version; `None` if it is not known.
fn run_of(vault: &Vault, version: &VersionRecord) -> Result<Option<RunRecord>, OpError> {
    let Some(prefix) = version.run.as_deref().and_then(|run| RunPrefix::parse(run).ok()) else {
        return Ok(None);
    };
    match vault.run(&prefix) {
        Ok(run) => Ok(Some(run)),
        Err(VaultError::NoRun { .. }) => Ok(None),
        Err(error) => Err(error.into()),
    }
}

struct Bisection<'a> {
    ctx: &'a CommandContext,
    args: &'a BisectArgs,
    fork: &'a ForkName,
    versions: &'a [VersionRecord],
    probes: Vec<BisectProbe>,
    /// How the test ended, by position.
    how: HashMap<usize, String>,
}

impl<'a> Bisection<'a> {
    fn search(&mut self, pool: &mut WorkerPool<usize>, asked: &Asked) -> Result<Finding, OpError> {
        let contents = self.versions.iter().map(|version| version.content);
        let nothing = || BisectError::NothingBetween { version: self.fork.to_string() };
        let mut search = Search::new(contents).ok_or_else(nothing)?;
        for (position, version) in self.versions.iter().enumerate() {
            // Another version with the same content may still have its files.
            if version.pruned_at.is_some() && !self.is_kept(version) {
                search.take(position, ProbeVerdict::Skipped);
                self.how.insert(position, "its files were pruned".to_owned());
            }
        }
        let count = plural(self.versions.len() as u64 - 1, "version", "versions");
        self.ctx.ui.note(format_args!("searching {count} of {}", self.fork));
        loop {
            if let Some(finding) = search.finding() {
                return Ok(finding);
            }
            for position in search.next(pool.idle()) {
                self.give(pool, position);
            }
            if asked.times() > 0 {
                return Err(BisectError::Interrupted.into());
            }
            if let Some(done) = pool.next(LOOK_EVERY) {
                let position = done.tag;
                let verdict = self.take(done)?;
                search.take(position, verdict);
            }
        }
    }

    fn is_kept(&self, pruned: &VersionRecord) -> bool {
        self.versions.iter().any(|other| other.content == pruned.content && other.pruned_at.is_none())
    }

    fn version(&self, position: usize) -> &'a VersionRecord {
        // The search was created from these positions, so the index is valid.
        &self.versions[position]
    }

    fn give(&self, pool: &mut WorkerPool<usize>, position: usize) {
        let version = self.version(position);
        // A version with the same content gives the same result, and its files exist.
        let kept =
            self.versions.iter().find(|other| other.content == version.content && other.pruned_at.is_none());
        let mut request = self.args.what.line().map(|line| command_request(&line)).unwrap_or_default();
        request.from = Some(kept.unwrap_or(version).id.into());
        request.retention = Some(Retention::Discard);
        pool.give(position, WorkItem { request, item: None, look: false, tail_bytes: None });
    }

    /// The verdict of a probe; an error if the test could not be run.
    fn take(&mut self, done: Done<usize>) -> Result<ProbeVerdict, OpError> {
        let version = self.version(done.tag);
        let answer = done.came?.answer()?;
        let run_id = answer.run_id.clone();
        let ran = result_of(answer).map_err(|error| OpError::Body(not_probed(version, error)))?;
        let verdict = verdict(&ran);
        let how = ran.ending();
        let (name, word) = match verdict {
            ProbeVerdict::Good => (VerdictName::Good, "good"),
            ProbeVerdict::Bad => (VerdictName::Bad, "bad"),
            ProbeVerdict::Skipped => (VerdictName::Skipped, "skipped"),
        };
        let (id, message) = (version.id.short(), message_line(&avfs_present::version(version)));
        let seconds = ran.duration_ms / 1000.0;
        self.ctx.ui.note(format_args!("{id}  {word:<7}  {how:<9}  {seconds:7.2} s  {message}"));
        if self.args.verbose {
            self.ctx.ui.note_output(&ran);
        }
        let ended = EndedObject {
            run_id,
            exit_code: ran.exit_code.map(i32::from),
            signal: ran.signal,
            timed_out: ran.timed_out,
            duration_ms: ran.duration_ms,
        };
        self.probes.push(BisectProbe { version: version.id.to_hex(), verdict: name, ended });
        self.how.insert(done.tag, how);
        Ok(verdict)
    }

    /// The versions that include the first bad one.
    fn suspects(&self, finding: Finding) -> Result<&'a [VersionRecord], BisectError> {
        let last = self.versions.len() - 1;
        let version_and_ending = |position: usize| {
            // Another version with the same content may have been probed instead.
            let content = self.version(position).content;
            let mut same = (0..=last).filter(|other| self.version(*other).content == content);
            let how = same.find_map(|other| self.how.get(&other)).cloned().unwrap_or_default();
            (self.version(position).id.short(), how)
        };
        let (end, contrary) = match finding {
            Finding::Culprit(range) => return Ok(&self.versions[range]),
            Finding::Contrary(end) => (end, true),
            Finding::Undecided(end) => (end, false),
        };
        let (which, (version, how)) = match end {
            End::Good => ("good", version_and_ending(0)),
            End::Bad => ("bad", version_and_ending(last)),
        };
        Err(match (end, contrary) {
            (End::Good, true) => BisectError::NotGood { version, how },
            (End::Bad, true) => BisectError::NotBad { version, how },
            (_, false) => BisectError::Untestable { which, version, how },
        })
    }

    fn answer(self, suspects: &[VersionRecord], run: Option<&RunRecord>) -> Outcome {
        let only = match suspects {
            [only] => Some(only),
            _ => None,
        };
        let ctx = self.ctx;
        let result = Bisect {
            fork: self.fork.to_string(),
            good: avfs_present::version(self.version(0)),
            bad: avfs_present::version(self.version(self.versions.len() - 1)),
            versions: self.versions.len() as u64 - 1,
            first_bad: only.map(avfs_present::version),
            run: run.map(avfs_present::run),
            suspects: suspects.iter().map(avfs_present::version).collect(),
            probes: self.probes,
        };
        if let Some(version) = only {
            return ctx.ui.answer(&result, |out| show(ctx, out, version, run));
        }
        let count = plural(suspects.len() as u64, "version", "versions");
        let why = ErrorBody {
            code: "bisect.skipped".to_owned(),
            message: format!("the first bad version is one of {count}: all except the last cannot be tested"),
            hint: Some(format!("show the changes of each with: {} show REF", ctx.ui.avfs)),
        };
        ctx.ui.answer_no(&result, &why, |out| {
            out.line(format_args!("one of these is the first bad version:"))?;
            for version in suspects {
                let (id, at) = (out.paint(Tone::Id, version.id.short()), local_time(version.at));
                out.line(format_args!("{id}  {at}  {}", message_line(&avfs_present::version(version))))?;
            }
            out.flush()?;
            ctx.ui.print_error_body(&why);
            Ok(())
        })
    }
}

fn verdict(ran: &ResultObject) -> ProbeVerdict {
    match (ran.timed_out, ran.exit_code) {
        (false, Some(0)) => ProbeVerdict::Good,
        (false, Some(EXIT_SKIP)) => ProbeVerdict::Skipped,
        (_, _) => ProbeVerdict::Bad,
    }
}

/// The error for a version that could not be tested, with the message of its cause.
fn not_probed(version: &VersionRecord, fault: ErrorBody) -> ErrorBody {
    let hint = match fault.code.as_str() {
        "command.not_found" | "command.not_executable" => Some(
            "to skip versions without it, exit with 125: --shell 'test -x ./it || exit 125; ./it'".to_owned(),
        ),
        _ => fault.hint,
    };
    let message = format!("the test cannot be run on version {}: {}", version.id.short(), fault.message);
    ErrorBody { code: fault.code, message, hint }
}

fn show(
    ctx: &CommandContext,
    out: &mut Out,
    version: &VersionRecord,
    run: Option<&RunRecord>,
) -> Result<(), OpError> {
    let (id, avfs) = (version.id.short(), &ctx.ui.avfs);
    out.line(format_args!("first bad version  {}", out.paint(Tone::Id, version.id)))?;
    out.line(format_args!("made at            {}", local_time(version.at)))?;
    match run {
        Some(run) => {
            out.line(format_args!("by run             {}", out.paint(Tone::Id, &run.id)))?;
            let code = run.exit_code.map(|code| format!("exit {code}"));
            let signal = run.signal.map(|signal| format!("signal {signal}"));
            let ended = signal.or(code).unwrap_or_else(|| run.state.word().to_owned());
            out.line(format_args!("command            {}  ({ended})", command_line(&command_text(run))))?;
        }
        None => {
            out.line(format_args!("message            {}", message_line(&avfs_present::version(version))))?
        }
    }
    out.line(format_args!("  look:    {avfs} diff {id}~1 {id}"))?;
    out.line(format_args!("  more:    {avfs} show {id}"))
}
