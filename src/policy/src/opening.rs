//! Openings: options of a request that give its command more access than the default, or make the run less safe.
//!
//! A caller could use each of them to widen its access. The profile `agent` asks for approval of every one, and a cap
//! can forbid it.

use std::path::{Path, PathBuf};

use avfs_request::request::NamedVault;
use avfs_request::{Degradation, HomeMode, Preset, Retention, TmpMode};
use avfs_types::diagnose::shell_word;
use avfs_types::words;

use crate::decision::Action;
use crate::verdict::Verdict;

words!(
    /// The kinds of openings, as named in rules (`profile.agent.ro`) and caps (`caps.ro`).
    OpeningKind, "opening", {
        Vault = "vault",
        NewVault = "new_vault",
        Apply = "apply",
        Ro = "ro",
        EnvFile = "env_file",
        Input = "input",
        At = "at",
        Degraded = "degraded",
        Cover = "cover",
        Preset = "preset",
        Persist = "persist",
    }
);

/// One opening of a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Opening {
    /// `--vault` names a vault other than the default one.
    Vault(NamedVault),
    /// No vault exists yet, and the run would create one.
    NewVault,
    Apply,
    /// The canonical path, without symlinks.
    Ro(PathBuf),
    EnvFile(PathBuf),
    /// The resolved path of `--input`.
    Input(PathBuf),
    /// The workspace is mounted at another path.
    At(PathBuf),
    Degraded,
    /// `--tmpfs` or `--hide` over `/proc`, `/dev` or the whole workspace.
    Cover {
        option: &'static str,
        path: PathBuf,
    },
    /// `--preset`: directories that persist from run to run.
    Preset(Preset),
    /// `--home persistent` or `--keep-tmp`: files that one run leaves there affect the next.
    Persist {
        option: &'static str,
    },
}

/// The options of a request that may widen its access.
pub struct Widening<'a> {
    pub vault: Option<NamedVault>,
    /// Canonical paths of `--ro` and `--env-file`.
    pub ro: &'a [PathBuf],
    pub env_files: &'a [PathBuf],
    /// Resolved paths of `--input`.
    pub inputs: &'a [PathBuf],
    pub retention: Retention,
    pub at: Option<&'a Path>,
    pub degradation: Degradation,
    pub home: HomeMode,
    pub tmp: TmpMode,
    /// `--tmpfs` and `--hide`, each with its path.
    pub covers: &'a [(&'static str, &'a Path)],
    pub presets: &'a [Preset],
    /// The path of the workspace inside, and its directory on the host.
    pub workspace: &'a Path,
    pub project: &'a Path,
}

impl Widening<'_> {
    #[must_use]
    pub fn openings(self) -> Vec<Opening> {
        let mut openings: Vec<Opening> = self.vault.map(Opening::Vault).into_iter().collect();
        openings.extend(self.ro.iter().cloned().map(Opening::Ro));
        openings.extend(self.env_files.iter().cloned().map(Opening::EnvFile));
        openings.extend(self.inputs.iter().cloned().map(Opening::Input));
        if self.retention == Retention::Apply {
            openings.push(Opening::Apply);
        }
        let elsewhere = self.at.filter(|at| !at.starts_with(self.project));
        openings.extend(elsewhere.map(|at| Opening::At(at.to_owned())));
        if self.degradation == Degradation::Allowed {
            openings.push(Opening::Degraded);
        }
        if self.home == HomeMode::Persistent {
            openings.push(Opening::Persist { option: "--home persistent" });
        }
        if self.tmp == TmpMode::Kept {
            openings.push(Opening::Persist { option: "--keep-tmp" });
        }
        for (option, path) in self.covers {
            let is_kernels = ["/proc", "/dev"].iter().any(|kernels| path.starts_with(kernels));
            if is_kernels || self.workspace.starts_with(path) {
                openings.push(Opening::Cover { option, path: path.to_path_buf() });
            }
        }
        openings.extend(self.presets.iter().copied().map(Opening::Preset));
        openings
    }
}

