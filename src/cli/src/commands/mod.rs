//! One file per verb: its arguments, whose doc comments are the help, and its implementation.

mod files;
mod history;
mod host;
mod lists;
mod review;
mod run;
mod upkeep;

use files::edited;
pub use files::{cat, cp, export, find, grep, import, ls, materialize, mkdir, mv, rm, tree, write};
pub use history::{checkpoint, fork, log, redo, restore, show, undo};
pub use host::{completions, config, doctor, man, proxy, schema};
pub use lists::{batch, bisect, race, record, replay};
use review::patch;
pub use review::{apply, diff, discard, status, sync, unapply};
pub use run::{approvals, cache, execute, policy, recover, runs};
pub use upkeep::{audit, clean, compact, du, fsck, gc, init, prune, quota, stats, vault};

use avfs_request::config::Config;

use crate::cli::Verb;
use crate::context::CommandContext;
use crate::ui::Outcome;

pub fn run(ctx: &CommandContext, verb: Verb) -> Outcome {
    // The verbs that show settings, or run commands with them. A run prints the notes itself.
    if matches!(verb, Verb::Config(_) | Verb::Batch(_) | Verb::Replay(_) | Verb::Bisect(_) | Verb::Race(_)) {
        for unknown in Config::unknown_variables(&ctx.client.surroundings.variables) {
            ctx.ui.note(format_args!("note: {unknown}"));
        }
    }
    match verb {
        Verb::Init(args) => init::run(ctx, &args),
        Verb::Vault(args) => vault::run(ctx, &args),
        Verb::Import(args) => import::run(ctx, args),
        Verb::Export(args) => export::run(ctx, args),
        Verb::Materialize(args) => materialize::run(ctx, args),
        Verb::Status(args) => status::run(ctx, &args),
        Verb::Run(args) => execute::run(&args),
        Verb::Proxy(args) => proxy::run(&args),
        Verb::Runs(args) => runs::run(ctx, &args),
        Verb::Batch(args) => batch::run(ctx, &args),
        Verb::Replay(args) => replay::run(ctx, &args),
        Verb::Cache(args) => cache::run(ctx, &args),
        Verb::Approvals(args) => approvals::run(ctx, &args),
        Verb::Apply(args) => apply::run(ctx, args),
        Verb::Unapply(args) => unapply::run(ctx, args),
        Verb::Sync(args) => sync::run(ctx, args),
        Verb::Discard(args) => discard::run(ctx, &args),
        Verb::Policy(args) => policy::run(ctx, &args),
        Verb::Doctor(args) => doctor::run(ctx, &args),
        Verb::Record(args) => record::run(ctx, &args),
        Verb::Recover(args) => recover::run(ctx, &args),
        Verb::Undo(args) => undo::run(ctx, &args),
        Verb::Redo(args) => redo::run(ctx, &args),
        Verb::Bisect(args) => bisect::run(ctx, &args),
        Verb::Race(args) => race::run(ctx, &args),
        Verb::Fork(args) => fork::run(ctx, &args),
        Verb::Checkpoint(args) => checkpoint::run(ctx, args),
        Verb::Restore(args) => restore::run(ctx, &args),
        Verb::Log(args) => log::run(ctx, args),
        Verb::Show(args) => show::run(ctx, &args),
        Verb::Diff(args) => diff::run(ctx, args),
        Verb::Ls(args) => ls::run(ctx, args),
        Verb::Cat(args) => cat::run(ctx, args),
        Verb::Tree(args) => tree::run(ctx, args),
        Verb::Find(args) => find::run(ctx, args),
        Verb::Grep(args) => grep::run(ctx, args),
        Verb::Write(args) => write::run(ctx, args),
        Verb::Mkdir(args) => mkdir::run(ctx, args),
        Verb::Rm(args) => rm::run(ctx, args),
        Verb::Mv(args) => mv::run(ctx, args),
        Verb::Cp(args) => cp::run(ctx, args),
        Verb::Audit(args) => audit::run(ctx, args),
        Verb::Gc(args) => gc::run(ctx, &args),
        Verb::Prune(args) => prune::run(ctx, args),
        Verb::Compact(args) => compact::run(ctx, &args),
        Verb::Fsck(args) => fsck::run(ctx, args),
        Verb::Stats(args) => stats::run(ctx, &args),
        Verb::Du(args) => du::run(ctx, &args),
        Verb::Clean(args) => clean::run(ctx, &args),
        Verb::Quota(args) => quota::run(ctx, &args),
        Verb::Config(args) => config::run(ctx, &args),
        Verb::Schema(args) => schema::run(ctx, &args),
        Verb::Completions(args) => completions::run(ctx, &args),
        Verb::Man(args) => man::run(ctx, &args),
    }
}
