//! The plan of a batch: its list, its base, the order of its items, and its earlier runs.

use std::path::PathBuf;

use avfs_engine::{IMPORT_LARGE, bound_dir, check_fork};
use avfs_hostfs::random;
use avfs_lists::batch::{Manner, OnFailure};
use avfs_lists::list::ListFile;
use avfs_ops::{OpError, WorkplaceError, import_for_runs};
use avfs_types::ids::{BatchId, BatchPrefix, ForkName, VersionId};
use avfs_types::reference::Reference;
use avfs_vault::backend::{BatchRecord, RunRecord};
use avfs_vault::{Vault, VaultError};
use avfs_wire::{BatchPlan, NoteObject, Recorded};

use super::BatchArgs;
use super::error::BatchError;
use super::hold::Hold;
use crate::context::CommandContext;

/// The settings of a batch that the vault stores, or why they cannot be read.
fn stored(record: &BatchRecord) -> Result<BatchPlan, String> {
    Recorded::parse(&record.plan).into_read()
}

pub struct Plan {
    pub list: ListFile,
    pub record: BatchRecord,
    pub manner: Manner,
    pub on_failure: OnFailure,
    /// The fork of a chain.
    pub fork: Option<ForkName>,
    /// Whether the batch was started before.
    pub resumed: bool,
    pub notes: Vec<NoteObject>,
    list_path: String,
    _hold: Hold,
}

impl Plan {
    /// Reads the list. Called before a vault is created for it.
    pub fn read(args: &BatchArgs) -> Result<(ListFile, String), OpError> {
        let path = args.list_file.clone().unwrap_or_default();
        let list = ListFile::open(&path, &std::env::temp_dir())?;
        let list_path = path.display().to_string();
        if list.is_empty() {
            return Err(BatchError::Empty { list: list_path }.into());
        }
        Ok((list, list_path))
    }

    pub fn make(
        ctx: &CommandContext,
        args: &BatchArgs,
        vault: &Vault,
        (list, list_path): (ListFile, String),
    ) -> Result<Self, OpError> {
        match args.resume()? {
            Some(which) => Self::resume(ctx, args, vault, list, list_path, which),
            None => Self::begin(ctx, args, vault, list, list_path),
        }
    }

    fn begin(
        ctx: &CommandContext,
        args: &BatchArgs,
        vault: &Vault,
        list: ListFile,
        list_path: String,
    ) -> Result<Self, OpError> {
        let has_needs = (0..list.len()).any(|item| !list.needs(item).is_empty());
        let usual = if has_needs { Manner::Needs } else { Manner::Chain };
        let manner = args.mode.unwrap_or(usual);
        let id = BatchId::from_random(
            random::bytes()
                .map_err(WorkplaceError::host("read an id from", &PathBuf::from("/dev/urandom")))?,
        );
        let fork = match manner {
            Manner::Chain => Some(match &args.fork {
                Some(fork) => fork.clone(),
                None => ForkName::parse(&format!("batch-{id}"))?,
            }),
            Manner::FanOut | Manner::Needs => None,
        };
        check(args, manner)?;
        check_chain(vault, fork.as_ref())?;
        let mut notes = Vec::new();
        let base = base(ctx, args, vault, fork.as_ref(), &mut notes)?;
        let kept = BatchPlan {
            mode: manner.word().to_owned(),
            fork: fork.as_ref().map(ForkName::to_string),
            items: list.len() as u64,
            list: list_path.clone(),
        };
        let record = BatchRecord {
            id,
            list: list.digest(),
            base,
            started_at: vault.now(),
            ended_at: None,
            plan: serde_json::to_string(&kept).unwrap_or_default(),
        };
        let (on_failure, _hold) = (on_failure(args), Hold::take(ctx, &record.id)?);
        notes.extend(ineffective(ctx, args, manner));
        let plan = Self { list, record, manner, on_failure, fork, resumed: false, notes, list_path, _hold };
        vault.begin_batch(&plan.record)?;
        Ok(plan)
    }

