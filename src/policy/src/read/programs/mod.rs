//! What is known about programs: `programs.toml` as static tables, and functions for what tables cannot say.
//!
//! The build script turns the data into the tables, so that nothing is parsed when a command is read.

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

use super::findings::{Call, Findings};
use super::options::{Does, Opt, Order, Takes};
use super::reader::Reader;

pub use judge::judge;

/// Judges a program whose words need more than a table.
type Code = fn(&'static Program, &Call<'_>, &mut Findings, &mut Reader<'_>);

/// What is known about a program, or about a subcommand of one.
pub struct Program {
    options: &'static [Opt],
    /// Options that are not in the table only look, although some in the table do more.
    any_option: bool,
    /// Options that are not in the table may write, although none in the table does.
    closed: bool,
    /// The first operand ends the options: what follows belongs to another program.
    options_first: bool,
    rules: &'static [Rule],
    /// What it does unless an option says that it only looks.
    does: &'static [Does],
    operands: Operands,
    verbs: Option<&'static Verbs>,
    runs: Runs,
    code: Option<Code>,
    screen: Option<Screen>,
}

/// A program that draws on the whole terminal and waits for keys.
struct Screen {
    /// Options, without their dashes, with which it does not.
    batch: &'static str,
    /// What to run where there is no terminal.
    instead: &'static str,
}

/// What follows from some words, whatever else is in the command.
struct Rule {
    /// All have to hold.
    when: &'static [When],
    does: &'static [Does],
    /// Nothing more is to be said about the program.
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
    /// The first argument is none of these, or missing.
    FirstNot(&'static str),
    /// There is one argument, and it is one of these.
    Only(&'static str),
    /// One of these is among the options before the first operand.
    Leading(&'static str),
    /// One of these is an option, with one dash or two.
    Flags(&'static str),
    /// One of these letters is among short options.
    Letters(&'static str),
    /// One of these options is given, as the table reads them.
    Given(&'static str),
    Absent(&'static str),
    /// An option is not in the table.
    Unlisted,
    /// Every option is in the table and written out, and every argument is known.
    Listed,
    /// Each of these options is given, without a value.
    Set(&'static str),
    /// No argument contains one of these.
    Lacks(&'static str),
    /// There are operands, and each is a path; so is each value of `-e`.
    LocalPaths,
    /// Every operand is an address of this machine, and no option or variable can lead elsewhere.
    Loopback,
    /// The first operand is one of these.
    Operand(&'static str),
    /// There is a first operand, and it is none of these.
    OperandNot(&'static str),
    /// An operand does not begin with `+`.
    Names,
    /// An operand has a host in front of a colon.
    Remote,
    /// An argument is an address of another machine.
    Address,
    /// An argument is only known to the shell.
    Unknown,
    /// It may be an option.
    Hidden,
    /// A person may be at the other end of its input.
    Asks,
    ArgsMin(usize),
    ArgsMax(usize),
    OperandsMin(usize),
    OperandsMax(usize),
}

/// What becomes of the words that are no options.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Operands {
    Ignored,
    /// All are written to or removed.
    Written,
    /// The last of several is written to.
    LastWritten,
    /// Each is run by a shell.
    Run,
}

/// What of its arguments a program runs.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Runs {
    Nothing,
    /// A program and its arguments, after options and `skip` words.
    Words {
        skip: usize,
    },
    /// The same after assignments, as `env` takes them.
    Assignments,
    /// A text for a shell, after options and `skip` words.
    Text {
        skip: usize,
    },
    /// A program after one of these words.
    After(&'static str),
}

/// What the subcommands of a program do.
struct Verbs {
    /// Lists of subcommands; `a/b` is the subcommand `b` of the subcommand `a`.
    groups: &'static [(&'static str, &'static [Does])],
    /// Those in no list.
    other: &'static [Does],
    /// Without any.
    alone: &'static [Does],
    /// Options without a value that may stand before the subcommand.
    flags: &'static str,
    /// Options with one.
    values: &'static str,
}

include!(concat!(env!("OUT_DIR"), "/programs.rs"));

/// Lists of words in the data: variables, directories, settings of git.
pub mod data {
    include!(concat!(env!("OUT_DIR"), "/lists.rs"));
}

/// A name in a table that is sorted by names: all of them in one text, each up to where the next begins.
struct Names {
    text: &'static str,
    /// Where the name begins, and which program it is.
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
        // `python3.12`, `gcc-13`, `clang++-18`: the version says nothing.
        let plain = name.trim_end_matches(|c: char| c.is_ascii_digit() || c == '.');
        let plain = plain.strip_suffix('-').unwrap_or(plain);
        (plain != name).then(|| NAMES.find(plain)).flatten()
    })
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

    /// Whether its options alone say what it does.
    pub fn is_plain(&self) -> bool {
        let runs = self.runs != Runs::Nothing || self.operands == Operands::Run;
        self.rules.is_empty() && self.verbs.is_none() && self.code.is_none() && !runs
    }
}
