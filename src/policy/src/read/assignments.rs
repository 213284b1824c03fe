//! Variables that can make a program run another program.

use super::super::reading::Word;
use super::findings::{Findings, shown};
use super::options::lists;
use super::programs::data;
use super::reader::Reader;

/// Values that disable a pager or an editor.
const OFF: &[&str] = &["", "cat", "true", ":", "less"];

/// Variables that name the editor of git.
pub const EDITOR_VARIABLES: [&str; 4] = ["GIT_EDITOR", "GIT_SEQUENCE_EDITOR", "VISUAL", "EDITOR"];

/// A variable that a builtin assigns an unknown value; the shell expands an index in the name.
pub fn judge_name(written: &str, found: &mut Findings, reader: &mut Reader<'_>) {
    reader.variable(written);
    let name = written.split('[').next().unwrap_or("");
    judge(name, &Word::Unknown("$…".to_owned()), found, reader);
}

/// True for a variable that can redirect a connection from the address on the command line: a proxy, or the location
/// of settings.
fn redirects(name: &str) -> bool {
    let is_proxy = name.len() > 6 && name.to_ascii_lowercase().ends_with("_proxy") && name != "NO_PROXY";
    is_proxy
        || lists(data::CONNECTION_VARIABLES, name)
        || data::CONNECTION_VARIABLE_PREFIXES.split(' ').any(|prefix| name.starts_with(prefix))
}

pub fn judge(name: &str, value: &Word, found: &mut Findings, reader: &mut Reader<'_>) {
    reader.assign(name, value);
    if redirects(name) {
        reader.redirect_connections();
    }
    if name == "PATH" || name.starts_with("LD_") {
        reader.choose_program();
    }
    if EDITOR_VARIABLES.contains(&name) {
        reader.choose_editor(value);
    }
    let is_known = lists(data::RUN_VARIABLES, name)
        || data::RUN_VARIABLE_PREFIXES.split(' ').any(|prefix| name.starts_with(prefix));
    if !is_known || lists(data::HARMLESS_VARIABLES, name) {
        return;
    }
    let is_pager = name.ends_with("PAGER") || name.ends_with("EDITOR") || name == "VISUAL";
    if is_pager && value.known().is_some_and(|value| OFF.contains(&value)) {
        return;
    }
    // Display options only; other letters name files, and after a `+` come commands.
    if name == "LESS"
        && value.known().is_some_and(|value| value.bytes().all(|byte| b"-FRXSKMNiqr ".contains(&byte)))
    {
        return;
    }
    // A field separator only changes how words are split.
    if name == "IFS" && value.known().is_some() {
        return;
    }
    found.mutates(format!("`{}` can make a program run another one", shown(name)));
}
