//! The first words of a rule that allows a command permanently.
//!
//! An allow-list: a rule stands only for programs and subcommands that `programs.toml` names for it. Any other one may
//! run code that a command in the sandbox can write.

use super::{Program, SUBCOMMANDS, data, find};
use crate::read::findings::shown;
use crate::read::options::{self, Takes, lists};
use crate::reading::Word;

/// Why no rule can stand for a command.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NoRule {
    #[error("its program is known only at run time")]
    Computed,
    /// It may be a program of the workspace.
    #[error("`{program}` is the path of a file, which a command could replace")]
    Path { program: String },
    #[error("`{program}` is {path} on this PATH, which a command could replace")]
    Replaceable { program: String, path: String },
    #[error("`{words}` is not on the list of commands that run no code of the workspace")]
    Unlisted { words: String },
    #[error("`{option}` comes before the subcommand, so a rule without it would allow other commands too")]
    OptionFirst {
        option: String,
        /// The directory that the option names.
        directory: Option<String>,
        /// The words up to the subcommand.
        words: Vec<String>,
    },
    #[error("the prefix ends before the subcommand")]
    Short { words: Vec<String> },
    #[error("`{option}` names a program or a configuration, which a command could replace")]
    Directs { option: String },
}

/// The first words of a rule for a command: its program and its subcommand, or as many as given.
pub fn always(words: &[Word], given: Option<usize>) -> Result<Vec<String>, NoRule> {
    let Some((Word::Known(program), args)) = words.split_first() else { return Err(NoRule::Computed) };
    if program.contains('/') {
        return Err(NoRule::Path { program: shown(program) });
    }
    let unlisted = |words: &[&str]| NoRule::Unlisted { words: shown(&words.join(" ")) };
    let entry = find(program).ok_or_else(|| unlisted(&[program]))?;
    if let Some(option) = directing_option(entry, args) {
        return Err(NoRule::Directs { option });
    }
    let known = |count: usize| words.iter().take(count).filter_map(Word::known).map(str::to_owned).collect();
    if lists(entry.always_names, program) {
        return Ok(known(given.unwrap_or(1)));
    }
    let before = options_before(entry, args);
    let rest = args.get(before..).unwrap_or_default();
    let verb = rest.first().map_or("", Word::shown);
    let listed = entry.always.iter().filter(|listed| begins_with(rest, listed));
    let Some(verbs) = listed.map(|listed| listed.split(' ').count()).max() else {
        return Err(unlisted(&[program, verb]));
    };
    if let Some(option) = subcommand_option(program, verb, rest) {
        return Err(NoRule::Directs { option });
    }
    let least = 1 + before + verbs;
    match (given, args.first()) {
        (Some(count), _) if count >= least => Ok(known(count)),
        (Some(_), _) => Err(NoRule::Short { words: known(least) }),
        (None, Some(option)) if before > 0 => {
            let is_directory = lists(data::DIRECTORY_OPTIONS, option.shown());
            let directory = args.get(1).filter(|_| is_directory && before == 2).and_then(Word::known);
            let (option, directory) = (shown(option.shown()), directory.map(str::to_owned));
            Err(NoRule::OptionFirst { option, directory, words: known(least) })
        }
        (None, _) => Ok(known(least)),
    }
}

fn begins_with(words: &[Word], listed: &str) -> bool {
    let mut words = words.iter().map(Word::known);
    listed.split(' ').all(|wanted| words.next().flatten() == Some(wanted))
}

/// The number of words before the subcommand.
fn options_before(program: &Program, args: &[Word]) -> usize {
    let takes_value = |option: &str| {
        let name = option.trim_start_matches('-');
        let by_table = options::find(program.options, name).is_some_and(|it| it.1 == Takes::Value);
        by_table || program.verbs.is_some_and(|verbs| lists(verbs.values, option))
    };
    let mut at = 0;
    while let Some(word) = args.get(at).map(Word::shown).filter(|word| word.starts_with(['-', '+'])) {
        at += if takes_value(word) { 2 } else { 1 };
    }
    at
}

/// An option of the subcommand that names a program or a configuration.
fn subcommand_option(program: &str, verb: &str, rest: &[Word]) -> Option<String> {
    let entry = SUBCOMMANDS.find(&format!("{program} {verb}"))?;
    directing_option(entry, rest.get(1..).unwrap_or_default())
}

