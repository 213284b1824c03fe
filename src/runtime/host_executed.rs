//! Changed paths that tools of the host execute, or take commands from, by themselves once the changes are applied.
//!
//! Pure: a path says all. What somebody has to start (a Makefile, a build script) is not meant, and what only settings
//! of the host make so (git's `core.hooksPath`, a repository without a work tree) cannot be known from here.

use crate::vault::diff::{Change, ChangeKind};
use crate::vault::page::Node;
use crate::vault::path::TreePath;

use super::result::RunsOnHost;

const HOOK: &str = "a git hook";
const GIT_SETTINGS: &str = "git's settings, which can name programs";
const GIT_ELSEWHERE: &str = "where git finds its hooks and settings";
const START_UP: &str = "a start-up file of shells";
const SESSION: &str = "started with a session";
const EDITOR: &str = "an editor's settings, which can name programs";
const AGENT: &str = "an agent's settings, which can name programs";
const SSH: &str = "ssh's settings, which can name programs";
const HOOK_RUNNER: &str = "commands that git hooks run";

/// Names that mean something in any directory: a workspace may hold several projects, or be a home.
const NAMES: [(&str, &str); 40] = [
    // A directory of this name is none of these; what is in it has its own turn.
    (".git", GIT_ELSEWHERE),
    (".bashrc", START_UP),
    (".bash_profile", START_UP),
    (".bash_login", START_UP),
    (".bash_logout", START_UP),
    (".bash_aliases", START_UP),
    (".profile", START_UP),
    (".zshrc", START_UP),
    (".zshenv", START_UP),
    (".zprofile", START_UP),
    (".zlogin", START_UP),
    (".zlogout", START_UP),
    (".kshrc", START_UP),
    (".mkshrc", START_UP),
    (".cshrc", START_UP),
    (".tcshrc", START_UP),
    (".login", START_UP),
    (".envrc", "run by direnv"),
    (".xinitrc", SESSION),
    (".xprofile", SESSION),
    (".xsession", SESSION),
    (".xsessionrc", SESSION),
    (".gitconfig", GIT_SETTINGS),
    (".husky", HOOK),
    (".pre-commit-config.yaml", HOOK_RUNNER),
    (".pre-commit-config.yml", HOOK_RUNNER),
    ("lefthook.yml", HOOK_RUNNER),
    (".lefthook.yml", HOOK_RUNNER),
    ("lefthook.yaml", HOOK_RUNNER),
    (".lefthook.yaml", HOOK_RUNNER),
    (".overcommit.yml", HOOK_RUNNER),
    (".vscode", EDITOR),
    (".devcontainer", EDITOR),
    (".devcontainer.json", EDITOR),
    (".vimrc", EDITOR),
    (".exrc", EDITOR),
    (".nvimrc", EDITOR),
    (".nvim.lua", EDITOR),
    (".emacs", EDITOR),
    (".mcp.json", AGENT),
];

/// The last names of a path.
const ENDS: [(&[&str], &str); 20] = [
    (&[".vscode", "tasks.json"], EDITOR),
    (&[".vscode", "settings.json"], EDITOR),
    (&[".vscode", "launch.json"], EDITOR),
    (&[".vscode", "mcp.json"], AGENT),
    (&[".cursor", "mcp.json"], AGENT),
    (&[".claude", "settings.json"], AGENT),
    (&[".claude", "settings.local.json"], AGENT),
    (&[".devcontainer", "devcontainer.json"], EDITOR),
    (&[".emacs.d", "init.el"], EDITOR),
    (&[".ssh", "config"], SSH),
    (&[".ssh", "rc"], SSH),
    (&[".config", "git"], GIT_SETTINGS),
    (&[".config", "git", "config"], GIT_SETTINGS),
    (&[".config", "fish"], START_UP),
    (&[".config", "autostart"], SESSION),
    (&[".config", "systemd"], SESSION),
    (&[".config", "environment.d"], SESSION),
    (&[".config", "nvim"], EDITOR),
    (&[".config", "nvim", "init.lua"], EDITOR),
    (&[".config", "nvim", "init.vim"], EDITOR),
];

/// Directories of which everything counts.
const BENEATH: [(&[&str], &str); 5] = [
    (&[".husky"], HOOK),
    (&[".config", "fish"], START_UP),
    (&[".config", "autostart"], SESSION),
    (&[".config", "systemd", "user"], SESSION),
    (&[".config", "environment.d"], SESSION),
];

