//! What a subcommand of `git` that can write does with the options it is given.

use crate::read::options::Parsed;

/// Subcommands that look when they are told nothing more, or told to list.
pub fn is_asking(verb: &str, parsed: &Parsed<'_>) -> bool {
    if parsed.hidden.is_some() {
        return false;
    }
    let first = parsed.operands.first().map(|word| word.shown());
    let only = |names: &[&str]| parsed.given.iter().all(|given| names.contains(&given.name));
    let lists_only = only(&[
        "l",
        "list",
        "a",
        "all",
        "r",
        "remotes",
        "v",
        "vv",
        "verbose",
        "n",
        "show-current",
        "contains",
        "no-contains",
        "merged",
        "no-merged",
        "sort",
        "format",
        "points-at",
        "column",
        "no-column",
        "color",
        "no-color",
        "i",
        "ignore-case",
        "abbrev",
        "no-abbrev",
    ]);
    match verb {
        "branch" | "tag" => {
            lists_only
                && (parsed.operands.is_empty()
                    || parsed.has(&[
                        "l",
                        "list",
                        "contains",
                        "no-contains",
                        "merged",
                        "no-merged",
                        "points-at",
                    ]))
        }
        "remote" => {
            only(&["v", "verbose", "push", "all"]) && matches!(first, None | Some("get-url"))
                || only(&["n"]) && !parsed.given.is_empty() && first == Some("show")
        }
        "config" => {
            let asks =
                parsed.has(&["get", "get-all", "get-regexp", "l", "list", "get-urlmatch", "show-origin"]);
            let quiet = only(&[
                "get",
                "get-all",
                "get-regexp",
                "l",
                "list",
                "get-urlmatch",
                "show-origin",
                "show-scope",
                "global",
                "local",
                "system",
                "name-only",
                "z",
                "null",
                "type",
                "bool",
                "int",
                "path",
                "worktree",
                "default",
            ]);
            quiet
                && (asks
                    || matches!(first, Some("get" | "list"))
                    || parsed.operands.len() == 1 && !matches!(first, Some("edit" | "set" | "unset")))
        }
        "stash" => matches!(first, Some("list" | "show")),
        "worktree" => matches!(first, Some("list")),
        "submodule" => matches!(first, None | Some("status" | "summary")),
        "notes" => matches!(first, None | Some("list" | "show")),
        "reflog" => {
            matches!(first, None | Some("show" | "exists" | "list"))
                || first.is_some_and(|first| first.starts_with("HEAD"))
        }
        // `git bisect view rm x` is `git rm x`.
        "bisect" => matches!(first, Some("log" | "view" | "visualize")) && parsed.operands.len() == 1,
        "symbolic-ref" => parsed.operands.len() == 1 && !parsed.has(&["d", "delete"]),
        "bundle" => matches!(first, Some("verify" | "list-heads")),
        "hash-object" => !parsed.has(&["w"]),
        "fsck" => !parsed.given.iter().any(|given| given.name.starts_with("lost")),
        "format-patch" => parsed.has(&["stdout"]) && !parsed.has(&["o", "output-directory"]),
        "clean" => (parsed.has(&["n", "dry-run"])) && !parsed.has(&["f", "force", "i"]),
        "lfs" => matches!(first, Some("ls-files" | "status" | "env" | "version")),
        "sparse-checkout" => matches!(first, Some("list")),
        "apply" => parsed.has(&["check", "stat", "numstat", "summary"]) && !parsed.has(&["apply"]),
        _ => false,
    }
}

pub fn destroys(verb: &str, parsed: &Parsed<'_>) -> bool {
    let first = parsed.operands.first().map_or("", |word| word.shown());
    match verb {
        "clean" | "rm" | "prune" | "filter-branch" | "filter-repo" | "restore" => {
            !(verb == "restore" && parsed.has(&["staged", "S"]) && !parsed.has(&["worktree", "W"]))
        }
        "reset" => {
            parsed.has(&["hard", "merge", "keep"])
                || parsed.given.iter().any(|given| given.name.len() > 1 && "hard".starts_with(given.name))
        }
        // Paths, or a dot: what is in the working tree is overwritten.
        "checkout" => {
            parsed.has(&["f", "force", "ours", "theirs"])
                || parsed.operands.len() > 1 && !parsed.has(&["b", "B", "orphan"])
                || matches!(first, "." | "./")
        }
        "switch" => parsed.has(&["f", "force", "discard-changes", "C"]),
        "branch" => parsed.has(&["D", "d", "delete", "M", "f", "force"]),
        "tag" => parsed.has(&["d", "delete", "f", "force"]),
        "stash" => matches!(first, "drop" | "clear"),
        "push" => {
            parsed.has(&["f", "force", "force-with-lease", "delete", "d", "mirror", "prune"])
                || parsed.operands.iter().any(|word| word.shown().starts_with(['+', ':']))
        }
        "reflog" => matches!(first, "expire" | "delete"),
        "update-ref" => parsed.has(&["d", "stdin"]),
        "worktree" => matches!(first, "remove" | "prune"),
        "remote" => matches!(first, "remove" | "rm" | "prune"),
        "gc" => parsed.has(&["prune", "aggressive"]),
        "read-tree" | "checkout-index" => true,
        _ => false,
    }
}

pub fn talks(verb: &str, parsed: &Parsed<'_>) -> bool {
    let has = |names: &[&str]| parsed.has(names);
    match verb {
        "rebase" => has(&["i", "interactive"]) && !has(&["abort", "continue", "skip", "quit"]),
        "add" | "checkout" | "restore" | "reset" | "stash" => {
            has(&["p", "patch", "i", "interactive", "e", "edit"])
        }
        "commit" => {
            // `-m` may be one of several letters, as in `-am`.
            !has(&["m", "message", "F", "file", "C", "reuse-message", "no-edit", "dry-run", "fixup"])
        }
        "clean" => has(&["i", "interactive"]),
        "difftool" | "mergetool" | "gui" | "citool" | "config" if verb != "config" => true,
        "config" => has(&["e", "edit"]),
        _ => false,
    }
}
