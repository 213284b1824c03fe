//! Programs that connect, and the commands they run locally for it.

use super::Program;
use super::judge::{by_table, joined};
use crate::read::findings::{Call, Findings, shown};
use crate::read::options::{Order, parse};
use crate::read::reader::Reader;
use crate::read::shell::Dialect;
use crate::reading::Word;

/// `ssh`, `scp`: `-o ProxyCommand=…` runs locally. Commands for a shell on another machine are judged as well.
pub fn ssh(program: &'static Program, call: &Call<'_>, found: &mut Findings, reader: &mut Reader<'_>) {
    by_table(program, call, found, reader);
    let parsed = parse(call.args, program.options, program.order());
    for value in
        parsed.given.iter().filter(|given| given.name == "o").filter_map(|given| given.value.as_ref())
    {
        let (key, text) = value.shown().split_once(['=', ' ']).unwrap_or((value.shown(), ""));
        if key.to_ascii_lowercase().ends_with("command") {
            found.mutates(format!("`{} -o {}` runs a local command", call.name, shown(key)));
            reader.text(&Word::Known(text.to_owned()), Dialect::Sh);
        }
    }
    if program.order() == Order::OptionsFirst {
        let command = call.args.get(parsed.before_operands + 1..).unwrap_or_default();
        if !command.is_empty() {
            reader.text(&joined(command), Dialect::Sh);
        } else if call.may_ask() && parsed.operands.len() == 1 && !parsed.has("N f T") {
            found.talks(format!("`{}` starts a shell on another machine", call.name));
        }
    }
}

/// `socat … EXEC:text`, in any case.
pub fn netcat(program: &'static Program, call: &Call<'_>, found: &mut Findings, reader: &mut Reader<'_>) {
    by_table(program, call, found, reader);
    for word in call.args {
        let (kind, text) = word.shown().split_once(':').unwrap_or_default();
        if ["EXEC", "SYSTEM", "SHELL"].contains(&kind.to_ascii_uppercase().as_str()) {
            reader.text(&Word::Known(text.to_owned()), Dialect::Sh);
        }
    }
}
