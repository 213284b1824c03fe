//! Version control other than `git`.

use super::super::subcommands::lists;
use crate::read::found::{Call, Found};
use crate::read::reader::Reader;
use crate::reading::Word;

/// Other version control: what looks, and the rest.
pub fn judge(call: &Call<'_>, found: &mut Found, _: &mut Reader<'_>) {
    let verb = call.args.iter().find(|word| !word.shown().starts_with('-')).map_or("", Word::shown);
    let has_option = call.args.iter().any(|word| {
        word.shown() == "-R"
            || ["--config", "--editor-cmd", "--diff-cmd", "--diff3-cmd", "--tool", "--output", "-o"]
                .iter()
                .any(|option| word.shown().starts_with(option))
    });
    let looks = "status st log diff show annotate blame cat files manifest heads tip branches tags identify id summary info list ls help version";
    if has_option || !(lists(looks, verb) || verb.is_empty()) {
        found.mutates(format!("`{}` changes the repository", call.name));
    }
    // Its history is on the server, and any of its commands may be given an address.
    let is_asked = call.name == "svn" && lists("log list ls blame annotate", verb);
    let is_address = |word: &Word| word.shown().contains("://") && !word.shown().starts_with("file:");
    if is_asked || call.args.iter().any(is_address) {
        found.networks(format!("`{} {verb}` talks to another machine", call.name));
    }
    if lists("clone pull push incoming outgoing checkout co update up commit ci sync fetch git", verb) {
        found.networks(format!("`{} {verb}` may talk to another machine", call.name));
    }
}
