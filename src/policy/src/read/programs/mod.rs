//! Knowledge about programs: `programs.toml` as static tables, and functions for what tables cannot describe.
//!
//! The build script generates the tables, so that nothing is parsed when a command is judged.

mod always;
mod builtins;
mod files;
mod git;
mod interpreters;
mod judge;
mod loopback;
mod network;
mod rules;
mod runners;
mod screen;
mod sed;
mod shells;
#[cfg(test)]
mod tests;
mod verbs;

use avfs_request::NestedUserns;

use super::findings::{Call, Findings, Input};
use super::options::{Does, Opt, Order, Takes};
use super::reader::Reader;
use crate::reading::Word;

pub use always::{NoRule, always};
pub use builtins::compared;
pub use judge::judge;

/// Judges a program whose arguments need more than a table.
type Code = fn(&'static Program, &Call<'_>, &mut Findings, &mut Reader<'_>);

/// The entry of a program, or of a subcommand.
pub struct Program {
    options: &'static [Opt],
    /// Options that are not in the table are read-only, although some in the table are not.
    any_option: bool,
    /// Options that are not in the table may write, although none in the table does.
    closed: bool,
    /// The first operand ends the options: the rest belongs to another program.
    options_first: bool,
    rules: &'static [Rule],
    /// Its effects, unless an option makes it read-only.
    does: &'static [Does],
    operands: Operands,
    verbs: Option<&'static Verbs>,
    runs: Runs,
    code: Option<Code>,
    screen: Option<Screen>,
    /// Subcommands that a permanent approval may stand for.
    always: &'static [&'static str],
    /// Programs that one may stand for by their name alone.
    always_names: &'static str,
    /// Options that name a program or a configuration.
    directs: &'static str,
}

/// A program that draws on the whole terminal and waits for keys.
struct Screen {
    /// Options, without their dashes, with which it does not.
    batch: &'static str,
    /// What to run without a terminal.
    instead: &'static str,
}

/// The effects of some arguments, regardless of the others.
struct Rule {
    /// All conditions must be met.
    when: &'static [When],
    does: &'static [Does],
    /// Ends the judgement of the program.
    stop: bool,
}

