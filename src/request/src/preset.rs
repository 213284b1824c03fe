//! Presets: settings for the tools of a language, selected by one word. The files in `presets` define what each one
//! adds.

use avfs_types::words;

use crate::net::{AllowList, NetMode};

words!(
    /// The tools of a language.
    Preset, "preset", {
        Node = "node",
        Python = "python",
        Rust = "rust",
        Go = "go",
        Java = "java",
    }
);

/// What a preset adds to a request.
pub struct PresetData {
    /// Directories that persist between runs, in the form of `cache.dirs`.
    pub caches: &'static [&'static str],
    /// Places that are added to the list of `--net allow=`.
    pub hosts: &'static [&'static str],
    /// Variables that are passed if the caller has them.
    pub pass: &'static [&'static str],
    /// Variables that are set, unless the request sets them.
    pub set: &'static [(&'static str, &'static str)],
    /// The same, if the network is an allow list.
    pub set_with_list: &'static [(&'static str, &'static str)],
}

include!(concat!(env!("OUT_DIR"), "/presets.rs"));

impl Preset {
    #[must_use]
    pub fn data(self) -> &'static PresetData {
        let at = match self {
            Self::Node => 0,
            Self::Python => 1,
            Self::Rust => 2,
            Self::Go => 3,
            Self::Java => 4,
        };
        &PRESETS[at]
    }

    /// True if it sets this variable to this value.
    #[must_use]
    pub fn sets(self, name: &str, value: &str) -> bool {
        let PresetData { set, set_with_list, caches: _, hosts: _, pass: _ } = self.data();
        set.iter().chain(*set_with_list).any(|(own, text)| *own == name && *text == value)
    }
}

/// Adds the places of presets to a network. With the host's network they are already reachable.
#[must_use]
pub fn with_hosts(net: NetMode, presets: &[Preset]) -> NetMode {
    let hosts: Vec<&str> = presets.iter().flat_map(|preset| preset.data().hosts).copied().collect();
    let listed = match &net {
        NetMode::Host => return net,
        NetMode::None => hosts.join(","),
        NetMode::Allow(list) => {
            std::iter::once(list.to_string().as_str()).chain(hosts).collect::<Vec<_>>().join(",")
        }
    };
    // Parsing fails only if there is no place to add: a test checks that all places are valid.
    AllowList::parse(&listed).map_or(net, NetMode::Allow)
}

/// The variables that a program reads, as far as known. A version at the end of its name does not count: `python3.12`.
#[must_use]
pub fn variables_read_by(program: &str) -> Vec<&'static str> {
    let without_version = program.trim_end_matches(|c: char| c.is_ascii_digit() || c == '.');
    let is_meant = |known: &&str| *known == program || *known == without_version;
    let entries = READERS.iter().filter(|(programs, _)| programs.iter().any(is_meant));
    entries.flat_map(|(_, variables)| *variables).copied().collect()
}

/// True if a known program reads a variable.
pub fn is_read(name: &str) -> bool {
    READERS.iter().any(|(_, variables)| variables.contains(&name))
}

#[cfg(test)]
mod tests {
    use avfs_types::redact::is_credential_name;

    use super::*;
    use crate::config::{is_path_in_tests as is_path, is_variable};

    #[test]
    fn every_preset_is_valid_and_passes_no_credential() {
        for preset in Preset::ALL {
            let data = preset.data();
            assert!(!data.hosts.is_empty(), "{preset}");
            for host in data.hosts {
                AllowList::parse(host).unwrap();
            }
            assert!(data.caches.iter().all(|path| is_path(path) && path.starts_with("~/")), "{preset}");
            let set = data.set.iter().chain(data.set_with_list).map(|(name, _)| name);
            for name in data.pass.iter().chain(set) {
                assert!(is_variable(name) && !is_credential_name(name), "{name}");
            }
        }
        assert!(Preset::Node.data().hosts.contains(&"registry.npmjs.org"));
        assert!(Preset::Java.data().caches.contains(&"~/.m2/repository"));
    }

    #[test]
    fn no_ci_variable_is_a_credential() {
        for name in CI_VARIABLES {
            assert!(is_variable(name) && !is_credential_name(name), "{name}");
        }
        assert!(CI_VARIABLES.contains(&"GITHUB_SHA") && !CI_VARIABLES.contains(&"CI_REPOSITORY_URL"));
    }

    #[test]
    fn programs_read_the_variables_of_their_preset() {
        for (preset, program) in Preset::ALL.iter().zip(["node", "python", "cargo", "go", "java"]) {
            let read = variables_read_by(program);
            assert!(preset.data().pass.iter().all(|name| read.contains(name)), "{preset}: {read:?}");
        }
        for (programs, variables) in READERS {
            assert!(programs.iter().all(|name| !name.is_empty() && !name.contains('/')), "{programs:?}");
            for name in *variables {
                let is_passed = crate::Environment::is_usual(name);
                assert!(is_variable(name) && !is_credential_name(name) && !is_passed, "{name}");
                assert!(is_read(name));
            }
        }
        for program in ["python3", "python3.12", "pip3"] {
            assert!(variables_read_by(program).contains(&"PYTHONPATH"), "{program}");
        }
        assert_eq!(variables_read_by("ls"), [""; 0]);
    }

    #[test]
    fn preset_hosts_are_added_to_the_allow_list() {
        let net = |text: &str, presets: &[Preset]| with_hosts(text.parse().unwrap(), presets).to_string();
        assert_eq!(net("none", &[]), "none");
        assert_eq!(net("none", &[Preset::Rust]), "allow=index.crates.io,static.crates.io");
        assert_eq!(net("allow=a.org", &[Preset::Go]), "allow=a.org,proxy.golang.org,sum.golang.org");
        assert_eq!(net("host", &[Preset::Go]), "host");
    }
}