/// What a path is to the tools of the host, if it is no directory; nothing if they do not look at it by themselves.
#[must_use]
pub fn runs_on_host(path: &TreePath) -> Option<&'static str> {
    let names: Vec<&[u8]> = path.components().collect();
    let mut repositories = names.iter().enumerate().filter(|(_, name)| **name == b".git");
    if let Some(why) = repositories.find_map(|(at, _)| in_repository(&names[at + 1..])) {
        return Some(why);
    }
    let last = names.last()?;
    let known = NAMES.iter().find(|(name, _)| name.as_bytes() == *last).map(|(_, why)| *why);
    let code_workspace = || last.ends_with(b".code-workspace").then_some(EDITOR);
    let end = || ENDS.iter().find(|(end, _)| ends_with(&names, end)).map(|(_, why)| *why);
    let beneath = || BENEATH.iter().find(|(dir, _)| lies_beneath(&names, dir)).map(|(_, why)| *why);
    known.or_else(end).or_else(beneath).or_else(code_workspace)
}

/// What a path in `.git` is; submodules have repositories of their own in there.
fn in_repository(names: &[&[u8]]) -> Option<&'static str> {
    let (last, dirs) = names.split_last()?;
    let of_submodule = dirs.first().is_some_and(|first| *first == b"modules");
    let is_top = dirs.is_empty();
    match *last {
        // Never executed: git puts them there to be copied.
        sample if sample.ends_with(b".sample") => None,
        b"config" | b"config.worktree" if is_top || of_submodule => Some(GIT_SETTINGS),
        b"config.worktree" if dirs.first().is_some_and(|first| *first == b"worktrees") => Some(GIT_SETTINGS),
        b"hooks" | b"modules" | b"commondir" if is_top || of_submodule => Some(GIT_ELSEWHERE),
        _ if dirs == [b"hooks"] => Some(HOOK),
        _ if of_submodule && dirs.last().is_some_and(|dir| *dir == b"hooks") => Some(HOOK),
        _ => None,
    }
}

fn ends_with(names: &[&[u8]], end: &[&str]) -> bool {
    names.len() >= end.len()
        && names[names.len() - end.len()..].iter().zip(end).all(|(name, end)| *name == end.as_bytes())
}

fn lies_beneath(names: &[&[u8]], dir: &[&str]) -> bool {
    let above = names.split_last().map_or(&[][..], |(_, above)| above);
    above.windows(dir.len()).any(|window| window.iter().zip(dir).all(|(name, dir)| *name == dir.as_bytes()))
}

/// Those of the changes that are executed on the host once they are applied.
#[must_use]
pub fn called_out(changes: &[Change]) -> Vec<RunsOnHost> {
    let there = changes.iter().filter(|change| {
        let is_dir = matches!(change.after.as_ref().map(|side| &side.node), None | Some(Node::Dir(_)));
        !is_dir && change.kind != ChangeKind::Time
    });
    there
        .filter_map(|change| Some(RunsOnHost { why: runs_on_host(&change.path)?, path: change.path.clone() }))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn why(path: &str) -> Option<&'static str> {
        runs_on_host(&TreePath::parse(path.as_bytes()).unwrap())
    }

    #[test]
    fn what_the_host_executes_is_known_by_its_path() {
        for (path, said) in [
            (".git/hooks/pre-commit", HOOK),
            ("sub/project/.git/hooks/post-checkout", HOOK),
            (".git/modules/lib/hooks/pre-push", HOOK),
            (".git/modules/a/modules/b/config", GIT_SETTINGS),
            (".git/config", GIT_SETTINGS),
            (".git/config.worktree", GIT_SETTINGS),
            (".git/worktrees/w/config.worktree", GIT_SETTINGS),
            (".git", GIT_ELSEWHERE),
            ("lib/.git", GIT_ELSEWHERE),
            (".git/hooks", GIT_ELSEWHERE),
            (".git/commondir", GIT_ELSEWHERE),
            (".bashrc", START_UP),
            ("home/u/.zshenv", START_UP),
            (".config/fish/conf.d/x.fish", START_UP),
            (".config/fish", START_UP),
            (".envrc", "run by direnv"),
            (".husky/pre-commit", HOOK),
            ("web/.husky/_/husky.sh", HOOK),
            (".pre-commit-config.yaml", HOOK_RUNNER),
            (".vscode/tasks.json", EDITOR),
            ("a/.vscode/settings.json", EDITOR),
            ("my.code-workspace", EDITOR),
            (".devcontainer/devcontainer.json", EDITOR),
            (".claude/settings.json", AGENT),
            (".mcp.json", AGENT),
            (".ssh/config", SSH),
            (".config/systemd/user/x.service", SESSION),
        ] {
            assert_eq!(why(path), Some(said), "{path}");
        }
    }

    #[test]
    fn what_it_does_not_is_no_matter() {
        for path in [
            "",
            "src/main.rs",
            "Makefile",
            "hooks/pre-commit",
            "config",
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
            "docs/bashrc",
            ".vscode/notes.json",
            "src/settings.json",
            ".config/other/config",
            "fish/config.fish",
        ] {
            assert_eq!(why(path), None, "{path}");
        }
    }
}
