//! The command line of `avfs`: the verbs and the options that they share.

use std::ffi::OsString;
use std::path::PathBuf;

use clap::builder::{PathBufValueParser, TypedValueParser};
use clap::{Args, Parser, Subcommand};

use avfs_ops::EditTarget;
use avfs_request::JsonForm;
use avfs_types::ids::ForkName;
use avfs_types::redact;

use crate::commands::{
    apply, approvals, audit, batch, bisect, cache, cat, checkpoint, clean, compact, completions, config, cp,
    diff, discard, doctor, du, execute, export, find, fork, fsck, gc, grep, import, init, log, ls, man,
    materialize, mkdir, mv, policy, proxy, prune, quota, race, record, recover, redo, replay, restore, rm,
    runs, schema, show, stats, status, sync, tree, unapply, undo, vault, write,
};

/// Run commands over versions of a directory; review, apply or undo their changes
///
/// `avfs run` runs a command in a sandbox: the directory does not change, and the changes become a version. A
/// vault is one SQLite file that holds versions of a directory, the bound directory: the one for which `avfs
/// init` or the first run created the vault. A fork is a named head that moves from version to version. A
/// checkpoint is a label that pins a version.
///
/// REF names a version: FORK, FORK@CHECKPOINT, FORK~N (N versions back), run:ID, last or last~N (the newest
/// run, or the run N before it), or the first four or more digits of a version's id. PATH is the path of an
/// entry in a version: relative to the root of the version, not to the working directory, or an absolute path
/// in the bound directory.
#[derive(Debug, Parser)]
#[command(name = "avfs", version, arg_required_else_help = true, max_term_width = 100)]
#[command(after_long_help = "\
Examples:
  avfs run -- make test
  avfs diff
  avfs apply
  avfs undo
  avfs import -m 'before the refactoring'
  avfs log
  avfs restore main~1")]
pub struct Cli {
    /// Use this vault: a path, or the name of a vault in $XDG_DATA_HOME/avfs/vaults [default: $AVFS_VAULT,
    /// else the nearest .avfs/vault.db at or above the working directory]
    #[arg(
        long, global = true, help_heading = "Global options", value_name = "PATH|NAME",
        value_hint = clap::ValueHint::FilePath, value_parser = vault_word()
    )]
    pub vault: Option<OsString>,
    /// Print one JSON object (its schema: avfs schema); =compact only for avfs run
    #[arg(
        long, global = true, value_name = "FORM", num_args = 0..=1, require_equals = true,
        default_missing_value = "full", help_heading = "Global options"
    )]
    pub json: Option<JsonForm>,
    #[command(subcommand)]
    pub verb: Verb,
}

#[derive(Debug, Subcommand)]
pub enum Verb {
    Init(init::InitArgs),
    Vault(vault::VaultArgs),
    Import(import::ImportArgs),
    Export(export::ExportArgs),
    Materialize(materialize::MaterializeArgs),
    Status(status::StatusArgs),
    Run(execute::RunArgs),
    Runs(runs::RunsArgs),
    Batch(batch::BatchArgs),
    Replay(replay::ReplayArgs),
    Approvals(approvals::ApprovalsArgs),
    Cache(cache::CacheArgs),
    Proxy(proxy::ProxyArgs),
    Apply(apply::ApplyArgs),
    Unapply(unapply::UnapplyArgs),
    Sync(sync::SyncArgs),
    Discard(discard::DiscardArgs),
    Record(record::RecordArgs),
    Recover(recover::RecoverArgs),
    Undo(undo::UndoArgs),
    Redo(redo::RedoArgs),
    Bisect(bisect::BisectArgs),
    Race(race::RaceArgs),
    Fork(fork::ForkArgs),
    Checkpoint(checkpoint::CheckpointArgs),
    Restore(restore::RestoreArgs),
    Log(log::LogArgs),
    Show(show::ShowArgs),
    Diff(diff::DiffArgs),
    Ls(ls::LsArgs),
    Cat(cat::CatArgs),
    Tree(tree::TreeArgs),
    Find(find::FindArgs),
    Grep(grep::GrepArgs),
    Write(write::WriteArgs),
    Mkdir(mkdir::MkdirArgs),
    Rm(rm::RmArgs),
    Mv(mv::MvArgs),
    Cp(cp::CpArgs),
    Audit(audit::AuditArgs),
    Gc(gc::GcArgs),
    Prune(prune::PruneArgs),
    Compact(compact::CompactArgs),
    Fsck(fsck::FsckArgs),
    Stats(stats::StatsArgs),
    Du(du::DuArgs),
    Clean(clean::CleanArgs),
    Quota(quota::QuotaArgs),
    Config(config::ConfigArgs),
    Policy(policy::PolicyArgs),
    Doctor(doctor::DoctorArgs),
    Schema(schema::SchemaArgs),
    Completions(completions::CompletionsArgs),
    Man(man::ManArgs),
}

/// The fork that a verb operates on.
#[derive(Debug, Args)]
pub struct OnFork {
    /// Operate on this fork
    #[arg(long, value_name = "FORK", default_value = "main")]
    pub fork: ForkName,
}

/// The options of every verb that edits a fork.
#[derive(Debug, Args)]
pub struct EditOptions {
    #[command(flatten)]
    pub on: OnFork,
    /// Record this message with the version [default: the edit itself]
    #[arg(short, long, value_name = "TEXT", value_parser = remark)]
    pub message: Option<String>,
}

impl From<EditOptions> for EditTarget {
    fn from(options: EditOptions) -> Self {
        Self { fork: options.on.fork, message: options.message }
    }
}

/// Parses the path or name of a vault. An empty value, such as an unset variable of a script, is an error.
pub fn vault_word() -> impl TypedValueParser<Value = OsString> {
    PathBufValueParser::new().map(PathBuf::into_os_string)
}

/// Redacts credentials in a message that is stored with a version.
pub fn remark(text: &str) -> Result<String, std::convert::Infallible> {
    Ok(redact(text).into_owned())
}
