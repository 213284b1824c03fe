//! Changed paths that take effect on the host without a user action once they are applied: tools execute them
//! or take commands from them, or agents follow their instructions.
//!
//! The paths are in `host_files.rs`. Files that only take effect because of settings on the host, such as git's
//! `core.hooksPath`, cannot be detected here.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::path::Path;

use serde::Deserialize;
use serde_json::Value;

use avfs_types::path::TreePath;
use avfs_types::words;
use avfs_vault::changes::Changes;
use avfs_vault::diff::{Change, ChangeKind, Side};
use avfs_vault::meter::Meter;
use avfs_vault::page::{DirRef, FileNode, Node};
use avfs_vault::write_out::FreshPages;
use avfs_vault::{Result, Vault, read_content};

use crate::bare_repository::BareRepositories;
use crate::host_files::TABLE;
use crate::linked_paths::{HostVersion, LinkedPaths};

words!(
    /// How the host uses a file automatically. Ordered by importance.
    HostUse, "use", {
        /// Tools execute it, or take commands from it.
        Executed = "executed",
        /// Agents follow its instructions.
        ReadByAgents = "read_by_agents",
    }
);

/// A changed path that the host uses automatically.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RunsOnHost {
    pub path: TreePath,
    pub used: HostUse,
    /// A description, such as `a git hook`.
    pub why: &'static str,
    /// The symlink through which the path is used, if its own path would not be.
    pub link: Option<TreePath>,
}

impl fmt::Display for RunsOnHost {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let used = match self.used {
            HostUse::Executed => "executed on the host",
            HostUse::ReadByAgents => "read by agents on the host",
        };
        write!(f, "{used} once applied: {} ({}", self.path, self.why)?;
        match &self.link {
            Some(link) => write!(f, ", through the symlink {link})"),
            None => write!(f, ")"),
        }
    }
}

const BARE_REPOSITORY: &str = "part of a bare repository, whose settings and hooks git uses in its directory";
const INSTALL_SCRIPT: &str = "a script that npm runs during install";

use HostUse::Executed;

/// Version control directories, which have many subdirectories.
const STORES: [&[u8]; 2] = [b".git", b".hg"];

/// The scripts of a `package.json` that `npm install` runs in its directory.
const INSTALL_SCRIPTS: [&str; 7] =
    ["preinstall", "install", "postinstall", "prepublish", "preprepare", "prepare", "postprepare"];
/// A larger file is assumed to have such scripts.
const PACKAGE_BYTES_MAX: u64 = 1 << 20;

/// How the host uses a file or symlink at this path; `None` if no tool reads it automatically.
#[must_use]
pub fn runs_on_host(path: &TreePath, node: &Node) -> Option<(HostUse, &'static str)> {
    let names: Vec<&[u8]> = path.components().collect();
    let last = names.last()?;
    // Never executed: git installs them as templates.
    if last.ends_with(b".sample") {
        return None;
    }
    let from: Vec<&[&[u8]]> = (0..names.len())
        .filter(|at| at + 1 == names.len() || names[*at].starts_with(b"."))
        .map(|at| &names[at..])
        .collect();
    let is_found = |pattern: &str| from.iter().any(|names| is_match(pattern, names));
    let leads_there = |pattern: &str| {
        let dirs = pattern.match_indices('/').map(|(at, _)| pattern.get(..at).unwrap_or_default());
        dirs.into_iter().any(is_found)
    };
    let of_itself = || TABLE.iter().find(|row| row.patterns.iter().any(|pattern| is_found(pattern)));
    // A directory may contain files of several rows; `Executed` has precedence.
    let of_its_dir = || {
        let rows = TABLE.iter().filter(|row| row.patterns.iter().any(|pattern| leads_there(pattern)));
        rows.min_by_key(|row| row.used)
    };
    let row = match node {
        Node::Dir(_) => None,
        Node::Symlink(_) => of_itself().or_else(of_its_dir),
        Node::File(_) | Node::Fifo(_) => of_itself(),
    };
    row.map(|row| (row.used, row.why))
}

