//! Options of programs as data, and the options of a command.

use super::super::reading::Word;
use super::findings::{Findings, shown};
use super::path_location::PathLocation;
use super::reader::Reader;
use super::shell::Dialect;

/// Whether an option takes a value.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Takes {
    Nothing,
    /// `-o x`, `-ox`, `--out x`, `--out=x`.
    Value,
    /// `-ix`, `--in-place=x`: only in the same word.
    Attached,
}

/// The effect of an option, or of a program. The text completes a sentence about it.
#[derive(Clone, Copy)]
pub enum Does {
    /// No effect; listed because of its value.
    Nothing,
    /// Makes the program read-only.
    Looks,
    /// The value is a file that is written.
    Writes(&'static str),
    /// As `Writes`, but after `|` or `!` the value is run by a shell.
    Pipes(&'static str),
    Mutates(&'static str),
    /// Changes files in the working directory, which may be outside of the workspace.
    Changes(&'static str),
    Destroys(&'static str),
    Networks(&'static str),
    Escapes(&'static str),
    /// Only queries, but beyond the sandbox.
    Reaches(&'static str),
    Talks(&'static str),
    /// Opens the editor of git on the whole terminal; the text is a form that does not.
    Edits(&'static str),
    /// The value is run by a shell.
    RunsText(&'static str),
    /// It is uncertain what will run.
    Doubts(&'static str),
}

/// Names without dashes, separated by blanks; a name of one letter is a short option.
pub struct Opt(pub &'static str, pub Takes, pub Does);

impl Opt {
    fn is_named(&self, name: &str) -> bool {
        lists(self.0, name)
    }

    pub fn has_effect(&self) -> bool {
        !matches!(self.2, Does::Nothing | Does::Looks)
    }
}

/// Whether a word is in a list of words separated by blanks.
pub fn lists(list: &str, word: &str) -> bool {
    list.split_ascii_whitespace().any(|known| known == word)
}

/// An option of a command, with its value.
pub struct Given<'c> {
    pub name: &'c str,
    pub value: Option<Word>,
}

/// The parsed arguments of a command.
#[derive(Default)]
pub struct Parsed<'c> {
    pub given: Vec<Given<'c>>,
    pub operands: Vec<&'c Word>,
    /// An unknown word that may be an option.
    pub hidden: Option<&'c Word>,
    /// The number of arguments before the first operand.
    pub before_operands: usize,
}

/// Whether options may come after operands.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Order {
    Any,
    /// The first operand ends the options: the rest belongs to another program.
    OptionsFirst,
}

impl<'c> Parsed<'c> {
    /// Whether one of these options is given; names are separated by blanks.
    pub fn has(&self, names: &str) -> bool {
        self.given.iter().any(|given| lists(names, given.name))
    }

    pub fn value(&self, names: &str) -> Option<&Word> {
        self.given.iter().filter(|given| lists(names, given.name)).find_map(|given| given.value.as_ref())
    }
}

/// Whether a word may expand to an option.
pub fn may_be_option(word: &Word) -> bool {
    match word {
        Word::Known(text) => text.starts_with('-') && text != "-",
        // `f$x` may expand to `f -o out`.
        Word::Unknown(written) => {
            written.trim_start_matches(['"', '\'', '\\']).starts_with(['-', '$', '`', '*', '?', '[', '{'])
                || written.contains(['$', '`']) && may_split(word)
        }
    }
}

/// Whether a word may expand to several words.
pub fn may_split(word: &Word) -> bool {
    match word {
        Word::Known(_) => false,
        // Only one pair of quotes around the whole word guarantees a single word, and not for `"$@"`.
        Word::Unknown(written) => {
            let inside = written.strip_prefix('"').and_then(|rest| rest.strip_suffix('"'));
            inside.is_none_or(|inside| inside.contains(['"', '@']))
        }
    }
}

/// Parses the arguments as getopt(3) would. `opts` lists the options with values; other options are accepted.
pub fn parse<'c>(args: &'c [Word], opts: &[Opt], order: Order) -> Parsed<'c> {
    let mut parsed = Parsed { before_operands: args.len(), ..Parsed::default() };
    let mut at = 0;
    while let Some(word) = args.get(at) {
        at += 1;
        match word {
            Word::Known(text) if text == "--" => {
                if parsed.operands.is_empty() {
                    parsed.before_operands = at;
                }
                parsed.operands.extend(args.get(at..).unwrap_or_default());
                return parsed;
            }
            Word::Known(text) if text.starts_with("--") => {
                let body = &text[2..];
                let (name, attached) = match body.split_once('=') {
                    Some((name, value)) => (name, Some(Word::Known(value.to_owned()))),
                    None => (body, None),
                };
                let takes = find(opts, name).map_or(Takes::Nothing, |opt| opt.1);
                let name = full_name(opts, name);
                let value = match (attached, takes) {
                    (Some(value), _) => Some(value),
                    (None, Takes::Value) => {
                        at += 1;
                        args.get(at - 1).cloned()
                    }
                    (None, Takes::Nothing | Takes::Attached) => None,
                };
                parsed.given.push(Given { name, value });
            }
            Word::Known(text) if text.len() > 1 && text.starts_with('-') => {
                at += cluster(text, args.get(at), opts, &mut parsed);
            }
            Word::Known(_) | Word::Unknown(_) => {
                if may_be_option(word) {
                    parsed.hidden.get_or_insert(word);
                    // `--output=$x`: the option is known.
                    if let Some(name) = written_name(word) {
                        parsed.given.push(Given { name, value: Some(word.clone()) });
                        continue;
                    }
                }
                if parsed.operands.is_empty() {
                    parsed.before_operands = at - 1;
                }
                parsed.operands.push(word);
                if order == Order::OptionsFirst {
                    parsed.operands.extend(args.get(at..).unwrap_or_default());
                    return parsed;
                }
            }
        }
    }
    parsed
}

/// The name of a long option with an unknown value.
fn written_name(word: &Word) -> Option<&str> {
    let Word::Unknown(written) = word else { return None };
    let body = written.trim_start_matches('"').strip_prefix("--")?;
    let (name, _) = body.split_once('=')?;
    name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-').then_some(name)
}

/// Parses short options in one word. Returns the number of additional words consumed.
fn cluster<'c>(text: &'c str, next: Option<&Word>, opts: &[Opt], parsed: &mut Parsed<'c>) -> usize {
    for (index, letter) in text.char_indices().skip(1) {
        let end = index + letter.len_utf8();
        let name = &text[index..end];
        let rest = &text[end..];
        let takes = opts.iter().find(|opt| opt.is_named(name)).map(|opt| opt.1);
        match takes {
            Some(Takes::Value) if rest.is_empty() => {
                parsed.given.push(Given { name, value: next.cloned() });
                return 1;
            }
            Some(Takes::Value | Takes::Attached) => {
                let value = (!rest.is_empty()).then(|| Word::Known(rest.to_owned()));
                parsed.given.push(Given { name, value });
                return 0;
            }
            Some(Takes::Nothing) | None => parsed.given.push(Given { name, value: None }),
        }
    }
    0
}

/// The option with this name. Long options may be abbreviated if that is unambiguous.
pub fn find<'o>(opts: &'o [Opt], name: &str) -> Option<&'o Opt> {
    let is_cut = |known: &str| known.len() > 1 && name.len() > 1 && known.starts_with(name);
    opts.iter()
        .find(|opt| opt.is_named(name))
        .or_else(|| opts.iter().find(|opt| opt.0.split_ascii_whitespace().any(is_cut)))
}

/// The full name of an abbreviated long option; other names unchanged.
fn full_name<'n>(opts: &[Opt], name: &'n str) -> &'n str {
    let names = || opts.iter().flat_map(|opt| opt.0.split_ascii_whitespace());
    if name.len() < 2 || names().any(|known| known == name) {
        return name;
    }
    names().find(|known| known.starts_with(name)).unwrap_or(name)
}

/// Records the effect of `what`; `value` is that of an option.
pub fn apply(does: Does, what: &str, value: Option<&Word>, found: &mut Findings, reader: &mut Reader<'_>) {
    match does {
        Does::Nothing | Does::Looks => {}
        Does::Pipes(why) => match value {
            Some(Word::Known(text)) if text.starts_with(['|', '!']) => {
                reader.text(&Word::Known(text[1..].to_owned()), Dialect::Sh);
            }
            value => apply(Does::Writes(why), what, value, found, reader),
        },
        Does::Writes(why) => match value {
            // `-o -` and `-o /dev/null` have no effect.
            Some(Word::Known(path)) if path == "-" => {}
            Some(word) => {
                if reader.paths.of(word) != PathLocation::Stream {
                    found.mutates(format!("{what} {why}"));
                }
                writes(what, word, found, reader);
            }
            None => found.mutates(format!("{what} {why}")),
        },
        Does::Mutates(why) => found.mutates(format!("{what} {why}")),
        Does::Changes(why) => {
            found.mutates(format!("{what} changes {why}"));
            if reader.paths.of_path(".") == PathLocation::Outside {
                found.escapes(format!("{what} changes {why} outside of the workspace"));
            }
        }
        Does::Destroys(why) => found.destroys(format!("{what} {why}")),
        Does::Networks(why) => found.networks(format!("{what} {why}")),
        Does::Escapes(why) => {
            found.mutates(format!("{what} {why}"));
            found.escapes(format!("{what} {why}"));
        }
        Does::Reaches(why) => found.escapes(format!("{what} {why}")),
        Does::Talks(why) => found.talks(format!("{what} {why}")),
        Does::Edits(instead) => {
            let why = format!("{what} opens an editor");
            if !reader.has_editor() {
                found.fills_screen(why.clone(), instead);
            }
            found.talks(why);
        }
        Does::RunsText(why) => {
            found.mutates(format!("{what} {why}"));
            match value {
                Some(text) => reader.text(text, Dialect::Sh),
                None => reader.doubt(format!("{what} {why} that is not known")),
            }
        }
        Does::Doubts(why) => reader.doubt(format!("{what} {why}")),
    }
}

/// Records a written file: its location matters.
pub fn writes(what: &str, word: &Word, found: &mut Findings, reader: &Reader<'_>) {
    match reader.paths.of(word) {
        PathLocation::Inside | PathLocation::Unknown => {
            found.mutates(format!("{what} writes `{}`", shown(word.shown())))
        }
        PathLocation::Home => {
            found.mutates(format!("{what} writes `{}` in the private home", shown(word.shown())));
        }
        PathLocation::Stream => {}
        PathLocation::Network => found.networks(format!("`{}` opens a connection", shown(word.shown()))),
        PathLocation::Outside => {
            let why = format!("{what} writes `{}`, outside of the workspace", shown(word.shown()));
            found.writes_outside(why, reader.paths.where_to_write(word));
        }
    }
}
