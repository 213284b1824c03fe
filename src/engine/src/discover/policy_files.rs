//! Finds and reads policy files. [`avfs_policy`] interprets them.
//!
//! A file that exists and cannot be read is an error, never an empty policy.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use avfs_policy;
use avfs_policy::{Layer, Policy, PolicyError, Script, Tier};
use avfs_types::{VAULT_DIR, VAULT_FILE};

use super::file_text::{FileText, FileUse, UnreadableFile};
use super::locate::Surroundings;

pub const POLICY_FILE: &str = "policy.toml";
pub const REGO_FILE: &str = "policy.rego";

/// The files of one tier.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LayerText {
    pub tier: Tier,
    pub rules: FileText,
    pub script: FileText,
}

impl LayerText {
    fn read(tier: Tier, (rules, script): (PathBuf, PathBuf)) -> Result<Self, UnreadableFile> {
        let policy = |path| FileText::read(FileUse::Policy, path);
        Ok(Self { tier, rules: policy(rules)?, script: policy(script)? })
    }

    /// The policy in the files; `None` if neither exists. An empty file, such as a placeholder beside the vault, is no
    /// policy.
    fn layer(&self) -> Result<Option<Layer>, PolicyError> {
        let text = |file: &FileText| file.text.clone().filter(|text| !text.is_empty());
        let (path, rules) = (&self.rules.path, text(&self.rules));
        let rules = rules.map(|text| Layer::parse(self.tier, path, &text, avfs_policy::read)).transpose()?;
        let (path, script) = (&self.script.path, text(&self.script));
        let Some(script) = script.map(|text| Script::parse(path, &text)).transpose()? else {
            return Ok(rules);
        };
        let rules = rules.unwrap_or_else(|| Layer::new(self.tier));
        Ok(Some(Layer { script: Some(script), ..rules }))
    }
}

/// The layers as found, the system's first.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PolicyTexts {
    pub layers: Vec<LayerText>,
}

impl PolicyTexts {
    /// The files of the administrator and the user, and those beside a vault.
    pub fn read(around: &Surroundings, vault: Option<&Path>) -> Result<Self, UnreadableFile> {
        let beside = |config: PathBuf| (config.with_file_name(POLICY_FILE), config.with_file_name(REGO_FILE));
        let places = [
            (Tier::System, around.system_config().map(beside)),
            (Tier::User, around.user_config().map(beside)),
            // Beside the file itself: a symlink to a vault must not bypass the policy of the vault.
            (Tier::Vault, vault.map(|vault| beside_vault(&real(vault)))),
        ];
        let places = places.into_iter().filter_map(|(tier, places)| Some((tier, places?)));
        let layers = places.map(|(tier, places)| LayerText::read(tier, places)).collect::<Result<_, _>>()?;
        Ok(Self { layers })
    }

    /// The policy of all layers, over the defaults.
    pub fn policy(&self) -> Result<Policy, PolicyError> {
        self.layers.iter().try_fold(Policy::builtin(), |policy, texts| {
            Ok(texts.layer()?.into_iter().fold(policy, Policy::with))
        })
    }

    /// The same with another text for a file.
    #[must_use]
    pub fn with_text(mut self, file: &Path, text: &str) -> Self {
        for found in self.layers.iter_mut().map(|layer| &mut layer.rules).filter(|rules| rules.path == file) {
            found.text = Some(text.to_owned());
        }
        self
    }

    /// Every file that was checked, with its tier.
    pub fn files(&self) -> impl Iterator<Item = (Tier, &FileText)> {
        self.layers.iter().flat_map(|layer| [(layer.tier, &layer.rules), (layer.tier, &layer.script)])
    }
}

fn real(path: &Path) -> PathBuf {
    std::fs::canonicalize(path).unwrap_or_else(|_| path.to_owned())
}