    fn resume(
        ctx: &CommandContext,
        args: &BatchArgs,
        vault: &Vault,
        list: ListFile,
        list_path: String,
        which: Option<BatchPrefix>,
    ) -> Result<Self, OpError> {
        let record = match which {
            Some(prefix) => vault.batch(&prefix)?,
            None => {
                let batches = vault.batches(usize::MAX)?;
                let named = |batch: &&BatchRecord| {
                    stored(batch).is_ok_and(|kept| kept.list == list_path && batch.ended_at.is_none())
                };
                let newest = batches.iter().find(|batch| batch.list == list.digest());
                let newest = newest.or_else(|| batches.iter().find(named));
                newest.cloned().ok_or_else(|| BatchError::NothingToResume { list: list_path.clone() })?
            }
        };
        let id = record.id.clone();
        if record.list != list.digest() {
            return Err(BatchError::OtherList { id, list: list_path }.into());
        }
        let bad = |problem: String| BatchError::BadPlan { id: id.clone(), problem };
        let kept = stored(&record).map_err(bad)?;
        let manner: Manner = kept.mode.parse().map_err(|_| bad(format!("mode {}", kept.mode)))?;
        let fork = kept.fork.as_deref().map(ForkName::parse).transpose()?;
        if args.mode.is_some_and(|asked| asked != manner) {
            return Err(BatchError::OtherMode { id, mode: manner.word() }.into());
        }
        check(args, manner)?;
        check_chain(vault, fork.as_ref())?;
        let (on_failure, _hold) = (on_failure(args), Hold::take(ctx, &id)?);
        // The previous process may have completed the batch in the meantime.
        let record = vault.batch(&BatchPrefix::from(&id))?;
        if record.ended_at.is_some() {
            return Err(BatchError::AllDone { id }.into());
        }
        let notes = ineffective(ctx, args, manner);
        Ok(Self { list, record, manner, on_failure, fork, resumed: true, notes, list_path, _hold })
    }

    /// The path of the list as the user gave it, for hints.
    pub fn list_path(&self) -> &str {
        &self.list_path
    }

    pub fn items(&self) -> u32 {
        u32::try_from(self.list.len()).unwrap_or(u32::MAX)
    }

    /// Calls `each` for every earlier run of an item.
    pub fn done(
        &self,
        vault: &Vault,
        mut each: impl FnMut(u32, &RunRecord) -> Result<(), OpError>,
    ) -> Result<(), OpError> {
        vault.each_batch_run(&self.record.id, |item, run| match u32::try_from(item) {
            Ok(item) if item < self.items() => each(item, &run),
            Ok(_) | Err(_) => Ok(()),
        })
    }
}

/// Rejects conflicting options.
fn check(args: &BatchArgs, manner: Manner) -> Result<(), OpError> {
    match manner {
        Manner::FanOut | Manner::Needs if args.fork.is_some() => {
            Err(BatchError::ForkWithoutChain { mode: manner.word() }.into())
        }
        Manner::Chain | Manner::Needs if args.discard => Err(BatchError::DiscardInSequence.into()),
        Manner::Chain => Ok(()),
        Manner::FanOut | Manner::Needs => Ok(args.options.check_without_fork()?),
    }
}

/// Rejects a fork that a chain cannot work on, or not create.
fn check_chain(vault: &Vault, fork: Option<&ForkName>) -> Result<(), OpError> {
    let Some(fork) = fork else { return Ok(()) };
    check_fork(fork, bound_dir(vault)?.as_deref())?;
    match vault.fork(fork) {
        Err(VaultError::NoFork { .. }) => Ok(fork.check_new().map_err(VaultError::from)?),
        known => Ok(known.map(drop)?),
    }
}

/// Notes about options without an effect. For people they are printed before the batch starts.
fn ineffective(ctx: &CommandContext, args: &BatchArgs, manner: Manner) -> Vec<NoteObject> {
    if manner != Manner::Chain || args.jobs.is_none_or(|jobs| jobs == 1) {
        return Vec::new();
    }
    let text = match args.fork {
        None => "a chain runs one item at a time; run independent items at once with: --mode fan-out",
        Some(_) => {
            "a chain runs one item at a time; run independent items at once with --mode fan-out instead of --fork"
        }
    };
    ctx.ui.note(format_args!("note: {text}"));
    vec![NoteObject { code: "batch.chain_jobs".to_owned(), text: text.to_owned() }]
}

fn on_failure(args: &BatchArgs) -> OnFailure {
    if args.keep_going { OnFailure::KeepGoing } else { OnFailure::Stop }
}

/// The version that the first items start at.
fn base(
    ctx: &CommandContext,
    args: &BatchArgs,
    vault: &Vault,
    fork: Option<&ForkName>,
    notes: &mut Vec<NoteObject>,
) -> Result<VersionId, OpError> {
    let known = match fork {
        Some(fork) => vault.read()?.fork(fork).map_err(avfs_vault::VaultError::from)?,
        None => None,
    };
    if let (Some(fork), None) = (known, &args.from) {
        return Ok(fork.head);
    }
    let from = match (args.from()?, bound_dir(vault)?) {
        (Some(from), _) => from,
        (None, Some(dir)) => {
            let (_, announced) = import_for_runs(&ctx.client, vault, &dir, "import before a batch")?;
            if let Some(lines) = announced {
                let text = lines.iter().map(|line| line.trim()).collect::<Vec<_>>().join("; ");
                notes.push(NoteObject { code: IMPORT_LARGE.to_owned(), text });
            }
            Reference::parse(ForkName::main().as_str())?
        }
        (None, None) => Reference::parse(ForkName::main().as_str())?,
    };
    let reader = vault.read()?;
    Ok(avfs_vault::version::resolve(&*reader, &from)?.0.id)
}
