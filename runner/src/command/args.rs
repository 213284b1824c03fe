//! The command line of `avfs-run`: the options of a run, and those about the answer.

use std::ffi::OsString;
use std::path::PathBuf;

use clap::{ArgGroup, Parser};

use avfs_present::Avfs;
use avfs_request::config::Config;
use avfs_request::{
    ChangeForm, ExecutionRequest, JsonForm, MergedOutput, Outside, ResolveError, RunSpec, Streams,
};

/// What is kept of each stream where nobody says otherwise.
const OUTPUT_BYTES_MAX: u64 = 10 << 20;

/// Run one command over a fork of the workspace, in a sandbox
///
/// The command sees the workspace at its own path, the system read-only, an empty home and no network. What
/// it changes becomes a version in the vault; the host is not touched.
///
/// Without --fork the directory's present state is the start, and changes are kept for review: avfs diff,
/// avfs apply, avfs discard.
///
/// Before anything else a policy decides. What only looks, writes or deletes inside is run. What needs a network it
/// is not given waits for an approval (avfs approvals), what reaches beyond the sandbox is denied. Why: avfs policy
/// explain -- COMMAND.
///
/// Exit codes: the command's own; 128+N killed by signal N; 120 an approval is required; 121 the sandbox could
/// not be set up; 122 denied; 123 capture failed (avfs recover finishes it); 124 timed out; 125
/// avfs-run's own error; 126 not executable; 127 not found.
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
    /// A request in JSON, from a file or from standard input; options win over what it says
    #[arg(long, value_name = "FILE|-")]
    pub request: Option<PathBuf>,

    /// How to tell the changes [default: summary] [possible values: summary, tree, stat, patch]
    #[arg(long, value_name = "FORM", help_heading = "Output")]
    pub show: Option<ChangeForm>,
    /// Print one JSON envelope to stdout, the command's output in it. compact: without what is null, changes by
    /// directory, at most 16 KiB [default: full] [possible values: full, compact]
    #[arg(
        long, value_name = "FORM", num_args = 0..=1, require_equals = true, default_missing_value = "full",
        help_heading = "Output"
    )]
    pub json: Option<JsonForm>,
    /// Write the JSON envelope to this descriptor; the command's output streams
    #[arg(long, value_name = "FD", conflicts_with = "json", help_heading = "Output")]
    pub json_fd: Option<i32>,
    /// No summary on stderr
    #[arg(short, long, help_heading = "Output")]
    pub quiet: bool,
    /// Say what would be done, and do nothing
    #[arg(long, help_heading = "Output")]
    pub dry_run: bool,
    /// Say whether a remembered result would be taken, and do nothing (for avfs cache explain)
    #[arg(long, hide = true)]
    pub explain_cache: bool,
    /// Print the manual page
    #[arg(long, hide = true)]
    pub man: bool,
    /// Try each piece of the sandbox and print what came of it (for avfs doctor)
    #[arg(long, hide = true)]
    pub probe: bool,
    /// Take orders from standard input, one line of JSON each, and answer each with one (for avfs batch)
    #[arg(long, hide = true)]
    pub serve: bool,
    /// With --serve: how the user named the vault, for commands in hints
    #[arg(long, hide = true)]
    pub vault_typed: Option<OsString>,
}

impl Args {
    /// How hints call `avfs`.
    pub fn avfs(&self) -> Avfs {
        match self.serve {
            true => Avfs { vault: self.vault_typed.clone() },
            false => Avfs::on(self.spec.vault.as_ref().map(|vault| vault.as_os_str())),
        }
    }

    /// The request that the words stand for.
    pub fn request(&self, outside: &Outside, config: &Config) -> Result<ExecutionRequest, ResolveError> {
        let request = ExecutionRequest::resolve(&self.spec, outside, config)?;
        Ok(ExecutionRequest {
            streams: self.streams(),
            show: self.show.unwrap_or(ChangeForm::Summary),
            ..request
        })
    }

    /// What becomes of the output: JSON holds it.
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
    fn a_word_after_two_dashes_is_never_an_option() {
        let args = Args::try_parse_from(["avfs-run", "--json", "--", "ls", "--json", "--fork"]).unwrap();
        assert_eq!(args.spec.words, ["ls", "--json", "--fork"]);
        assert!(args.spec.fork.is_none());
    }

    #[test]
    fn json_does_not_take_the_next_word() {
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
    fn one_command_or_one_line_is_required() {
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
    fn a_run_of_its_own_can_begin_anywhere() {
        let from = Some(Reference::parse("main~1").unwrap());
        assert_eq!(request(&["--from", "main~1", "true"]).unwrap().fork, ForkChoice::Ephemeral { from });
    }

    #[test]
    fn options_win_over_the_request_beneath_them() {
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
