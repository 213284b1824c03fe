//! The library call that only looks up a cached result: called from outside the crate, and without side effects.

use avfs_engine::{GitConfigs, Look, Machine, MemoSite, NoteDelivery, Site, WarnAbove, look};
use avfs_policy::Policy;
use avfs_request::{CacheMode, EnvChoice, Environment, ExecutionRequest, ForkChoice, NetMode, Streams};
use avfs_types::{CommandLine, KeepCount};
use avfs_vault::Vault;
use avfs_vault::backend::Life;
use avfs_vault::materialize::BaseCache;
use avfs_vault::meter::Meter;

use crate::support;
use crate::support::{Scratch, fork};

fn request(word: &str) -> ExecutionRequest {
    let path = EnvChoice::Set("PATH".into(), "/usr/local/bin:/usr/bin:/bin".into());
    ExecutionRequest {
        fork: ForkChoice::Persistent { name: fork("task"), from: None },
        environment: Environment::choose([], &[path]),
        streams: Streams::Captured { bytes_max: 1000 },
        cache: CacheMode::Read,
        ..ExecutionRequest::of(CommandLine::Argv(vec!["make".into(), word.into()]))
    }
}

fn site<'a>(vault: &'a Vault, scratch: &Scratch, meter: &'a Meter, machine: &'a Machine) -> Site<'a> {
    Site {
        vault,
        vault_id: vault.id().unwrap(),
        bound: None,
        cwd: scratch.path().to_owned(),
        home: None,
        git_configs: GitConfigs::default(),
        cache_dir: scratch.join("cache"),
        private_paths: Vec::new(),
        boot_id: "boot".to_owned(),
        layers: BaseCache::new(&scratch.join("cache"), "boot"),
        stat_cache: None,
        exclude: Vec::new(),
        warn_above: WarnAbove { files: None, bytes: None },
        expires_seconds: 1,
        arguments_bytes_max: 1 << 20,
        checkpoints_keep: KeepCount::DEFAULT,
        memo: MemoSite { machine, umask: 0o022, expires_seconds: 1 },
        meter,
        notes: NoteDelivery::Shown,
    }
}

fn missed(look: Look) -> Vec<&'static str> {
    match look {
        Look::Miss(reasons) => reasons.into_iter().map(|reason| reason.code).collect(),
        Look::Hit(found) => panic!("{found:?}"),
    }
}

#[test]
fn cache_lookup_writes_nothing() {
    let scratch = Scratch::new();
    let file = scratch.join("vault.db");
    let vault = support::create_vault(&file);
    support::many_files(&scratch.dir("project"), 40);
    support::import(&vault, &scratch.join("project"));
    vault.create_fork(&fork("task"), &support::reference("main"), Life::Persistent).unwrap();
    let meter = Meter::default();
    let (machine, policy) = (Machine::default(), Policy::default());
    let site = site(&vault, &scratch, &meter, &machine);
    assert_eq!(missed(look(&site, &policy, &request("test")).unwrap()), ["unknown"]);
    let rows = || {
        support::sql(&file).query_row("SELECT max(seq) FROM audit", [], |row| row.get::<_, i64>(0)).unwrap()
    };
    let before = rows();
    look(&site, &policy, &request("test")).unwrap();
    assert_eq!(rows(), before);
    assert!(!scratch.join("cache").exists());
    let networked = ExecutionRequest { net: NetMode::Host, ..request("test") };
    assert_eq!(missed(look(&site, &policy, &networked).unwrap()), ["network"]);
}