/// The paths in the root of a project that the host uses automatically, and the directories leading to them, as
/// far as the patterns name them.
#[must_use]
pub fn places_of_host() -> Vec<TreePath> {
    let mut places = BTreeSet::new();
    for pattern in TABLE.iter().flat_map(|row| row.patterns) {
        let mut place = TreePath::root();
        for name in pattern.split('/').take_while(|name| !name.contains('*')) {
            place = place.join(name.as_bytes());
            places.insert(place.clone());
        }
    }
    places.into_iter().collect()
}

/// Whether a directory may contain a path that the host uses automatically: projects may be anywhere except
/// inside version control directories.
#[must_use]
pub fn may_hold(dir: &TreePath) -> bool {
    let names: Vec<&[u8]> = dir.components().collect();
    let begins_at = |at: usize| {
        let patterns = TABLE.iter().flat_map(|row| row.patterns);
        patterns.into_iter().any(|pattern| begins(pattern, &names[at..]))
    };
    match names.iter().position(|name| STORES.contains(name)) {
        Some(store) => begins_at(store),
        None => true,
    }
}

/// True if a path that continues these components can match the pattern.
fn begins(pattern: &str, names: &[&[u8]]) -> bool {
    let Some((name, others)) = names.split_first() else { return true };
    let (first, rest) = pattern.split_once('/').map_or((pattern, None), |(first, rest)| (first, Some(rest)));
    match (first, rest) {
        ("**", _) => true,
        (_, None) => false,
        ("*", Some(rest)) => begins(rest, others),
        (_, Some(rest)) => *name == first.as_bytes() && begins(rest, others),
    }
}

/// True if the pattern matches all of these components.
fn is_match(pattern: &str, names: &[&[u8]]) -> bool {
    let (first, rest) = pattern.split_once('/').map_or((pattern, None), |(first, rest)| (first, Some(rest)));
    match (first, rest) {
        ("**", None) => !names.is_empty(),
        ("**", Some(rest)) => (0..names.len()).any(|at| is_match(rest, &names[at..])),
        (_, rest) => names.split_first().is_some_and(|(name, others)| {
            let is_first = match first.strip_prefix('*') {
                Some(end) => name.ends_with(end.as_bytes()),
                None => *name == first.as_bytes(),
            };
            is_first && rest.map_or(others.is_empty(), |rest| is_match(rest, others))
        }),
    }
}

/// The changes that take effect on the host automatically once they are applied. `after` is the version after
/// the changes, and `dir` is the host directory they are for.
pub fn called_out(
    vault: &Vault,
    after: &DirRef,
    dir: Option<&Path>,
    changes: &Changes,
    meter: &Meter,
) -> Result<Vec<RunsOnHost>> {
    let is_relevant = |change: &Result<Cow<'_, Change>>| {
        change.as_ref().map_or(true, |change| change.kind != ChangeKind::Time && change.after.is_some())
    };
    let relevant = || changes.iter().filter(is_relevant);
    if relevant().next().transpose()?.is_none() {
        return Ok(Vec::new());
    }
    let place = HostVersion { pages: &FreshPages::stoppable(vault, meter), root: after, dir };
    let linked = LinkedPaths::find(&place, relevant())?;
    let mut bare = BareRepositories::new(&place);
    let mut called = Vec::new();
    for change in relevant() {
        meter.require_going()?;
        let change = &*change?;
        let Some(Side { node, .. }) = &change.after else { continue };
        let mut use_of = runs_on_host(&change.path, node).map(|found| (found, None));
        if use_of.is_none() && brings_install_script(vault, change, node)? {
            use_of = Some(((Executed, INSTALL_SCRIPT), None));
        }
        if use_of.is_none() && bare.is_used(change, node)? {
            use_of = Some(((Executed, BARE_REPOSITORY), None));
        }
        if use_of.is_none() {
            let names = linked.names_of(&change.path);
            let uses =
                names.filter_map(|(name, link)| Some((runs_on_host(&name, node)?, Some(link.clone()))));
            use_of = uses.min_by_key(|((used, _), _)| *used);
        }
        called.extend(use_of.map(|((used, why), link)| RunsOnHost {
            path: change.path.clone(),
            used,
            why,
            link,
        }));
    }
    Ok(called)
}

