//! Shells: a text argument is parsed; a script that is read later is a doubt.

use super::Program;
use crate::read::findings::{Call, Findings, Input, shown};
use crate::read::options::may_split;
use crate::read::reader::Reader;
use crate::read::shell::Dialect;
use crate::reading::Word;

/// A POSIX shell.
pub fn posix(_: &'static Program, call: &Call<'_>, found: &mut Findings, reader: &mut Reader<'_>) {
    shell(call, Dialect::Sh, found, reader);
}

pub fn bash(_: &'static Program, call: &Call<'_>, found: &mut Findings, reader: &mut Reader<'_>) {
    shell(call, Dialect::Bash, found, reader);
}

pub fn zsh(_: &'static Program, call: &Call<'_>, found: &mut Findings, reader: &mut Reader<'_>) {
    shell(call, Dialect::Zsh, found, reader);
}

/// The options of a shell.
#[derive(Default)]
struct Flags {
    command: bool,
    stdin: bool,
    interactive: bool,
    /// The index of the first word that is not an option.
    rest: usize,
}

fn flags(args: &[Word]) -> Option<Flags> {
    let mut flags = Flags::default();
    while let Some(word) = args.get(flags.rest) {
        let text = match word {
            Word::Known(text) => text,
            Word::Unknown(_) if names_script(word) => break,
            // A script's name, or options: the caller decides.
            Word::Unknown(_) => return (flags.command).then_some(flags),
        };
        if text == "--" || text == "-" {
            flags.rest += 1;
            break;
        }
        if let Some(long) = text.strip_prefix("--") {
            flags.rest += if matches!(long, "rcfile" | "init-file") { 2 } else { 1 };
            continue;
        }
        let Some(letters) = text.strip_prefix(['-', '+']) else { break };
        flags.rest += 1;
        for letter in letters.chars() {
            match letter {
                'c' => flags.command = true,
                's' => flags.stdin = true,
                'i' => flags.interactive = true,
                'o' | 'O' => flags.rest += 1,
                _ => {}
            }
        }
    }
    Some(flags)
}

fn shell(call: &Call<'_>, dialect: Dialect, found: &mut Findings, reader: &mut Reader<'_>) {
    let name = call.name;
    let Some(flags) = flags(call.args) else {
        found.mutates(format!("`{name}` runs a script"));
        reader.doubt(format!("the script that `{name}` runs is not known"));
        return;
    };
    if flags.interactive {
        found.talks(format!("`{name} -i` reads commands from the terminal"));
        found.mutates(format!("`{name} -i` reads commands from the terminal"));
    }
    match call.args.get(flags.rest) {
        Some(text) if flags.command => reader.text(text, dialect),
        None if flags.command => {}
        Some(script) if !flags.stdin && names_script(script) => {
            found.mutates(format!("`{name}` runs the script `{}`", shown(script.shown())));
        }
        Some(_) if !flags.stdin => {
            found.mutates(format!("`{name}` runs a script"));
            reader.doubt(format!("the script that `{name}` runs is not known"));
        }
        Some(_) | None => standard_input(call, dialect, &flags, found, reader),
    }
}

/// Whether a word certainly names a file, and not a stream with any content: known, or `"$dir/name"`.
pub fn names_script(word: &Word) -> bool {
    match word {
        Word::Known(file) => !file.starts_with("/dev/") && !file.starts_with("/proc/"),
        Word::Unknown(written) if may_split(word) || !written.starts_with("\"$") => false,
        Word::Unknown(written) => {
            let name = written.trim_end_matches('"').rsplit_once('/').map_or("", |(_, name)| name);
            let is_plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '-');
            let is_number = name.bytes().all(|byte| byte.is_ascii_digit());
            name.chars().all(is_plain) && !is_number && name != "stdin"
        }
    }
}

fn standard_input(
    call: &Call<'_>,
    dialect: Dialect,
    flags: &Flags,
    found: &mut Findings,
    reader: &mut Reader<'_>,
) {
    let name = call.name;
    if call.may_ask() && !flags.stdin {
        found.mutates(format!("`{name}` runs its input"));
        found.talks(format!("`{name}` reads commands from the terminal"));
    }
    match call.input {
        Input::Text(text) => reader.text(text, dialect),
        Input::Inherited if !flags.stdin => {}
        Input::Inherited | Input::Unknown | Input::Either => {
            found.mutates(format!("`{name}` runs its input"));
            reader.doubt(format!("`{name}` runs its input, which is not known"));
        }
    }
}
