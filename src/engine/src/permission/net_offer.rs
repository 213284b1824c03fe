//! The networks offered to a person for a command that needs a network and did not request one.

use std::io::Read;
use std::path::Path;

use avfs_hostfs::text::{Symlink, open_found};
use avfs_request::NetMode;
use avfs_request::spec::CommandText;

use crate::journal::RunRequest;

/// Hosts that these programs use by default.
const REGISTRIES: [(&str, &str); 9] = [
    ("npm", "registry.npmjs.org"),
    ("npx", "registry.npmjs.org"),
    ("pnpm", "registry.npmjs.org"),
    ("yarn", "registry.yarnpkg.com"),
    ("pip", "pypi.org,files.pythonhosted.org"),
    ("pip3", "pypi.org,files.pythonhosted.org"),
    ("uv", "pypi.org,files.pythonhosted.org"),
    ("cargo", "index.crates.io,static.crates.io"),
    ("go", "proxy.golang.org,sum.golang.org"),
];
/// Larger git configurations are not read.
const GIT_CONFIG_BYTES_MAX: u64 = 64 << 10;

/// The choices for a recorded request: the most likely network first, the host's network last. Empty if the
/// request itself asks for a network.
#[must_use]
pub fn offered_networks(request: &RunRequest, workspace: &Path) -> Vec<NetMode> {
    if request.net != NetMode::None.to_string() {
        return Vec::new();
    }
    let words: Vec<&str> = match &request.command {
        CommandText::Shell(line) => line.split_whitespace().collect(),
        CommandText::Argv(words) => words.iter().map(String::as_str).collect(),
    };
    let named: Vec<String> = words.iter().filter_map(|word| host_of(word)).collect();
    let hosts = match (named.is_empty(), words.contains(&"git")) {
        (false, _) => named.join(","),
        (true, true) => git_hosts(workspace).join(","),
        (true, false) => {
            let registry = REGISTRIES.iter().find(|(program, _)| words.contains(program));
            registry.map(|(_, hosts)| (*hosts).to_owned()).unwrap_or_default()
        }
    };
    let listed = format!("allow={hosts}").parse().ok().filter(|_| !hosts.is_empty());
    listed.into_iter().chain([NetMode::None, NetMode::Host]).collect()
}

/// The host of a URL, or of an scp-like location: `user@host:path`.
fn host_of(word: &str) -> Option<String> {
    let word = word.trim_matches(['\'', '"']);
    let rest = match word.split_once("://") {
        Some((scheme, rest)) if scheme.chars().all(|c| c.is_ascii_alphanumeric() || c == '+') => rest,
        Some(_) => return None,
        None => {
            let (user, rest) = word.split_once('@')?;
            (!user.contains(['/', ':']) && rest.contains(':')).then_some(rest)?
        }
    };
    let host = rest.split(['/', ':', '?', '#']).next()?;
    let host = host.rsplit('@').next()?;
    let is_name =
        host.contains('.') && host.chars().all(|c| c.is_ascii_alphanumeric() || c == '.' || c == '-');
    is_name.then(|| host.to_owned())
}

/// The hosts of a repository's remotes. The file is untrusted, since it belongs to the workspace: its hosts are
/// only offered, and shown to the person.
fn git_hosts(workspace: &Path) -> Vec<String> {
    let file = open_found(&workspace.join(".git/config"), Symlink::Refuse);
    let mut text = String::new();
    let read = file.and_then(|file| file.take(GIT_CONFIG_BYTES_MAX).read_to_string(&mut text));
    if read.is_err() {
        return Vec::new();
    }
    let urls = text.lines().filter_map(|line| line.trim().strip_prefix("url")?.trim().strip_prefix('='));
    let mut hosts: Vec<String> = urls.filter_map(|url| host_of(url.trim())).collect();
    hosts.sort_unstable();
    hosts.dedup();
    hosts
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn offers(command: Value, workspace: &Path) -> Vec<String> {
        networks(json!({"net": "none", "command": command}), workspace)
            .iter()
            .map(ToString::to_string)
            .collect()
    }

    fn networks(request: Value, workspace: &Path) -> Vec<NetMode> {
        offered_networks(&serde_json::from_value(request).unwrap(), workspace)
    }

    #[test]
    fn most_likely_network_is_offered_first() {
        let nowhere = Path::new("/nowhere");
        let only = |hosts: &str| vec![format!("allow={hosts}"), "none".to_owned(), "host".to_owned()];
        assert_eq!(offers(json!(["curl", "https://example.org:8443/x"]), nowhere), only("example.org"));
        assert_eq!(offers(json!("git clone git@github.com:a/b"), nowhere), only("github.com"));
        assert_eq!(offers(json!(["npm", "ci"]), nowhere), only("registry.npmjs.org"));
        assert_eq!(offers(json!(["wget", "$URL"]), nowhere), ["none", "host"]);
        assert_eq!(offers(json!(["curl", "https://bad host/"]), nowhere), ["none", "host"]);
        assert!(networks(json!({"net": "host", "command": "x"}), nowhere).is_empty());
    }

    #[test]
    fn hosts_of_git_remotes_are_offered() {
        let dir = tempfile::tempdir().unwrap();
        std::fs::create_dir(dir.path().join(".git")).unwrap();
        let config = "[remote \"origin\"]\n\turl = https://github.com/a/b\n[remote \"x\"]\n\turl = /srv/x\n";
        std::fs::write(dir.path().join(".git/config"), config).unwrap();
        assert_eq!(offers(json!(["git", "fetch"]), dir.path()), ["allow=github.com", "none", "host"]);
    }
}
