//! Settings of git that change results, and that a command in the sandbox does not get from the caller.
//!
//! The home of the command is empty, so the global configuration of the caller is not in effect. Never reads more than
//! configuration files.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use avfs_request::ExecutionRequest;

use super::config::{Entries, Entry, Sources, in_home};
use super::repository::{local_config, system_config};
use crate::locate::GitConfigs;
use crate::view::{GIT_CONFIG, is_shown, kept_home};

/// The section of filters, whose drivers are its subsections.
const FILTER: &str = "filter.";
/// The global files that git reads without a setting, in the directory of the configuration.
const DEFAULTS: [(&str, &str); 2] = [("core.excludesFile", "ignore"), ("core.attributesFile", "attributes")];

/// The other settings: section, key, name, and the values that equal an unset one.
const NAMED: [(&str, &str, &str, &[&str]); 6] = [
    ("core", "autocrlf", "core.autocrlf", &["false"]),
    // Lines end with LF here.
    ("core", "eol", "core.eol", &["native", "lf"]),
    ("core", "excludesfile", "core.excludesFile", &[""]),
    ("core", "attributesfile", "core.attributesFile", &[""]),
    ("commit", "gpgsign", "commit.gpgsign", &["false"]),
    ("init", "defaultbranch", "init.defaultBranch", &[""]),
];

/// The caller and a command, as far as their settings of git differ.
pub struct Callers<'a> {
    pub global: &'a GitConfigs,
    pub home: Option<&'a Path>,
    /// The directory on the host that is the workspace.
    pub bound: Option<&'a Path>,
    pub request: &'a ExecutionRequest,
}

impl Callers<'_> {
    /// The settings of the caller that are not in effect for the command, sorted.
    #[must_use]
    pub fn missing(&self) -> Vec<String> {
        let Self { global, home, bound, request } = *self;
        let system = system_config(|name| request.environment.get(name));
        let local = bound.map(|bound| local_config(bound, request.cwd.as_deref())).unwrap_or_default();
        let read =
            |may_read: &dyn Fn(&Path) -> bool, files: &[PathBuf]| Sources { home, may_read }.entries(files);
        let is_shown = |path: &Path| is_shown(path, request, bound);
        let global_inside = match request.environment.get("GIT_CONFIG_GLOBAL") {
            Some(named) => vec![PathBuf::from(named)],
            None => global.in_home.clone(),
        };
        let of_system = read(&|_| true, &system.into_iter().collect::<Vec<_>>());
        let outside = [of_system.clone(), read(&|_| true, global.in_effect()), local.clone()].concat();
        let kept = kept_home(&request.extras, home).map(kept_config).unwrap_or_default();
        let inside = [of_system, read(&is_shown, &global_inside), kept, local].concat();
        let outside = self.in_effect(&outside, &|path| has_content(path));
        let inside = self.in_effect(&inside, &|path| is_shown(path) && has_content(path));
        let missing = outside.into_iter().filter(|(name, value)| inside.get(name) != Some(value));
        missing.map(|(name, _)| name).collect()
    }

    /// The settings with an effect: the last value of each.
    fn in_effect(&self, entries: &[Entry], is_read: &dyn Fn(&Path) -> bool) -> BTreeMap<String, String> {
        let mut files = self.global.in_home.iter();
        let directory = files.find(|file| file.ends_with("git/config")).and_then(|file| file.parent());
        let defaults = directory.into_iter().flat_map(|directory| {
            DEFAULTS
                .iter()
                .map(|(name, file)| ((*name).to_owned(), directory.join(file).display().to_string()))
        });
        let mut found: BTreeMap<String, String> = defaults.collect();
        for entry in entries {
            if let Some(driver) = entry.section.strip_prefix(FILTER) {
                if let Some(value) = &entry.value {
                    found.insert(format!("{FILTER}{driver}\0{}", entry.key), value.clone());
                }
            } else if let Some((_, _, name, _)) =
                NAMED.iter().find(|(section, key, ..)| entry.is(section, key))
            {
                // `input` and `native` are no booleans.
                let value = match entry.truth() {
                    Some(truth) if entry.value.as_deref() != Some("") => truth.to_string(),
                    Some(_) | None => entry.value.clone().unwrap_or_default(),
                };
                found.insert((*name).to_owned(), value);
            }
        }
        for (name, _) in DEFAULTS {
            let path = found.get(name).and_then(|path| in_home(path, self.home));
            if !path.is_some_and(|path| is_read(&path)) {
                found.remove(name);
            }
        }
        let has_effect = |name: &str, value: &String| {
            let named = NAMED.iter().find(|(_, _, of, _)| *of == name);
            named.is_none_or(|(.., unset)| !unset.contains(&value.to_lowercase().as_str()))
        };
        found.retain(|name, value| has_effect(name, value));
        // All commands of a filter are one setting.
        let mut settings = BTreeMap::new();
        for (name, value) in found {
            let (name, key) = name.split_once('\0').unwrap_or((&name, ""));
            let setting: &mut String = settings.entry(name.to_owned()).or_default();
            setting.extend([key, "=", &value, "\n"]);
        }
        settings
    }
}

