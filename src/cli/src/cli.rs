//! The tree of words: every verb and what all of them share.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;

use clap::builder::{OsStringValueParser, PathBufValueParser, TypedValueParser};
use clap::{Args, Parser, Subcommand};

use avfs_engine::version_message;
use avfs_request::JsonForm;
use avfs_types::ids::ForkName;
use avfs_types::path::{PathError, TreePath};
use avfs_types::redact;
use avfs_vault::ops::Target;

use crate::commands::{
    apply, approvals, audit, batch, bisect, cache, cat, checkpoint, clean, compact, completions, config, cp,
    diff, discard, doctor, du, execute, export, find, fork, fsck, gc, grep, import, init, log, ls, man,
    materialize, mkdir, mv, policy, proxy, prune, quota, race, record, recover, redo, replay, restore, rm,
    runs, schema, show, stats, status, sync, tree, unapply, undo, vault, write,
};

/// Keeps every version of a directory in one file: fork it, compare, restore, export
///
/// A vault is one SQLite file. It holds versions of a directory; forks are named heads that move from
/// version to version; checkpoints are labels that pin one.
///
/// A REF names a version: a FORK, FORK@CHECKPOINT, FORK~N (N versions back), run:ID, or at least four of the
/// first digits of a version's id. A PATH is that of an entry in a version, from its root, whatever directory
/// you are in.
#[derive(Debug, Parser)]
#[command(name = "avfs", version, arg_required_else_help = true, max_term_width = 100)]
#[command(after_help = "\
Examples:
  avfs init
  avfs import -m 'before the refactoring'
  avfs log
  avfs diff main
  avfs restore main~1")]
pub struct Cli {
    /// The vault: a path, or the name of one in $XDG_DATA_HOME/avfs/vaults [default: $AVFS_VAULT, else the
    /// nearest .avfs/vault.db at or above the working directory]
    #[arg(long, global = true, help_heading = "Global options", value_name = "PATH|NAME", value_hint = clap::ValueHint::FilePath, value_parser = vault_word())]
    pub vault: Option<OsString>,
    /// Answer with one JSON object (its schema: avfs schema); =compact is for runs
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

/// The fork a verb works on.
#[derive(Debug, Args)]
pub struct OnFork {
    /// The fork to work on
    #[arg(long, value_name = "FORK", default_value = "main")]
    pub fork: ForkName,
}

/// What every edit inside the vault takes.
#[derive(Debug, Args)]
pub struct EditOptions {
    #[command(flatten)]
    pub on: OnFork,
    /// What the version's record says [default: the edit itself]
    #[arg(short, long, value_name = "TEXT", value_parser = remark)]
    pub message: Option<String>,
}

impl EditOptions {
    /// The message that was given, or the edit itself.
    pub fn message_or(&self, edit: impl FnOnce() -> String) -> String {
        self.message.clone().unwrap_or_else(|| version_message(&edit()))
    }
}

/// Reads the path or name of a vault: an empty one, such as a script's variable that is not set, means none.
pub fn vault_word() -> impl TypedValueParser<Value = OsString> {
    PathBufValueParser::new().map(PathBuf::into_os_string)
}

/// Reads a path inside a version, whatever bytes it has.
pub fn tree_path() -> impl TypedValueParser<Value = TreePath> {
    OsStringValueParser::new().try_map(|text: OsString| -> Result<TreePath, PathError> { parse_path(&text) })
}

/// As [`tree_path`], of a file.
pub fn file_path() -> impl TypedValueParser<Value = TreePath> {
    OsStringValueParser::new()
        .try_map(|text: OsString| -> Result<TreePath, PathError> { TreePath::parse_file(text.as_bytes()) })
}

/// As [`tree_path`], of where something is to go.
pub fn target() -> impl TypedValueParser<Value = Target> {
    OsStringValueParser::new()
        .try_map(|text: OsString| -> Result<Target, PathError> { Target::parse(text.as_bytes()) })
}

fn parse_path(text: &OsStr) -> Result<TreePath, PathError> {
    TreePath::parse(text.as_bytes())
}

/// Text that is kept with a version: what looks like a credential is taken out.
pub fn remark(text: &str) -> Result<String, std::convert::Infallible> {
    Ok(redact(text).into_owned())
}
