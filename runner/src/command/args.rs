//! The command line of `avfs-run`: the options of a run and of its output.

use std::ffi::OsString;
use std::path::PathBuf;

use clap::{ArgGroup, Parser};

use avfs_present::Avfs;
use avfs_request::config::Config;
use avfs_request::{
    CacheMode, ChangeForm, ExecutionRequest, JsonForm, MergedOutput, Outside, ResolveError, RunSpec, Streams,
};

/// The default limit for the captured output of each stream.
const OUTPUT_BYTES_MAX: u64 = 10 << 20;

/// Run one command over a fork of the workspace, in a sandbox
///
/// The command sees the workspace at its own path, the system read-only, an empty home and no network. Its changes
/// become a version in the vault; the host is not modified, except with --apply or --rw.
///
/// Without --fork, the run starts from the current state of the directory, and its changes are kept for review: avfs
/// diff, avfs apply, avfs discard.
///
/// A policy decides first. Commands that only read, write or delete inside the sandbox are run. A command that needs
/// network access it does not have requires an approval (avfs approvals); one that reaches beyond the sandbox is
/// denied. For the reason: avfs policy explain -- COMMAND.
///
/// Exit codes: the command's own; 128+N killed by signal N; 120 approval required; 121 the sandbox could not be set
/// up; 122 denied; 123 capture failed (run avfs recover); 124 timed out; 125 avfs-run itself failed; 126 not
/// executable; 127 not found.
#[derive(Parser, Clone, Debug)]
#[command(name = "avfs-run", version, max_term_width = 100)]
#[command(override_usage = "\
avfs-run [OPTIONS] [--] <COMMAND>...
       avfs-run [OPTIONS] --shell <LINE>
       avfs-run [OPTIONS] --request <FILE|->")]
#[command(group = ArgGroup::new("what").required(true).args(["command", "shell", "request", "probe", "man", "serve"]))]
#[command(after_help = "\
Examples:
  avfs-run -- make test
  avfs-run --apply -- cargo fmt
  avfs-run --fork fix-1 --net host --shell 'npm install && npm test'
  avfs-run --json -- python3 script.py
  avfs-run --json=compact --policy agent -- make test
  avfs-run --json --request request.json
  avfs-run --cache write -- make test
  avfs-run --reproducible --fork work -- make dist
  avfs-run --policy agent --approval wait --net host -- npm ci
  avfs-run --net host --secret GITHUB_TOKEN -- gh pr list
  avfs-run --net host --secret NPM_TOKEN --secret KEY=deploy.pem --shell 'sign --key $KEY_FILE'")]
pub struct Args {
    #[command(flatten)]
    pub spec: RunSpec,
    /// Read a JSON request from a file or from standard input; options take precedence over it
    #[arg(long, value_name = "FILE|-")]
    pub request: Option<PathBuf>,

    /// Show the changes in this form [default: summary] [possible values: summary, tree, stat, patch]
    #[arg(long, value_name = "FORM", help_heading = "Output")]
    pub show: Option<ChangeForm>,
    /// Print one JSON envelope to stdout, including the command's output. compact: omit null values, group changes by
    /// directory, at most 16 KiB [default: full] [possible values: full, compact]
    #[arg(
        long, value_name = "FORM", num_args = 0..=1, require_equals = true, default_missing_value = "full",
        help_heading = "Output"
    )]
    pub json: Option<JsonForm>,
    /// Write the JSON envelope to this descriptor; the command's output is streamed as usual
    #[arg(long, value_name = "FD", conflicts_with = "json", help_heading = "Output")]
    pub json_fd: Option<i32>,
    /// Do not print a summary to stderr
    #[arg(short, long, help_heading = "Output")]
    pub quiet: bool,
    /// Print what would be done, without doing it
    #[arg(long, help_heading = "Output")]
    pub dry_run: bool,
    /// Print whether a cached result would be used, without running anything (for avfs cache explain)
    #[arg(long, hide = true)]
    pub explain_cache: bool,
    /// Print the manual page
    #[arg(long, hide = true)]
    pub man: bool,
    /// Test each feature of the sandbox and print the results (for avfs doctor)
    #[arg(long, hide = true)]
    pub probe: bool,
    /// Read orders from standard input, one JSON object per line, and answer each with one line (for avfs batch)
    #[arg(long, hide = true)]
    pub serve: bool,
    /// Whether --pure is an option of this command line, and not only a key of a request.
    #[arg(skip)]
    pub pure_given: bool,
    /// With --serve: the vault as the user named it, for commands in hints
    #[arg(long, hide = true)]
    pub vault_typed: Option<OsString>,
}

impl Args {
    /// The `avfs` command shown in hints.
    pub fn avfs(&self) -> Avfs {
        match self.serve {
            true => Avfs { vault: self.vault_typed.clone() },
            false => Avfs::on(self.spec.vault.as_ref().map(|vault| vault.as_os_str())),
        }
    }