fn brings_install_script(vault: &Vault, change: &Change, after: &Node) -> Result<bool> {
    if change.path.components().last() != Some(b"package.json") {
        return Ok(false);
    }
    let file = match after {
        Node::File(file) => file,
        // The content of the target is unknown.
        Node::Symlink(_) => return Ok(true),
        Node::Dir(_) | Node::Fifo(_) => return Ok(false),
    };
    let Some(scripts) = install_scripts(vault, file)? else { return Ok(true) };
    let before = match (&change.kind, &change.before) {
        // The old scripts belonged to another directory.
        (ChangeKind::Renamed { .. }, _) => None,
        (_, Some(Side { node: Node::File(file), .. })) => install_scripts(vault, file)?,
        (_, Some(_) | None) => None,
    };
    Ok(scripts.iter().any(|script| !script.is_null()) && before.as_ref() != Some(&scripts))
}

/// The part of a package.json that matters here; without scripts if they are no object.
#[derive(Default, Deserialize)]
#[serde(default)]
struct Package {
    scripts: BTreeMap<String, Value>,
}

/// The scripts that an installation runs, null for each one that is absent. `None` if they cannot be determined
/// although npm may find some: npm is more lenient than a strict parser about invalid UTF-8 and nesting.
fn install_scripts(vault: &Vault, file: &FileNode) -> Result<Option<Vec<Value>>> {
    if file.size > PACKAGE_BYTES_MAX {
        return Ok(None);
    }
    let content = read_content(&*vault.read()?, file)?;
    let text = content.strip_prefix("\u{feff}".as_bytes()).unwrap_or(&content);
    // As a value first: of equal keys the last one counts, as for npm.
    let package: Option<Value> = serde_json::from_slice(text).ok();
    let scripts = |package: Value| {
        let Package { scripts } = Package::deserialize(package).unwrap_or_default();
        INSTALL_SCRIPTS.iter().map(|name| scripts.get(*name).cloned().unwrap_or_default()).collect()
    };
    Ok(package.map(scripts))
}

#[cfg(test)]
mod tests {
    use avfs_types::clock::FileTime;
    use avfs_types::ids::BlobId;
    use avfs_vault::page::{FileContent, SymlinkNode};

    use super::*;
    use crate::host_files::{
        AGENT, DIRENV, EDITOR, GIT_ELSEWHERE, GIT_SETTINGS, HG_SETTINGS, HOOK, HOOK_RUNNER, INSTRUCTIONS,
        LOGIN, MAIL, PYTHON, SESSION, SSH, START_UP, TERMINAL,
    };
    use HostUse::ReadByAgents;

    const NOW: FileTime = FileTime { seconds: 0, nanos: 0 };

    fn file() -> Node {
        let content = FileContent::Whole(BlobId([0; 32]));
        Node::File(FileNode { mode: 0o644, mtime: NOW, size: 1, content, xattrs: None, link: None })
    }

    fn link() -> Node {
        Node::Symlink(SymlinkNode { mtime: NOW, target: b"elsewhere".to_vec(), link: None })
    }

    fn of(path: &str, node: &Node) -> Option<(HostUse, &'static str)> {
        runs_on_host(&TreePath::parse(path.as_bytes()).unwrap(), node)
    }

    /// A path that matches a pattern, with names in place of its stars.
    fn example(pattern: &str) -> String {
        pattern.replace("**", "some/deep").replace('*', "some")
    }

