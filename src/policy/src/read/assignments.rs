//! Variables that make a program run something else, or run something it would not.

use super::super::reading::Word;
use super::found::{Found, shown};
use super::options::lists;
use super::programs::data;

/// Values that switch a pager or an editor off.
const OFF: &[&str] = &["", "cat", "true", ":", "less"];

/// A variable that gets a value nobody knows: by `read`, a loop, `${x:=…}`.
pub fn judge_name(name: &str, found: &mut Found) {
    let name = name.split('[').next().unwrap_or("");
    judge(name, &Word::Unknown(String::new()), found);
}

pub fn judge(name: &str, value: &Word, found: &mut Found) {
    let is_known = lists(data::RUN_VARIABLES, name)
        || data::RUN_VARIABLE_PREFIXES.split(' ').any(|prefix| name.starts_with(prefix));
    if !is_known || lists(data::HARMLESS_VARIABLES, name) {
        return;
    }
    let is_pager = name.ends_with("PAGER") || name.ends_with("EDITOR") || name == "VISUAL";
    if is_pager && value.known().is_some_and(|value| OFF.contains(&value)) {
        return;
    }
    // Letters for how it looks; others name files, and after a `+` come commands.
    if name == "LESS"
        && value.known().is_some_and(|value| value.bytes().all(|byte| b"-FRXSKMNiqr ".contains(&byte)))
    {
        return;
    }
    // A field separator changes how words are split, and nothing else.
    if name == "IFS" && value.known().is_some() {
        return;
    }
    found.mutates(format!("`{}` can make a program run something else", shown(name)));
}