/// The first option that names a program or a configuration. Long options may be abbreviated, have one dash, or
/// continue: `config` is also `config-file`.
fn directing_option(program: &Program, args: &[Word]) -> Option<String> {
    let directs = |option: &str| {
        let dashes = option.len() - option.trim_start_matches('-').len();
        let name = option[dashes..].split('=').next().unwrap_or_default();
        let mut known = program.directs.split_ascii_whitespace();
        known.any(|known| match known.chars().count() {
            1 => dashes == 1 && has_letter(program, &option[1..], known),
            _ => name.len() > 1 && (name.starts_with(known) || dashes == 2 && known.starts_with(name)),
        })
    };
    let before_dashes = args.iter().map(Word::shown).take_while(|word| *word != "--");
    let mut options = before_dashes.filter(|word| word.len() > 1 && word.starts_with('-'));
    options.find(|option| directs(option)).map(shown)
}

/// Whether a word of short options has this one: up to the first that takes the rest of the word as its value.
fn has_letter(program: &Program, letters: &str, wanted: &str) -> bool {
    for letter in letters.chars().map(String::from) {
        if letter == wanted {
            return true;
        }
        if options::find(program.options, &letter).is_some_and(|option| option.1 != Takes::Nothing) {
            return false;
        }
    }
    false
}

#[cfg(test)]
mod tests {
    use super::super::{NAMES, Operands, PROGRAMS, Runs};
    use super::*;

    fn words(line: &str) -> Vec<Word> {
        let word = |text: &str| match text.contains('$') {
            true => Word::Unknown(text.to_owned()),
            false => Word::Known(text.to_owned()),
        };
        line.split(' ').map(word).collect()
    }

    fn rule(line: &str) -> Result<String, NoRule> {
        always(&words(line), None).map(|words| words.join(" "))
    }

    fn given(line: &str, prefix: &str) -> Result<String, NoRule> {
        always(&words(line), Some(prefix.split(' ').count())).map(|words| words.join(" "))
    }

    #[test]
    fn a_rule_has_the_program_and_its_subcommand() {
        for (line, prefix) in [
            ("git fetch --prune origin", "git fetch"),
            ("git remote update", "git remote update"),
            ("git submodule update --init", "git submodule update"),
            ("npm ci", "npm ci"),
            ("npm install left-pad", "npm install"),
            ("uv pip install x", "uv pip install"),
            ("go mod download", "go mod download"),
            ("pip3.12 install x", "pip3.12 install"),
            ("curl -sSL https://x", "curl"),
            ("curl $URL", "curl"),
            ("wget --user-agent x https://y", "wget"),
            ("ping localhost", "ping"),
            ("gh pr list", "gh pr"),
        ] {
            assert_eq!(rule(line), Ok(prefix.to_owned()), "{line}");
        }
        assert_eq!(given("git fetch origin main", "git fetch origin"), Ok("git fetch origin".to_owned()));
        assert_eq!(given("git -C x fetch", "git -C x fetch"), Ok("git -C x fetch".to_owned()));
        assert_eq!(given("git -C x fetch", "git -C"), Err(NoRule::Short { words: split("git -C x fetch") }));
        assert_eq!(given("npm ci", "npm"), Err(NoRule::Short { words: split("npm ci") }));
    }

    fn split(line: &str) -> Vec<String> {
        line.split(' ').map(str::to_owned).collect()
    }

    #[test]
    fn no_rule_stands_for_what_runs_code_of_the_workspace() {
        for line in [
            "npm run build",
            "npm exec x",
            "npm x",
            "npm init",
            "npm test",
            "npx x",
            "yarn",
            "yarn dlx x",
            "pnpm exec x",
            "cargo run",
            "cargo test",
            "cargo build",
            "cargo audit",
            "go run x@latest",
            "go generate",
            "uv run x",
            "uv tool run x",
            "uvx x",
            "poetry run x",
            "pip",
            "julia x",
            "java x",
            "cmake .",
            "make",
            "make install",
            "python3 x",
            "python3",
            "node x",
            "deno run https://x",
            "sh x",
            "bash",
            "env curl x",
            "xargs curl",
            "timeout 5 curl x",
            "find . -exec x",
            "awk x",
            "ssh host",
            "docker run x",
            "terraform init",
            "nix run x",
            "mvn deploy",
            "gradle x",
            "lftp x",
            "yt-dlp x",
            "aria2c x",
            "psql x",
            "composer create-project x",
            "flutter pub run x",
            "git",
            "git bisect run x",
            "git submodule foreach x",
            "git send-email x",
            "unknown-program",
            "curl-evil x",
            "rustup run x y",
            "conda run x",
            "gem exec x",
            "bundle exec x",
        ] {
            assert!(matches!(rule(line), Err(NoRule::Unlisted { .. })), "{line}: {:?}", rule(line));
            let all = given(line, line);
            assert!(matches!(all, Err(NoRule::Unlisted { .. })), "{line}: {all:?}");
        }
        for line in
            ["./x fetch", "node_modules/.bin/git fetch", ".venv/bin/pip install x", "/usr/bin/git fetch"]
        {
            assert!(matches!(rule(line), Err(NoRule::Path { .. })), "{line}: {:?}", rule(line));
        }
        assert_eq!(rule("$git fetch"), Err(NoRule::Computed));
    }