    #[test]
    fn every_pattern_matches_in_any_directory() {
        for row in TABLE {
            for pattern in row.patterns {
                let earlier = TABLE.iter().take_while(|other| other.why != row.why || other.used != row.used);
                let example = example(pattern);
                for path in [example.clone(), format!("home/.u/{example}")] {
                    let found = of(&path, &file());
                    let is_earlier = earlier.clone().any(|other| found == Some((other.used, other.why)));
                    assert!(is_earlier || found == Some((row.used, row.why)), "{pattern}: {path}: {found:?}");
                }
                assert!(
                    !pattern.contains('/') || pattern.starts_with('.'),
                    "{pattern} would not be searched for"
                );
            }
        }
    }

    /// A path is listed because of a documentation or a trial, not by assumption.
    #[test]
    fn every_row_names_its_source() {
        for row in TABLE {
            let is_manual = ["(1)", "(5)", "(7)", "(8)"].iter().any(|section| row.source.contains(section));
            let is_read = row.source.starts_with("https://") || row.source.starts_with("agent-config ");
            assert!(is_manual || is_read, "{:?}: {}", row.patterns, row.source);
        }
    }

    #[test]
    fn paths_used_by_the_host_are_recognized() {
        for (path, used, why) in [
            (".git/hooks/pre-commit", Executed, HOOK),
            ("sub/project/.git/hooks/post-checkout", Executed, HOOK),
            (".git/modules/lib/hooks/pre-push", Executed, HOOK),
            (".git/modules/a/modules/b/config", Executed, GIT_SETTINGS),
            (".git/worktrees/w/config.worktree", Executed, GIT_SETTINGS),
            (".git/worktrees/w/commondir", Executed, GIT_ELSEWHERE),
            (".git", Executed, GIT_ELSEWHERE),
            ("lib/.git", Executed, GIT_ELSEWHERE),
            (".hg/hgrc", Executed, HG_SETTINGS),
            ("home/u/.zshenv", Executed, START_UP),
            (".config/fish/conf.d/x.fish", Executed, START_UP),
            (".envrc", Executed, DIRENV),
            ("web/.husky/_/husky.sh", Executed, HOOK),
            ("lefthook.yml", Executed, HOOK_RUNNER),
            ("a/.vscode/settings.json", Executed, EDITOR),
            ("my.code-workspace", Executed, EDITOR),
            (".devcontainer/devcontainer.json", Executed, EDITOR),
            (".devcontainer/web/devcontainer.json", Executed, EDITOR),
            (".claude/settings.local.json", Executed, AGENT),
            (".claude/hooks/check.sh", Executed, AGENT),
            (".cursor/mcp.json", Executed, AGENT),
            (".cursor/hooks.json", Executed, AGENT),
            (".mcp.json", Executed, AGENT),
            (".claude/commands/deploy.md", ReadByAgents, INSTRUCTIONS),
            (".cursor/rules/all.mdc", ReadByAgents, INSTRUCTIONS),
            ("AGENTS.md", ReadByAgents, INSTRUCTIONS),
            ("web/CLAUDE.md", ReadByAgents, INSTRUCTIONS),
            (".github/copilot-instructions.md", ReadByAgents, INSTRUCTIONS),
            (".clinerules", ReadByAgents, INSTRUCTIONS),
            (".ssh/config", Executed, SSH),
            (".config/systemd/user/x.service", Executed, SESSION),
            (".local/lib/python3.11/site-packages/x.pth", Executed, PYTHON),
            (".local/lib/python3.14/site-packages/usercustomize.py", Executed, PYTHON),
            (".ssh/authorized_keys", Executed, LOGIN),
            ("home/u/.forward", Executed, MAIL),
            (".codex/hooks.json", Executed, AGENT),
            (".codex/skills/x/SKILL.md", ReadByAgents, INSTRUCTIONS),
            (".gemini/settings.json", Executed, AGENT),
            (".opencode/plugins/x.ts", Executed, AGENT),
            ("opencode.json", Executed, AGENT),
            (".github/hooks/x.json", Executed, AGENT),
            (".github/skills/x/SKILL.md", ReadByAgents, INSTRUCTIONS),
            (".clinerules/hooks/PreToolUse", Executed, AGENT),
            (".clinerules/style.md", ReadByAgents, INSTRUCTIONS),
            (".windsurf/hooks.json", Executed, AGENT),
            (".kiro/hooks/x.kiro.hook", Executed, AGENT),
            (".kiro/steering/product.md", ReadByAgents, INSTRUCTIONS),
            (".agents/hooks.json", Executed, AGENT),
            (".agents/skills/x/SKILL.md", ReadByAgents, INSTRUCTIONS),
            (".idea/workspace.xml", Executed, EDITOR),
            (".helix/languages.toml", Executed, EDITOR),
            (".zed/settings.json", Executed, EDITOR),
            (".vim/plugin/x.vim", Executed, EDITOR),
            (".config/Code/User/settings.json", Executed, EDITOR),
            (".config/nushell/config.nu", Executed, START_UP),
            (".config/tmux/tmux.conf", Executed, TERMINAL),
        ] {
            assert_eq!(of(path, &file()), Some((used, why)), "{path}");
        }
    }