/// The settings in a home that a fork keeps. The command wrote them, so nothing that they include is read.
fn kept_config(home: &Path) -> Vec<Entry> {
    let read = |file: &str| super::read_small_in(home, Path::new(file), super::config::CONFIG_BYTES_MAX);
    let texts = [".config/git/config", GIT_CONFIG].into_iter().filter_map(read);
    texts.flat_map(|text| Entries::of(&text).collect::<Vec<_>>()).collect()
}

fn has_content(path: &Path) -> bool {
    path.metadata().is_ok_and(|meta| meta.is_file() && meta.len() > 0)
}

#[cfg(test)]
mod tests {
    use avfs_request::{Extra, HostPath};
    use avfs_types::CommandLine;

    use super::*;

    const ALL: &str = "[core]\n\tautocrlf = input\n\teol = crlf\n\texcludesFile = ~/ignored\n\
                       attributesFile = ~/attributes\n[commit]\n\tgpgsign\n[init]\n\tdefaultBranch = trunk\n\
                       [filter \"lfs\"]\n\tclean = git-lfs clean -- %f\n\trequired = true\n[alias]\n\tx = y\n";

    struct Host {
        dir: tempfile::TempDir,
        request: ExecutionRequest,
    }

    impl Host {
        fn new(global: &str) -> Self {
            let dir = tempfile::tempdir().unwrap();
            let host = Self { dir, request: ExecutionRequest::of(CommandLine::Shell("git add .".into())) };
            host.write("home/.gitconfig", global);
            for file in ["ignored", "attributes"] {
                host.write(&format!("home/{file}"), "*.x\n");
            }
            host.write("project/.git/HEAD", "ref: refs/heads/main\n");
            host
        }

        fn at(&self, path: &str) -> PathBuf {
            self.dir.path().canonicalize().unwrap().join(path)
        }

        fn write(&self, path: &str, text: &str) {
            let path = self.at(path);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, text).unwrap();
        }

        fn missing(&self) -> String {
            self.missing_with(None)
        }

        fn missing_with(&self, named: Option<PathBuf>) -> String {
            let (home, bound) = (self.at("home"), self.at("project"));
            let in_home = vec![home.join(".config/git/config"), home.join(GIT_CONFIG)];
            let global = GitConfigs { named, in_home };
            let (home, bound) = (Some(home.as_path()), Some(bound.as_path()));
            Callers { global: &global, home, bound, request: &self.request }.missing().join(" ")
        }
    }

    #[test]
    fn settings_with_an_effect_are_named() {
        assert_eq!(
            Host::new(ALL).missing(),
            "commit.gpgsign core.attributesFile core.autocrlf core.eol core.excludesFile filter.lfs init.defaultBranch"
        );
        let without = "[user]\nname = x\n[core]\nautocrlf = false\neol = LF\nexcludesFile = ~/none\n[commit]\ngpgsign = no\n";
        assert_eq!(Host::new(without).missing(), "");
        // Git reads these files without a setting.
        let host = Host::new("");
        host.write("home/.config/git/ignore", "*.o\n");
        host.write("home/.config/git/attributes", "");
        assert_eq!(host.missing(), "core.excludesFile");
    }

    #[test]
    fn settings_that_are_in_effect_are_not_named() {
        let global = "[core]\nautocrlf = input\nexcludesFile = ~/ignored\n";
        let host = Host::new(global);
        host.write("project/.git/config", "[core]\nautocrlf = false\n");
        assert_eq!(host.missing(), "core.excludesFile", "the repository sets it");
        let mut host = Host::new(global);
        let shown = |path: &str, host: &Host| Extra::ReadOnly(HostPath::resolve(host.at(path)).unwrap());
        host.request.extras = vec![shown("home/.gitconfig", &host)];
        assert_eq!(host.missing(), "core.excludesFile", "the file of the setting is not shown");
        host.request.extras.push(shown("home/ignored", &host));
        assert_eq!(host.missing(), "");
        host.request.extras.push(Extra::Hide(host.at("home/.gitconfig")));
        assert_eq!(host.missing(), "core.autocrlf core.excludesFile");
        let mut host = Host::new(global);
        host.write("kept/.gitconfig", "[core]\nautocrlf = input\n");
        host.request.extras = vec![Extra::Cache { source: host.at("kept"), path: host.at("home") }];
        assert_eq!(host.missing(), "core.excludesFile", "a kept home has it");
    }

    #[test]
    fn a_named_file_replaces_those_in_the_home_of_the_caller_alone() {
        let mut host = Host::new("[core]\nautocrlf = input\n");
        host.write("named", "[init]\ndefaultBranch = trunk\n");
        let shown = |path: &str| Extra::ReadOnly(HostPath::resolve(host.at(path)).unwrap());
        host.request.extras = vec![shown("named"), shown("home/.gitconfig")];
        let missing = |named: &str| host.missing_with(Some(host.at(named)));
        assert_eq!(missing("named"), "init.defaultBranch");
        assert_eq!(missing("none"), "");
        // The default files are the same.
        host.write("home/.config/git/ignore", "*.o\n");
        assert_eq!(missing("none"), "core.excludesFile");
    }
}