    /// Resolves the arguments into a request.
    pub fn request(&self, outside: &Outside, config: &Config) -> Result<ExecutionRequest, ResolveError> {
        let request = ExecutionRequest::resolve(&self.spec, outside, config)?;
        // A recorded request may have the key without the cache; an option without an effect is a mistake.
        if self.pure_given && request.cache == CacheMode::Off && !self.explain_cache {
            return Err(ResolveError::PureWithoutCache);
        }
        Ok(ExecutionRequest {
            streams: self.streams(),
            show: self.show.unwrap_or(ChangeForm::Summary),
            ..request
        })
    }

    /// Where the output goes. With `--json` it is captured for the envelope.
    fn streams(&self) -> Streams {
        let bytes_max = self.spec.output_max.map_or(OUTPUT_BYTES_MAX, |size| size.0);
        let bytes_max = usize::try_from(bytes_max).unwrap_or(usize::MAX);
        match (self.json, self.spec.keep_output) {
            (Some(_), _) => Streams::Captured { bytes_max },
            (None, true) => Streams::Teed { bytes_max, merged: MergedOutput::Kept },
            (None, false) => Streams::Passed,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::ffi::OsStr;

    use avfs_request::{ForkChoice, Terminal};
    use avfs_types::reference::Reference;

    use super::*;

    fn request(words: &[&str]) -> Result<ExecutionRequest, ResolveError> {
        let outside = Outside {
            cwd: "/w".into(),
            environment: vec![("PATH".into(), "/bin".into())],
            terminal: Terminal::None,
            streams: Terminal::None,
        };
        let args = Args::try_parse_from(["avfs-run"].iter().chain(words)).unwrap();
        args.request(&outside, &Config::default())
    }

    #[test]
    fn words_after_two_dashes_are_not_options() {
        let args = Args::try_parse_from(["avfs-run", "--json", "--", "ls", "--json", "--fork"]).unwrap();
        assert_eq!(args.spec.words, ["ls", "--json", "--fork"]);
        assert!(args.spec.fork.is_none());
    }

    #[test]
    fn json_does_not_consume_the_next_word() {
        let form = |words: &[&str]| {
            let args = Args::try_parse_from(["avfs-run"].iter().chain(words)).unwrap();
            (args.json, args.spec.words)
        };
        assert_eq!(form(&["--json", "compact"]), (Some(JsonForm::Full), vec!["compact".into()]));
        assert_eq!(form(&["--json=compact", "ls"]), (Some(JsonForm::Compact), vec!["ls".into()]));
        assert_eq!(form(&["ls"]), (None, vec!["ls".into()]));
        assert!(Args::try_parse_from(["avfs-run", "--json=tiny", "ls"]).is_err());
    }

    #[test]
    fn a_command_or_a_shell_line_is_required() {
        assert!(Args::try_parse_from(["avfs-run"]).is_err());
        assert!(Args::try_parse_from(["avfs-run", "--shell", "x", "--", "y"]).is_err());
        assert!(Args::try_parse_from(["avfs-run", "--shell", "a && b"]).is_ok());
    }

    #[test]
    fn variables_are_passed_or_set() {
        let set = request(&["--env", "A=b=c", "--env", "PATH", "true"]).unwrap();
        assert_eq!(set.environment.get("A"), Some(OsStr::new("b=c")));
        assert!(matches!(request(&["--env", "=x", "true"]), Err(ResolveError::BadEnv { .. })));
    }

    #[test]
    fn an_ephemeral_run_can_start_from_any_version() {
        let from = Some(Reference::parse("main~1").unwrap());
        assert_eq!(request(&["--from", "main~1", "true"]).unwrap().fork, ForkChoice::Ephemeral { from });
    }

    #[test]
    fn options_take_precedence_over_the_request() {
        let below = RunSpec::parse(
            br#"{"command": ["x"], "timeout_ms": 5, "retention": "discard", "net": "host", "ro": ["/b"], "pure": true}"#,
        );
        let args = Args::try_parse_from(["avfs-run", "--timeout", "9s", "--apply", "--ro", "/a", "--", "y"]);
        let spec = args.unwrap().spec.over(below.unwrap());
        let request = |spec: &RunSpec| {
            let outside = Outside {
                cwd: "/".into(),
                environment: Vec::new(),
                terminal: Terminal::None,
                streams: Terminal::None,
            };
            ExecutionRequest::resolve(spec, &outside, &Config::default())
        };
        assert_eq!(spec.ro, [PathBuf::from("/a"), PathBuf::from("/b")]);
        let request = request(&RunSpec { ro: Vec::new(), ..spec }).unwrap();
        assert_eq!(request.timeout.to_string(), "9s");
        assert_eq!(request.retention.word(), "apply");
        assert_eq!(request.net.to_string(), "host");
        assert_eq!(request.purity.word(), "declared");
        assert_eq!(request.command.shown(), "y");
    }
}
