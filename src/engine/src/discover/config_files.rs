//! Finds and reads settings files. Other modules interpret them.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::Path;

use avfs_request::config::{Config, ConfigError, SettingsError};

use super::file_text::{FileText, FileUse, UnreadableFile};
use crate::locate::{Surroundings, directory_config};

/// The layers as found: the files of the administrator, the user and the bound directory, and the user's variables.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConfigTexts {
    pub system: Option<FileText>,
    pub user: Option<FileText>,
    pub directory: Option<FileText>,
    pub variables: BTreeMap<OsString, OsString>,
}

impl ConfigTexts {
    pub fn read(around: &Surroundings, bound: Option<&Path>) -> Result<Self, UnreadableFile> {
        let settings = |path| FileText::read(FileUse::Settings, path);
        Ok(Self {
            system: around.system_config().map(settings).transpose()?,
            user: around.user_config().map(settings).transpose()?,
            directory: bound.map(directory_config).map(settings).transpose()?,
            variables: around.variables.clone(),
        })
    }

    /// The files with the names of their layers, in the order of precedence, lowest first.
    pub fn layers(&self) -> impl Iterator<Item = (&'static str, &FileText)> {
        let layers = [("system", &self.system), ("user", &self.user), ("directory", &self.directory)];
        layers.into_iter().filter_map(|(layer, file)| Some((layer, file.as_ref()?)))
    }

    /// Files of the layers that are allowed to relax the sandbox.
    fn trusted(&self) -> impl Iterator<Item = &FileText> {
        self.system.iter().chain(&self.user)
    }

    /// All settings of all layers.
    pub fn merged(&self) -> Result<Config, SettingsError> {
        merge(self.trusted().chain(&self.directory))?.with_variables(&self.variables)
    }

    /// The settings for a run, and the keys of the directory that are refused.
    pub fn for_a_run(&self) -> Result<(Config, Vec<&'static str>), SettingsError> {
        let own = merge(self.trusted())?;
        let (config, refused) = match &self.directory {
            Some(FileText { path, text: Some(text) }) => own.with_directory(path, text)?,
            Some(FileText { text: None, .. }) | None => (own, Vec::new()),
        };
        Ok((config.with_variables(&self.variables)?, refused))
    }
}

fn merge<'a>(mut files: impl Iterator<Item = &'a FileText>) -> Result<Config, ConfigError> {
    files.try_fold(Config::default(), |config, file| match &file.text {
        Some(text) => config.with(&file.path, text),
        None => Ok(config),
    })
}

#[cfg(test)]
mod tests {
    use avfs_request::config::Origin;
    use avfs_request::{ExecutionTimeout, NetMode};

    use super::*;

    #[test]
    fn each_layer_overrides_the_ones_before_it() {
        let dir = tempfile::tempdir().unwrap();
        let put = |place: &str, text: &str| {
            let path = dir.path().join(place);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, text).unwrap();
        };
        let mut around = Surroundings {
            cwd: dir.path().to_owned(),
            system_dir: Some(dir.path().join("etc")),
            config_home: Some(dir.path().join("home")),
            ..Surroundings::default()
        };
        let project = dir.path().join("project");
        let timeout = |around: &Surroundings| {
            let (config, _) = ConfigTexts::read(around, Some(&project)).unwrap().for_a_run().unwrap();
            (config.run_timeout.value, config.run_timeout.origin)
        };
        let of = |place: &str| Origin::File { path: dir.path().join(place), line: 1 };
        assert_eq!(timeout(&around), (ExecutionTimeout::DEFAULT, Origin::Default));
        for (place, seconds) in
            [("etc/avfs.toml", 3), ("home/avfs/avfs.toml", 2), ("project/.avfs/avfs.toml", 1)]
        {
            put(place, &format!("run.timeout = '{seconds}s'"));
            assert_eq!(timeout(&around), (ExecutionTimeout::Millis(seconds * 1000), of(place)));
        }
        around.variables.insert("AVFS_RUN_TIMEOUT".into(), "4s".into());
        let origin = Origin::Variable { name: "AVFS_RUN_TIMEOUT".to_owned() };
        assert_eq!(timeout(&around), (ExecutionTimeout::Millis(4_000), origin));
    }

    #[test]
    fn administrator_and_variables_can_relax_what_a_directory_cannot() {
        let texts = |system: &str, directory: &str, net: Option<&str>| ConfigTexts {
            system: Some(FileText { path: "/s".into(), text: Some(system.to_owned()) }),
            user: None,
            directory: Some(FileText { path: "/d".into(), text: Some(directory.to_owned()) }),
            variables: net.map(|net| ("AVFS_RUN_NET".into(), net.into())).into_iter().collect(),
        };
        let (config, refused) = texts("", "run.net = 'host'", None).for_a_run().unwrap();
        assert_eq!((config.run_net.value, refused), (NetMode::None, vec!["run.net"]));
        let (config, refused) = texts("run.net = 'host'", "", None).for_a_run().unwrap();
        assert_eq!((config.run_net.value, refused.len()), (NetMode::Host, 0));
        let (config, _) = texts("", "run.net = 'none'", Some("host")).for_a_run().unwrap();
        assert_eq!(config.run_net.value, NetMode::Host);
    }
}