    #[test]
    fn symlink_in_place_of_a_directory_matches() {
        for (path, used, why) in [
            (".claude", Executed, AGENT),
            ("web/.cursor", Executed, AGENT),
            (".git", Executed, GIT_ELSEWHERE),
            (".git/hooks", Executed, GIT_ELSEWHERE),
            (".git/worktrees", Executed, GIT_SETTINGS),
            (".hg", Executed, HG_SETTINGS),
            (".husky", Executed, HOOK),
            (".vscode", Executed, EDITOR),
            (".config", Executed, GIT_SETTINGS),
            (".config/fish", Executed, START_UP),
            (".github", Executed, AGENT),
            (".github/prompts", ReadByAgents, INSTRUCTIONS),
            ("AGENTS.md", ReadByAgents, INSTRUCTIONS),
        ] {
            assert_eq!(of(path, &link()), Some((used, why)), "{path}");
        }
        for path in [".vscode", ".claude", ".config/fish", ".github"] {
            assert_eq!(of(path, &file()), None, "{path}");
        }
    }

    #[test]
    fn directories_that_may_contain_such_paths_are_searched() {
        let holds = |path: &str| may_hold(&TreePath::parse(path.as_bytes()).unwrap());
        for dir in
            ["", "src", "a/.worktrees/b", ".git", ".git/hooks", "a/.git/modules/x/y", ".git/worktrees/w"]
        {
            assert!(holds(dir), "{dir}");
        }
        for dir in [".git/objects", ".git/objects/ab", "a/.git/refs/heads", ".git/hooks/lib", ".hg/store"] {
            assert!(!holds(dir), "{dir}");
        }
    }

    #[test]
    fn paths_not_used_by_the_host_do_not_match() {
        for path in [
            "",
            "src/main.rs",
            "Makefile",
            "hooks/pre-commit",
            "config",
            "package.json",
            ".git/HEAD",
            ".git/index",
            ".git/objects/ab/cdef",
            ".git/refs/heads/config",
            ".git/logs/refs/heads/hooks/x",
            ".git/hooks/pre-commit.sample",
            ".git/hooks/lib/helper",
            ".gitignore",
            ".gitattributes",
            ".gitmodules",
            ".github/workflows/ci.yml",
            ".hg/store/data",
            "docs/bashrc",
            "docs/agents.md",
            ".vscode/notes.json",
            "src/settings.json",
            ".config/other/config",
            "fish/config.fish",
            "lib/python3.11/site-packages/x.pth",
            ".venv/lib/python3.11/site-packages/x.pth",
            "authorized_keys",
            ".ssh/known_hosts",
            ".idea/modules.xml",
            ".config/Code/User/globalStorage/state.vscdb",
            "src/hooks.json",
        ] {
            assert_eq!(of(path, &file()), None, "{path}");
            assert_eq!(of(path, &link()), None, "{path}");
        }
    }
}