impl Opening {
    #[must_use]
    pub const fn kind(&self) -> OpeningKind {
        match self {
            Self::Vault(_) => OpeningKind::Vault,
            Self::NewVault => OpeningKind::NewVault,
            Self::Apply => OpeningKind::Apply,
            Self::Ro(_) => OpeningKind::Ro,
            Self::EnvFile(_) => OpeningKind::EnvFile,
            Self::Input(_) => OpeningKind::Input,
            Self::At(_) => OpeningKind::At,
            Self::Degraded => OpeningKind::Degraded,
            Self::Cover { .. } => OpeningKind::Cover,
            Self::Preset(_) => OpeningKind::Preset,
            Self::Persist { .. } => OpeningKind::Persist,
        }
    }

    /// The preset it is about.
    #[must_use]
    pub const fn preset(&self) -> Option<Preset> {
        match self {
            Self::Preset(preset) => Some(*preset),
            Self::Vault(_)
            | Self::NewVault
            | Self::Apply
            | Self::Ro(_)
            | Self::EnvFile(_)
            | Self::Input(_)
            | Self::At(_)
            | Self::Degraded
            | Self::Cover { .. }
            | Self::Persist { .. } => None,
        }
    }

    /// The path it is about; a cap of this kind lists paths.
    #[must_use]
    pub fn path(&self) -> Option<&Path> {
        match self {
            Self::Vault(NamedVault { path, .. })
            | Self::Ro(path)
            | Self::EnvFile(path)
            | Self::Input(path)
            | Self::At(path)
            | Self::Cover { path, .. } => Some(path),
            Self::NewVault | Self::Apply | Self::Degraded | Self::Preset(_) | Self::Persist { .. } => None,
        }
    }

    /// What it would give, as part of a sentence.
    #[must_use]
    pub fn shown(&self) -> String {
        let path = self.path().map(|path| path.display().to_string()).unwrap_or_default();
        match self {
            Self::Vault(_) => format!("another vault, {path}"),
            Self::NewVault => "a new vault".to_owned(),
            Self::Apply => "changes to the directory itself".to_owned(),
            Self::Ro(_) => format!("a view of {path}"),
            Self::EnvFile(_) => format!("the variables in {path}"),
            Self::Input(_) => format!("a comparison with the content of {path}"),
            Self::At(_) => format!("the workspace shown at {path}"),
            Self::Degraded => "a run with less isolation".to_owned(),
            Self::Cover { path, .. } => format!("a mount over {}", path.display()),
            Self::Preset(preset) => {
                format!("caches that persist between runs: {}", preset.data().caches.join(", "))
            }
            Self::Persist { option: "--keep-tmp" } => "a /tmp that outlives the run".to_owned(),
            Self::Persist { .. } => "a home that outlives the run".to_owned(),
        }
    }

    /// What to do instead.
    #[must_use]
    pub fn hint(&self) -> String {
        let drop = |option: &str, path: &Path| format!("drop {option} {}", shell_word(path.as_os_str()));
        match self {
            Self::Vault(NamedVault { path, .. }) => drop("--vault", path),
            Self::NewVault => "create the vault first with: avfs init".to_owned(),
            Self::Apply => "drop --apply, and review the run with avfs diff and avfs apply".to_owned(),
            Self::Ro(path) => drop("--ro", path),
            Self::EnvFile(path) => drop("--env-file", path),
            Self::Input(path) => drop("--input", path),
            Self::At(path) => drop("--at", path),
            Self::Degraded => "drop --allow-degraded".to_owned(),
            Self::Cover { option, path } => drop(option, path),
            Self::Preset(preset) => format!("drop --preset {preset}"),
            Self::Persist { option } => format!("drop {option}"),
        }
    }

    /// The verdict of the profile `agent`. It is a denial if an approval could not be stored in a vault of the user.
    #[must_use]
    pub fn for_an_agent(&self) -> Verdict {
        let action = match self {
            Self::Vault(NamedVault { is_trusted: false, .. }) | Self::NewVault => Action::Deny,
            Self::Vault(_)
            | Self::Apply
            | Self::Ro(_)
            | Self::EnvFile(_)
            | Self::Input(_)
            | Self::At(_)
            | Self::Degraded
            | Self::Cover { .. }
            | Self::Preset(_)
            | Self::Persist { .. } => Action::RequireApproval,
        };
        Verdict {
            action,
            rule: format!("profile.agent.{}", self.kind()),
            reason: format!("an agent would have {}", self.shown()),
            hint: Some(self.hint()),
        }
    }
}