/// `.avfs/policy.toml` for the vault of a directory; `NAME.db.policy.toml` for a vault that may have others
/// beside it.
fn beside_vault(vault: &Path) -> (PathBuf, PathBuf) {
    let is_of_a_dir =
        vault.parent().is_some_and(|dir| dir.ends_with(VAULT_DIR)) && vault.ends_with(VAULT_FILE);
    let place = |name: &str| {
        if is_of_a_dir {
            return vault.with_file_name(name);
        }
        let mut longer = OsString::from(vault);
        longer.push(format!(".{name}"));
        PathBuf::from(longer)
    };
    (place(POLICY_FILE), place(REGO_FILE))
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use avfs_types::diagnose::Diagnose;

    use super::*;

    #[test]
    fn policy_files_of_a_vault_are_beside_it() {
        let beside = |vault: &str| beside_vault(Path::new(vault)).0;
        assert_eq!(beside("/p/.avfs/vault.db"), Path::new("/p/.avfs/policy.toml"));
        assert_eq!(beside("/p/.avfs/other.db"), Path::new("/p/.avfs/other.db.policy.toml"));
        assert_eq!(beside("/vaults/work.db"), Path::new("/vaults/work.db.policy.toml"));
        assert_eq!(beside("/vaults/vault.db"), Path::new("/vaults/vault.db.policy.toml"));
    }

    #[test]
    fn every_layer_is_read_and_unreadable_files_are_errors() {
        let dir = tempfile::tempdir().unwrap();
        let around = Surroundings {
            system_dir: Some(dir.path().join("etc")),
            config_home: Some(dir.path().join("home")),
            ..Surroundings::default()
        };
        let vault = dir.path().join("p/.avfs/vault.db");
        let texts = || PolicyTexts::read(&around, Some(&vault));
        assert!(texts().unwrap().policy().unwrap().layers().is_empty());
        for (place, tier) in [
            ("p/.avfs/policy.toml", Tier::Vault),
            ("home/avfs/policy.toml", Tier::User),
            ("etc/policy.toml", Tier::System),
        ] {
            let path = dir.path().join(place);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(&path, "[[rule]]\naction = 'deny'\n").unwrap();
            let policy = texts().unwrap().policy().unwrap();
            assert_eq!(policy.layers()[0].tier, tier, "layers with higher precedence come first");
            assert_eq!(policy.layers()[0].rules[0].name, format!("{}:1", path.display()));
        }
        assert_eq!(PolicyTexts::read(&around, None).unwrap().policy().unwrap().layers().len(), 2);
        let user = dir.path().join("home/avfs/policy.toml");
        std::fs::write(&user, "[[rule]]\naction = 'dny'\n").unwrap();
        assert_eq!(texts().unwrap().policy().unwrap_err().code(), "policy.bad_value");
        std::fs::write(&user, [0xff, 0xfe]).unwrap();
        assert_eq!(texts().unwrap_err().code(), "policy.io");
        std::fs::remove_file(&user).unwrap();
        std::os::unix::fs::symlink("/no/such/policy", &user).unwrap();
        assert_eq!(texts().unwrap_err().code(), "policy.io");
        std::fs::remove_file(&user).unwrap();
        std::fs::create_dir(&user).unwrap();
        std::fs::set_permissions(&user, std::fs::Permissions::from_mode(0o700)).unwrap();
        assert_eq!(texts().unwrap_err().code(), "policy.io");
    }

    #[test]
    fn symlink_to_a_vault_does_not_bypass_its_policy() {
        let dir = tempfile::tempdir().unwrap();
        let home = dir.path().canonicalize().unwrap().join(VAULT_DIR);
        std::fs::create_dir(&home).unwrap();
        std::fs::write(home.join(VAULT_FILE), "").unwrap();
        let link = dir.path().join("link.db");
        std::os::unix::fs::symlink(home.join(VAULT_FILE), &link).unwrap();
        let texts = PolicyTexts::read(&Surroundings::default(), Some(&link)).unwrap();
        assert_eq!(texts.layers[0].rules.path, home.join(POLICY_FILE));
    }

    #[cfg(not(feature = "rego"))]
    #[test]
    fn script_is_never_skipped() {
        let dir = tempfile::tempdir().unwrap();
        let around = Surroundings { system_dir: Some(dir.path().to_owned()), ..Surroundings::default() };
        std::fs::write(dir.path().join(REGO_FILE), "package avfs").unwrap();
        let error = PolicyTexts::read(&around, None).unwrap().policy().unwrap_err();
        assert_eq!(error.code(), "policy.rego_left_out");
    }
}
