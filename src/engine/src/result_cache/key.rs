//! The key of a result: named parts, each a digest.
//!
//! Requests with equal parts are assumed to have the same result. So everything that a result depends on must
//! be in a part; the system is represented by the state of package managers and PATH (docs/guides/cache.md
//! lists the undetected parts).

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;

use avfs_request::ExecutionRequest;
use avfs_types::CommandLine;
use avfs_types::encode::put_bytes;
use avfs_types::ids::ContentId;
use avfs_vault::memo::{COMMAND_PART, MemoParts};

use super::MemoError;
use super::inputs::inputs;
use super::machine::SearchPaths;
use crate::result_cache::machine::Machine;
use crate::workspace_root::Places;

pub const BASE: &str = "base";
pub const PLACES: &str = "places";
pub const ENVIRONMENT: &str = "environment";
pub const SANDBOX: &str = "sandbox";
pub const INPUTS: &str = "inputs";
pub const SYSTEM: &str = "system";
pub const PROGRAMS: &str = "programs";

/// The context that a key depends on, besides the request.
pub struct Around<'a> {
    pub places: &'a Places,
    pub home: Option<&'a std::path::Path>,
    /// Paths that are never versioned, as lines of an ignore file.
    pub exclude: &'a [String],
    pub umask: u32,
    pub machine: &'a Machine,
}

/// Every part except the files it starts from.
pub fn parts(request: &ExecutionRequest, around: &Around<'_>) -> Result<MemoParts, MemoError> {
    let ExecutionRequest { command, environment, inputs: named, .. } = request;
    let mut parts = MemoParts::default();
    let (mode, words) = match command {
        CommandLine::Argv(words) => (&b"argv"[..], words.as_slice()),
        CommandLine::Shell(line) => (&b"shell"[..], std::slice::from_ref(line)),
    };
    let words = words.iter().map(|word| word.as_bytes());
    parts.set(COMMAND_PART, &list([mode].into_iter().chain(words)));
    let Around { places, home, exclude, umask, machine } = around;
    let Places { bound: _, workspace, cwd } = places;
    parts.set(PLACES, &list([workspace.as_os_str().as_bytes(), cwd.as_os_str().as_bytes()]));
    let pairs = environment.pairs();
    let pairs = pairs.iter().flat_map(|(name, value)| [name.as_bytes(), value.as_bytes()]);
    parts.set(ENVIRONMENT, &list(pairs));

    let mut sandbox = request.sandbox_key(*umask, *home);
    exclude.iter().for_each(|line| put_bytes(&mut sandbox, line.as_bytes()));
    parts.set(SANDBOX, &sandbox);

    parts.set(INPUTS, &inputs(named)?);
    parts.set(SYSTEM, machine.system());
    let paths = SearchPaths {
        toolchains: environment.toolchain_path(),
        command: environment.get("PATH").unwrap_or_default(),
    };
    let program = match command {
        CommandLine::Argv(words) => words.first().map_or(OsStr::new(""), |word| word.as_os_str()),
        CommandLine::Shell(_) => OsStr::new("/bin/sh"),
    };
    parts.set(PROGRAMS, &machine.programs(&paths, program, *home, workspace));
    Ok(parts)
}

/// Sets the part for the files. Times are not content.
pub fn set_base(parts: &mut MemoParts, content: &ContentId) {
    parts.set(BASE, content.as_bytes());
}

