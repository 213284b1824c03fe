//! Variables that make a program run something else, or run something it would not.

use super::super::reading::Word;
use super::found::{Found, shown};

/// Their values are programs, code or places to look for code.
const RUN: &[&str] = &[
    "PATH",
    "LD_PRELOAD",
    "LD_LIBRARY_PATH",
    "LD_AUDIT",
    "ENV",
    "SHELL",
    "PAGER",
    "MANPAGER",
    "LESS",
    "LESSOPEN",
    "LESSCLOSE",
    "LESSEDIT",
    "LESSKEY",
    "LESSKEYIN",
    "LESSKEY_CONTENT",
    "MANOPT",
    "EDITOR",
    "VISUAL",
    "BROWSER",
    "IFS",
    "CDPATH",
    "SHELLOPTS",
    "BASHOPTS",
    "PS0",
    "PS1",
    "PS4",
    "PROMPT_COMMAND",
    "PYTHONPATH",
    "PYTHONSTARTUP",
    "PYTHONHOME",
    "PYTHONUSERBASE",
    "PYTHONBREAKPOINT",
    "PYTHONINSPECT",
    "PYTHONWARNINGS",
    "PERL5LIB",
    "PERL5OPT",
    "PERL5DB",
    "PERLLIB",
    "RUBYOPT",
    "RUBYLIB",
    "NODE_OPTIONS",
    "NODE_PATH",
    "JAVA_TOOL_OPTIONS",
    "_JAVA_OPTIONS",
    "JDK_JAVA_OPTIONS",
    "CLASSPATH",
    "RUSTC_WRAPPER",
    "RUSTC_WORKSPACE_WRAPPER",
    "RUSTC",
    "RUSTDOC",
    "CARGO",
    "CC",
    "CXX",
    "LD",
    "AR",
    "AS",
    "MAKEFLAGS",
    "GOFLAGS",
    "TAR_OPTIONS",
    "RSYNC_RSH",
    "RSYNC_CONNECT_PROG",
    "SSH_ASKPASS",
    "SUDO_ASKPASS",
    "SUDO_EDITOR",
    "HGEDITOR",
    "SVN_SSH",
    "SVN_EDITOR",
    "CVS_RSH",
    "GREP_OPTIONS",
    "RIPGREP_CONFIG_PATH",
    "FZF_DEFAULT_COMMAND",
    "FZF_DEFAULT_OPTS",
    "FZF_DEFAULT_OPTS_FILE",
    "ACKRC",
    "ACK_OPTIONS",
    "ACK_PAGER",
    "ACK_PAGER_COLOR",
    "DELTA_PAGER",
    "BAT_PAGER",
    "BAT_OPTS",
    "BAT_CONFIG_PATH",
    "SYSTEMD_PAGER",
    "GCONV_PATH",
    "OPENSSL_CONF",
    "OPENSSL_ENGINES",
    "GIMP2_DIRECTORY",
    "VIMINIT",
    "EXINIT",
    "NVIM",
    "INPUTRC",
    "TERMINFO",
    "TERMINFO_DIRS",
    "HOME",
    "XDG_CONFIG_HOME",
    "XDG_CONFIG_DIRS",
    "RUSTUP_HOME",
    "RUSTUP_TOOLCHAIN",
    "AWKPATH",
    "AWKLIBPATH",
    "LUA_INIT",
    "PHPRC",
    "PHP_INI_SCAN_DIR",
    "R_PROFILE",
    "ZDOTDIR",
];

/// Beginnings of such names.
const RUN_PREFIXES: &[&str] =
    &["LD_", "DYLD_", "GIT_", "BASH_", "MALLOC_", "CARGO_", "npm_config_", "NPM_CONFIG_"];

/// Names that begin so and only say who, when or in what colour.
const HARMLESS: &[&str] = &[
    "CARGO_INCREMENTAL",
    "CARGO_NET_OFFLINE",
    "CARGO_TERM_COLOR",
    "CARGO_TERM_VERBOSE",
    "GIT_AUTHOR_NAME",
    "GIT_AUTHOR_EMAIL",
    "GIT_AUTHOR_DATE",
    "GIT_COMMITTER_NAME",
    "GIT_COMMITTER_EMAIL",
    "GIT_COMMITTER_DATE",
    "GIT_TERMINAL_PROMPT",
    "GIT_OPTIONAL_LOCKS",
    "GIT_MERGE_AUTOEDIT",
    "GIT_LFS_SKIP_SMUDGE",
];

/// Values that switch a pager or an editor off.
const OFF: &[&str] = &["", "cat", "true", ":", "less"];

/// A variable that gets a value nobody knows: by `read`, a loop, `${x:=…}`.
pub fn judge_name(name: &str, found: &mut Found) {
    let name = name.split('[').next().unwrap_or("");
    judge(name, &Word::Unknown(String::new()), found);
}

pub fn judge(name: &str, value: &Word, found: &mut Found) {
    let is_known = RUN.contains(&name) || RUN_PREFIXES.iter().any(|prefix| name.starts_with(prefix));
    if !is_known || HARMLESS.contains(&name) {
        return;
    }
    let is_pager = name.ends_with("PAGER") || name.ends_with("EDITOR") || name == "VISUAL";
    if is_pager && value.known().is_some_and(|value| OFF.contains(&value)) {
        return;
    }
    // Letters for how it looks; others name files, and after a `+` come commands.
    if name == "LESS"
        && value.known().is_some_and(|value| value.bytes().all(|byte| b"-FRXSKMNiqr ".contains(&byte)))
    {
        return;
    }
    // A field separator changes how words are split, and nothing else.
    if name == "IFS" && value.known().is_some() {
        return;
    }
    found.mutates(format!("`{}` can make a program run something else", shown(name)));
}