    #[test]
    fn options_before_the_subcommand_are_refused() {
        let first = |option: &str, directory: Option<&str>, line: &str| {
            let directory = directory.map(str::to_owned);
            Err(NoRule::OptionFirst { option: option.to_owned(), directory, words: split(line) })
        };
        for (line, option, directory, prefix) in [
            ("git -C x fetch", "-C", Some("x"), "git -C x fetch"),
            ("git --no-pager fetch", "--no-pager", None, "git --no-pager fetch"),
            ("git --git-dir x fetch", "--git-dir", None, "git --git-dir x fetch"),
            ("npm --prefix sub ci", "--prefix", Some("sub"), "npm --prefix sub ci"),
            ("npm -s ci", "-s", None, "npm -s ci"),
            ("cargo +nightly fetch", "+nightly", None, "cargo +nightly fetch"),
            ("go -C x get y", "-C", Some("x"), "go -C x get"),
        ] {
            assert_eq!(rule(line), first(option, directory, prefix), "{line}");
        }
    }

    #[test]
    fn options_that_name_a_program_or_a_configuration_are_refused() {
        for line in [
            "wget --use-askpass=./x https://y",
            "wget --use-ask ./x https://y",
            "wget -e x=y https://z",
            "wget -qe x=y z",
            "wget --config=x https://y",
            "curl -K x",
            "curl -sK x",
            "curl --config x",
            "curl --conf x",
            "git -c core.sshCommand=x fetch",
            "git --exec-path=x fetch",
            "git --config-env a=b fetch",
            "git fetch --upload-pack ./x",
            "git push --receive-pack=./x",
            "git push --exec x",
            "git clone -u ./x y",
            "git clone -c a=b x",
            "git clone --config a=b x",
            "git clone --template x y",
            "rsync -e x a b:c",
            "rsync --rsh=x a b:c",
            "scp -o ProxyCommand=x a b:c",
            "scp -S x a b:c",
            "npm ci --script-shell ./x",
            "npm --userconfig x ci",
            "pip install --python ./x y",
            "uv sync -p ./x",
            "cargo fetch --config x",
            "go get -toolexec=x y",
            "go list --modfile x",
            "hg pull --config x",
            "hg pull -e x",
            "svn up --config-dir x",
            "curl --config=$X",
        ] {
            assert!(matches!(rule(line), Err(NoRule::Directs { .. })), "{line}: {:?}", rule(line));
            let all = given(line, line);
            assert!(matches!(all, Err(NoRule::Directs { .. })), "{line}: {all:?}");
        }
        for line in
            ["curl -o K x", "curl -oK x", "curl -- -K", "git push -u origin x", "git clone x", "wget -qO- x"]
        {
            assert!(rule(line).is_ok(), "{line}: {:?}", rule(line));
        }
    }

    /// The list has programs that it names, and none that runs its arguments.
    #[test]
    fn listed_programs_run_nothing_that_their_arguments_name() {
        let entries =
            (0..NAMES.index.len()).map(|at| (NAMES.at(at), &PROGRAMS[usize::from(NAMES.index[at].1)]));
        let mut count = 0;
        for (name, program) in
            entries.filter(|(_, program)| !program.always_names.is_empty() || !program.always.is_empty())
        {
            count += 1;
            let runs = program.runs != Runs::Nothing || program.operands == Operands::Run;
            assert!(!runs && !lists(data::INTERPRETERS, name), "{name} runs its arguments");
            for word in program.always_names.split_ascii_whitespace() {
                assert!(find(word).is_some_and(|found| std::ptr::eq(found, program)), "{word}");
            }
            for verb in program.always {
                let subcommand = SUBCOMMANDS.find(&format!("{name} {verb}"));
                assert!(subcommand.is_none_or(|it| it.runs == Runs::Nothing), "{name} {verb}");
            }
        }
        assert!(count > 50, "only {count} programs");
    }
}