fn list<'a>(fields: impl IntoIterator<Item = &'a [u8]>) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(256);
    fields.into_iter().for_each(|field| put_bytes(&mut bytes, field));
    bytes
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use avfs_hostfs::held::HeldFile;
    use avfs_request::choices::PolicyProfile;
    use avfs_request::{
        ApprovalMode, BackendChoice, BaseChoice, CacheMode, ChangeForm, CheckpointMode, Degradation,
        EnvChoice, Environment, ExecutionTimeout, Extra, ForkChoice, HostPath, LandlockMode, NestedUserns,
        ProcMode, Profile, Purity, Retention, ScratchChoice, SeccompProfile, SecretsInFiles, Streams,
        Writing,
    };
    use avfs_types::ids::ForkName;

    use super::*;

    fn request() -> ExecutionRequest {
        ExecutionRequest::of(CommandLine::Argv(vec!["make".into(), "test".into()]))
    }

    fn of(request: &ExecutionRequest, machine: &Machine) -> MemoParts {
        let places = Places::find(request, Some("/srv/app".into()), "/srv/app".as_ref()).unwrap();
        let around = Around { places: &places, home: None, exclude: &[], umask: 0o022, machine };
        let mut parts = parts(request, &around).unwrap();
        set_base(&mut parts, &ContentId([1; 32]));
        parts
    }

    type Change = Box<dyn Fn(&mut ExecutionRequest)>;

    fn host_path(path: &str) -> HostPath {
        HostPath { path: path.into(), real: path.into(), file: HeldFile::default() }
    }

    #[test]
    fn every_field_changes_only_its_own_part() {
        let machine = Machine::default();
        let plain = of(&request(), &machine);
        let changes: Vec<(&[&str], Change)> = vec![
            (&["command"], Box::new(|it| it.command = CommandLine::Argv(vec!["make".into(), "x".into()]))),
            (&["command", "programs"], Box::new(|it| it.command = CommandLine::Shell("make test".into()))),
            (&[PLACES], Box::new(|it| it.at = Some("/elsewhere".into()))),
            (&[PLACES], Box::new(|it| it.cwd = Some("src".into()))),
            (
                &[ENVIRONMENT],
                Box::new(|it| {
                    it.environment = Environment::choose([], &[EnvChoice::Set("A".into(), "b".into())]);
                }),
            ),
            (&[SANDBOX], Box::new(|it| it.writing = Writing::Refused)),
            (&[SANDBOX], Box::new(|it| it.scratch = ScratchChoice::Disk)),
            (&[SANDBOX], Box::new(|it| it.backend = BackendChoice::Copy)),
            (&[SANDBOX], Box::new(|it| it.degradation = Degradation::Allowed)),
            (&[SANDBOX], Box::new(|it| it.timeout = ExecutionTimeout::None)),
            (&[SANDBOX], Box::new(|it| it.grace = Duration::MAX)),
            (&[SANDBOX], Box::new(|it| it.net = "allow=a.org".parse().unwrap())),
            (&[SANDBOX], Box::new(|it| it.proc = ProcMode::Absent)),
            (&[SANDBOX], Box::new(|it| it.profile = Profile::Host)),
            (&[SANDBOX], Box::new(|it| it.extras = vec![Extra::ReadOnly(host_path("/x"))])),
            (&[SANDBOX], Box::new(|it| it.secrets_in_files = SecretsInFiles::Allowed)),
            (&[SANDBOX], Box::new(|it| it.limits.memory = Some(1))),
            (&[SANDBOX], Box::new(|it| it.confinement.seccomp = SeccompProfile::Off)),
            (&[SANDBOX], Box::new(|it| it.confinement.landlock = LandlockMode::Off)),
            (&[SANDBOX], Box::new(|it| it.confinement.userns = NestedUserns::Allowed)),
            (
                &[INPUTS],
                Box::new(|it| {
                    it.inputs = vec![env!("CARGO_MANIFEST_DIR").to_owned().into()]
                        .into_iter()
                        .map(|dir: std::path::PathBuf| dir.join("Cargo.toml"))
                        .collect()
                }),
            ),
            (
                &[],
                Box::new(|it| {
                    it.fork = ForkChoice::Persistent { name: ForkName::parse("f").unwrap(), from: None };
                }),
            ),
            (&[], Box::new(|it| it.base = BaseChoice::Cached)),
            (&[], Box::new(|it| it.retention = Retention::Apply)),
            (&[], Box::new(|it| it.checkpoint = CheckpointMode::Never)),
            (&[], Box::new(|it| it.streams = Streams::Captured { bytes_max: 1 })),
            (&[], Box::new(|it| it.show = ChangeForm::Patch)),
            (&[], Box::new(|it| it.policy = vec![PolicyProfile::Agent])),
            (&[], Box::new(|it| it.approval = ApprovalMode::Wait)),
            (&[], Box::new(|it| it.cache = CacheMode::Write)),
            (&[], Box::new(|it| it.purity = Purity::Declared)),
        ];
        let mut keys = Vec::new();
        for (number, (wanted, change)) in changes.iter().enumerate() {
            let mut changed = request();
            change(&mut changed);
            let parts = of(&changed, &machine);
            assert_eq!(plain.differing(&parts), *wanted, "change number {number}");
            let key = parts.key();
            assert_eq!(key == plain.key(), wanted.is_empty(), "change number {number}");
            assert!(wanted.is_empty() || !keys.contains(&key), "number {number} equals an earlier one");
            keys.push(key);
        }
    }

    #[test]
    fn files_umask_and_exclusions_are_parts_too() {
        let machine = Machine::default();
        let plain = of(&request(), &machine);
        let mut other = plain.clone();
        set_base(&mut other, &ContentId([2; 32]));
        assert_eq!(plain.differing(&other), [BASE]);
        let places = Places::find(&request(), Some("/srv/app".into()), "/srv/app".as_ref()).unwrap();
        let exclude = ["*.tmp".to_owned()];
        let around =
            |exclude, umask| Around { places: &places, home: None, exclude, umask, machine: &machine };
        for around in [around(&exclude, 0o022), around(&[], 0o077)] {
            let mut parts = parts(&request(), &around).unwrap();
            set_base(&mut parts, &ContentId([1; 32]));
            assert_eq!(plain.differing(&parts), [SANDBOX]);
        }
    }
}