/// A condition on the arguments; lists are words separated by blanks.
enum When {
    /// The program has one of these names.
    Name(&'static str),
    /// An argument is one of these.
    Any(&'static str),
    /// No argument is one of these.
    Without(&'static str),
    /// An argument begins with one of these.
    Starts(&'static str),
    Contains(&'static str),
    First(&'static str),
    /// The first argument is not one of these, or missing.
    FirstNot(&'static str),
    /// The second argument is one of these.
    Second(&'static str),
    /// No argument can be the value of a flag to apt.
    NoBoolean,
    /// The only argument is one of these.
    Only(&'static str),
    /// One of these is among the options before the first operand.
    Leading(&'static str),
    /// One of these is an option, with one dash or two.
    Flags(&'static str),
    /// One of these letters is among the short options.
    Letters(&'static str),
    /// One of these options is given, according to the table.
    Given(&'static str),
    Absent(&'static str),
    /// An option is not in the table.
    Unlisted,
    /// Every option is in the table and not abbreviated, and every argument is known.
    Listed,
    /// Each of these options is given, without a value.
    Set(&'static str),
    /// No argument contains one of these.
    Lacks(&'static str),
    /// There are operands, and each is a path; so is each value of `-e`.
    LocalPaths,
    /// Every operand is a file of a package, and every option is in the table.
    Wheels,
    /// Every operand is an address of this machine, and no option or variable can redirect the connection.
    Loopback,
    /// As `Loopback` for the first operand alone.
    LoopbackFirst,
    /// As `Loopback` for the values of these options, which may also be paths of sockets, or be missing.
    LoopbackDefault(&'static str),
    /// The operands and the values of these options are names, and no addresses.
    Plain(&'static str),
    /// The first operand is one of these.
    Operand(&'static str),
    /// The first operand exists, and is not one of these.
    OperandNot(&'static str),
    /// An operand does not begin with `+`.
    Names,
    /// An operand has a host before a colon.
    Remote,
    /// An argument is an address of another machine.
    Address,
    /// An argument is unknown.
    Unknown,
    /// An unknown argument may be an option.
    Hidden,
    /// A user may type its input.
    Asks,
    /// The command may not create user namespaces.
    NoUserns,
    /// The home is not one of the run.
    ForeignHome,
    ArgsMin(usize),
    ArgsMax(usize),
    OperandsMin(usize),
    OperandsMax(usize),
}

/// How the operands are used.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Operands {
    Ignored,
    /// All are written or removed.
    Written,
    /// The last of several is written.
    LastWritten,
    /// Each is run by a shell.
    Run,
}

/// The part of its arguments that a program runs.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Runs {
    Nothing,
    /// A program and its arguments, after options and `skip` words.
    Words {
        skip: usize,
    },
    /// The same after assignments, as for `env`.
    Assignments,
    /// A shell text, after options and `skip` words.
    Text {
        skip: usize,
    },
    /// A program after one of these words.
    After(&'static str),
}

/// The effects of a program's subcommands.
struct Verbs {
    /// Lists of subcommands; `a/b` is the subcommand `b` of the subcommand `a`.
    groups: &'static [(&'static str, &'static [Does])],
    /// Subcommands in no list.
    other: &'static [Does],
    /// Without a subcommand.
    alone: &'static [Does],
    /// Options without a value that may precede the subcommand.
    flags: &'static str,
    /// Options with a value.
    values: &'static str,
}

include!(concat!(env!("OUT_DIR"), "/programs.rs"));

/// Lists of words in the data: variables, directories, settings of git.
pub mod data {
    include!(concat!(env!("OUT_DIR"), "/lists.rs"));
}

/// Names of a table, sorted: all in one text, each ending where the next begins.
struct Names {
    text: &'static str,
    /// The start of the name, and the index of its program.
    index: &'static [(u16, u16)],
}

impl Names {
    fn at(&self, at: usize) -> &'static str {
        let start = |at: usize| self.index.get(at).map_or(self.text.len(), |(start, _)| usize::from(*start));
        self.text.get(start(at)..start(at + 1)).unwrap_or_default()
    }

    fn find(&self, name: &str) -> Option<&'static Program> {
        let (mut low, mut high) = (0, self.index.len());
        while low < high {
            let middle = low.midpoint(high);
            match self.at(middle).cmp(name) {
                std::cmp::Ordering::Less => low = middle + 1,
                std::cmp::Ordering::Greater => high = middle,
                std::cmp::Ordering::Equal => {
                    return self
                        .index
                        .get(middle)
                        .and_then(|(_, program)| PROGRAMS.get(usize::from(*program)));
                }
            }
        }
        None
    }
}

pub fn find(name: &str) -> Option<&'static Program> {
    NAMES.find(name).or_else(|| {
        // `python3.12`, `gcc-13`, `clang++-18`: the version does not matter.
        let plain = name.trim_end_matches(|c: char| c.is_ascii_digit() || c == '.');
        let plain = plain.strip_suffix('-').unwrap_or(plain);
        (plain != name).then(|| NAMES.find(plain)).flatten()
    })
}

/// True for the command line of an editor that uses the whole terminal. Not for one with shell syntax.
pub fn fills_screen(editor: &str) -> bool {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b" \t./_-+:,".contains(&byte);
    if !editor.bytes().all(is_plain) {
        return false;
    }
    let words: Vec<Word> = editor.split_whitespace().map(|word| Word::Known(word.to_owned())).collect();
    let [Word::Known(program), args @ ..] = words.as_slice() else { return false };
    let name = program.rsplit('/').next().unwrap_or_default();
    let call = Call {
        name,
        args,
        input: Input::Inherited,
        redirected: false,
        userns: NestedUserns::Refused,
        has_own_home: false,
    };
    find(name).and_then(|program| program.screen.as_ref()).is_some_and(|screen| !screen.is_batch(&call))
}

impl Program {
    fn order(&self) -> Order {
        let runs_rest = matches!(self.runs, Runs::Words { .. } | Runs::Assignments | Runs::Text { .. });
        if self.options_first || runs_rest { Order::OptionsFirst } else { Order::Any }
    }

    /// Whether options that are not in its table may write.
    fn is_closed(&self) -> bool {
        self.closed || !self.any_option && self.options.iter().any(Opt::has_effect)
    }

    /// Whether its options alone determine its effects.
    pub fn is_plain(&self) -> bool {
        let runs = self.runs != Runs::Nothing || self.operands == Operands::Run;
        self.rules.is_empty() && self.verbs.is_none() && self.code.is_none() && !runs
    }
}
