//! The files that hold settings: found and read here, given a meaning by the rest of the module.

use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use crate::diagnose::Diagnose;
use crate::runtime::{Surroundings, directory_config};

use super::{Config, ConfigError};

#[derive(Debug, thiserror::Error)]
#[error("cannot read the settings in {}", path.display())]
pub struct UnreadableConfig {
    pub path: PathBuf,
    #[source]
    pub source: std::io::Error,
}

impl Diagnose for UnreadableConfig {
    fn code(&self) -> &'static str {
        "config.io"
    }

    fn hint(&self) -> Option<String> {
        Some("make it readable, or remove it".to_owned())
    }
}

/// A place where settings may be; without a text where nothing is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConfigText {
    pub path: PathBuf,
    pub text: Option<String>,
}

impl ConfigText {
    fn read(path: PathBuf) -> Result<Self, UnreadableConfig> {
        match std::fs::read_to_string(&path) {
            Ok(text) => Ok(Self { path, text: Some(text) }),
            Err(error) if [ErrorKind::NotFound, ErrorKind::NotADirectory].contains(&error.kind()) => {
                Ok(Self { path, text: None })
            }
            Err(source) => Err(UnreadableConfig { path, source }),
        }
    }
}

/// The user's own settings, and those of the bound directory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConfigTexts {
    pub user: Option<ConfigText>,
    pub directory: Option<ConfigText>,
}

impl ConfigTexts {
    pub fn read(around: &Surroundings, bound: Option<&Path>) -> Result<Self, UnreadableConfig> {
        Ok(Self {
            user: around.user_config().map(ConfigText::read).transpose()?,
            directory: bound.map(directory_config).map(ConfigText::read).transpose()?,
        })
    }

    /// In the order in which they are laid over each other.
    pub fn all(&self) -> impl Iterator<Item = &ConfigText> {
        self.user.iter().chain(&self.directory)
    }

    /// Everything the files say, whoever wrote them.
    pub fn merged(&self) -> Result<Config, ConfigError> {
        self.all().try_fold(Config::default(), |config, file| match &file.text {
            Some(text) => config.with(&file.path, text),
            None => Ok(config),
        })
    }

    /// What a run goes by, and the keys of the directory that it does not take.
    pub fn for_a_run(&self) -> Result<(Config, Vec<&'static str>), ConfigError> {
        let own = Self { user: self.user.clone(), directory: None }.merged()?;
        match &self.directory {
            Some(ConfigText { path, text: Some(text) }) => own.with_directory(path, text),
            Some(ConfigText { text: None, .. }) | None => Ok((own, Vec::new())),
        }
    }
}
