//! Notes about variables of the caller that a command does not get, although it may read them.

use avfs_policy::environment_use;
use avfs_request::{ExecutionRequest, variables_read_by};
use avfs_types::redact::is_credential_name;

use super::result::Notes;
use super::site::Site;
use crate::fork_dirs::ForkDirs;

/// The note about a withheld variable.
const CODE: &str = "env.withheld";
/// Maximum withheld variables listed in notes of each kind.
const LISTED_MAX: usize = 8;

/// Notes the withheld variables that the shell text of the command uses.
pub(crate) fn note_in_text(request: &ExecutionRequest, notes: &mut Notes) {
    // The common case: nothing that may be used is withheld.
    if !request.environment.has_withheld() {
        return;
    }
    let used = environment_use(&request.command).variables;
    let withheld = used.into_iter().filter(|name| request.environment.is_withheld(name));
    for name in withheld.take(LISTED_MAX).collect::<Vec<_>>() {
        let option = option_for(&name);
        let text =
            format!("{name} is set on the host but not passed to the command; pass it with {option} {name}");
        notes.add(CODE, text);
    }
}

/// Notes the withheld variables that the programs of the command read, each once for a fork.
pub(crate) fn note_of_programs(site: &Site<'_>, request: &ExecutionRequest, notes: &mut Notes) {
    let mut unread = of_programs(request);
    if unread.is_empty() {
        return;
    }
    let names: Vec<&str> = unread.iter().map(|(name, _)| *name).collect();
    let dirs = ForkDirs::new(&site.cache_dir, &site.vault_id);
    let first = dirs.first_notes(&request.fork, CODE, &names, site.notes);
    unread.retain(|(name, _)| first.contains(name));
    for (name, program) in unread {
        let option = option_for(name);
        notes.add(
            CODE,
            format!("{program} reads {name}, which is set on the host but not passed; pass it with {option} {name}"),
        );
    }
}

/// The withheld variables that programs of the command read, each with the first of these programs. Not those that the
/// command sets itself, or that its text uses: these are noted in any case.
fn of_programs(request: &ExecutionRequest) -> Vec<(&'static str, String)> {
    if !request.environment.has_withheld() {
        return Vec::new();
    }
    let used = environment_use(&request.command);
    let mut found: Vec<(&'static str, String)> = Vec::new();
    for program in &used.programs {
        for name in variables_read_by(program) {
            let is_known = |names: &[String]| names.iter().any(|known| known == name);
            let is_new = !is_known(&used.assigned)
                && !is_known(&used.variables)
                && found.iter().all(|(other, _)| *other != name);
            if is_new && request.environment.is_withheld(name) && found.len() < LISTED_MAX {
                found.push((name, program.clone()));
            }
        }
    }
    found
}

fn option_for(name: &str) -> &'static str {
    if is_credential_name(name) { "--secret" } else { "--env" }
}
