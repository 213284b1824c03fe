//! The paths that tools on the host execute or take commands from, and that agents follow, without being asked. Data
//! only; `host_executed.rs` matches them.
//!
//! A path is listed if the documentation of its tool, or a trial, shows that the tool uses it when it starts, when a
//! directory or file is opened, or when an event occurs. Each row names this source. Not listed: files that a user runs
//! explicitly (a Makefile, a build script), and code of a project that a tool runs as part of it (a configuration of a
//! linter, a test).

use crate::host_executed::HostUse::{self, Executed, ReadByAgents};

/// Patterns and the description of the paths that match them, in any directory: a workspace may contain several
/// projects, or be a home directory. The first matching row applies.
///
/// A pattern is matched against the last components of a path. `*` matches one component or its beginning, `**`
/// any number of components. A pattern of several components starts with one that has a dot. A symlink in place
/// of a directory of a pattern matches too.
pub struct Row {
    pub why: &'static str,
    pub used: HostUse,
    pub patterns: &'static [&'static str],
    /// An address, a manual page, or a trial with the version of the program.
    #[cfg_attr(not(test), expect(dead_code, reason = "for readers, and for a test"))]
    pub source: &'static str,
}

const fn row(
    why: &'static str,
    used: HostUse,
    source: &'static str,
    patterns: &'static [&'static str],
) -> Row {
    Row { why, used, patterns, source }
}

pub const HOOK: &str = "a git hook";
pub const HOOK_RUNNER: &str = "commands that git hooks run";
pub const GIT_SETTINGS: &str = "git's settings, which can name programs";
pub const GIT_ELSEWHERE: &str = "where git finds its hooks and settings";
pub const HG_SETTINGS: &str = "Mercurial's settings, which can name programs";
pub const START_UP: &str = "a shell startup file";
pub const DIRENV: &str = "run by direnv";
pub const MISE: &str = "mise's settings, which can name programs";
pub const TERMINAL: &str = "a terminal's settings, which can name programs";
pub const SESSION: &str = "started with a session";
pub const PYTHON: &str = "run by every start of Python";
pub const MAIL: &str = "commands that the mail server runs";
pub const LOGIN: &str = "lets others log in";
pub const EDITOR: &str = "an editor's settings, which can name programs";
pub const SSH: &str = "ssh's settings, which can name programs";
pub const AGENT: &str = "an agent's settings, which can name programs";
pub const INSTRUCTIONS: &str = "instructions that agents follow";

/// The source of agents' paths that have no other: a library that installs hooks, servers and instructions for them.
macro_rules! agent_config {
    ($agent:literal) => {
        concat!("https://docs.rs/crate/agent-config/0.3.3/source/docs/agents/", $agent, ".md")
    };
}

pub static TABLE: &[Row] = &[
    row(HOOK, Executed, "https://git-scm.com/docs/githooks", &[".git/hooks/*", ".git/modules/**/hooks/*"]),
    row(HOOK, Executed, "https://typicode.github.io/husky/how-to.html", &[".husky/**"]),
    row(
        GIT_SETTINGS,
        Executed,
        "https://git-scm.com/docs/git-config#FILES",
        &[
            ".git/config",
            ".git/config.worktree",
            ".git/modules/**/config",
            ".git/modules/**/config.worktree",
            ".git/worktrees/*/config.worktree",
            ".gitconfig",
            ".config/git/config",
        ],
    ),
    row(
        GIT_ELSEWHERE,
        Executed,
        "https://git-scm.com/docs/gitrepository-layout",
        &[
            ".git",
            ".git/hooks",
            ".git/modules",
            ".git/commondir",
            ".git/modules/**/hooks",
            ".git/modules/**/modules",
            ".git/modules/**/commondir",
            ".git/worktrees/*/commondir",
            ".git/worktrees/*/gitdir",
        ],
    ),
    row(
        HG_SETTINGS,
        Executed,
        "https://repo.mercurial-scm.org/hg/help/config",
        &[".hg/hgrc", ".hg/hgrc-not-shared", ".hg/sharedpath", ".hgrc", ".config/hg/hgrc"],
    ),
    row(
        HOOK_RUNNER,
        Executed,
        "https://pre-commit.com/#adding-pre-commit-plugins-to-your-project",
        &[".pre-commit-config.yaml", ".pre-commit-config.yml"],
    ),
    row(
        HOOK_RUNNER,
        Executed,
        "https://lefthook.dev/configuration/",
        &[
            "lefthook.yml",
            "lefthook.yaml",
            "lefthook.toml",
            "lefthook.json",
            ".lefthook.yml",
            ".lefthook.yaml",
            ".lefthook.toml",
            ".lefthook.json",
            ".config/lefthook.yml",
            "lefthook-local.yml",
            ".lefthook-local.yml",
        ],
    ),
    row(HOOK_RUNNER, Executed, "https://github.com/sds/overcommit#configuration", &[".overcommit.yml"]),
    row(
        START_UP,
        Executed,
        "bash(1), FILES; https://github.com/scop/bash-completion (README)",
        &[
            ".bashrc",
            ".bash_profile",
            ".bash_login",
            ".bash_logout",
            ".bash_aliases",
            ".bash_completion",
            ".profile",
            ".local/share/bash-completion/**",
        ],
    ),
    row(
        START_UP,
        Executed,
        "https://zsh.sourceforge.io/Doc/Release/Files.html",
        &[".zshrc", ".zshenv", ".zprofile", ".zlogin", ".zlogout"],
    ),
    row(START_UP, Executed, "ksh(1), mksh(1), FILES", &[".kshrc", ".mkshrc"]),
    row(START_UP, Executed, "tcsh(1), FILES", &[".cshrc", ".tcshrc", ".login", ".logout"]),
    row(
        START_UP,
        Executed,
        "https://fishshell.com/docs/current/language.html#configuration-files",
        &[".config/fish/**", ".local/share/fish/vendor_conf.d/**", ".local/share/fish/vendor_functions.d/**"],
    ),
    row(
        START_UP,
        Executed,
        "https://www.nushell.sh/book/configuration.html",
        &[".config/nushell/**", ".local/share/nushell/vendor/**"],
    ),
    row(START_UP, Executed, "elvish-command(7), RC file", &[".config/elvish/**", ".elvish/rc.elv"]),
    row(START_UP, Executed, "https://xon.sh/xonshrc.html", &[".xonshrc", ".config/xonsh/**"]),
    row(
        START_UP,
        Executed,
        "https://learn.microsoft.com/powershell/module/microsoft.powershell.core/about/about_profiles",
        &[".config/powershell/**"],
    ),
    row(START_UP, Executed, "https://starship.rs/config/#custom-commands", &[".config/starship.toml"]),
    row(
        DIRENV,
        Executed,
        "https://direnv.net/man/direnv.1.html",
        &[".envrc", ".direnvrc", ".config/direnv/**"],
    ),
    row(
        MISE,
        Executed,
        "https://mise.jdx.dev/cli/trust.html",
        &[
            "mise.toml",
            ".mise.toml",
            "mise.local.toml",
            ".mise.local.toml",
            ".mise/config.toml",
            ".config/mise.toml",
            ".config/mise/**",
        ],
    ),
    row(
        TERMINAL,
        Executed,
        "tmux(1), screen(1), FILES; https://wezterm.org/config/files.html",
        &[".tmux.conf", ".config/tmux/**", ".screenrc", ".wezterm.lua", ".config/wezterm/**"],
    ),
    row(
        SESSION,
        Executed,
        "https://specifications.freedesktop.org/autostart-spec/latest/; Xsession(5), startx(1)",
        &[".xinitrc", ".xprofile", ".xsession", ".xsessionrc", ".config/autostart/**"],
    ),
    row(
        SESSION,
        Executed,
        "systemd.unit(5), environment.d(5)",
        &[".config/systemd/user/**", ".local/share/systemd/user/**", ".config/environment.d/**"],
    ),
    row(
        SESSION,
        Executed,
        "dbus-daemon(1), standard_session_servicedirs",
        &[".local/share/dbus-1/services/**"],
    ),
    row(
        PYTHON,
        Executed,
        "https://docs.python.org/3/library/site.html; tried with 3.11.7",
        &[
            ".local/lib/*/site-packages/*.pth",
            ".local/lib/*/site-packages/usercustomize.py",
            ".local/lib/*/site-packages/sitecustomize.py",
            ".local/lib/*/site-packages/usercustomize/**",
            ".local/lib/*/site-packages/sitecustomize/**",
        ],
    ),
    row(
        MAIL,
        Executed,
        "https://www.postfix.org/local.8.html; procmail(1); dot-qmail(5)",
        &[".forward", ".procmailrc", ".qmail"],
    ),
    row(
        LOGIN,
        Executed,
        "sshd(8), FILES",
        &[
            ".ssh/authorized_keys",
            ".ssh/authorized_keys2",
            ".rhosts",
            ".shosts",
            ".k5login",
            ".ssh/environment",
        ],
    ),
    row(SSH, Executed, "ssh_config(5); sshd(8), SSHRC", &[".ssh/config", ".ssh/rc"]),
    row(
        EDITOR,
        Executed,
        "https://code.visualstudio.com/docs/editor/workspace-trust",
        &[
            ".vscode/tasks.json",
            ".vscode/settings.json",
            ".vscode/launch.json",
            "*.code-workspace",
            ".config/*/User/settings.json",
            ".config/*/User/tasks.json",
            ".config/*/User/mcp.json",
        ],
    ),
    row(
        EDITOR,
        Executed,
        "https://containers.dev/implementors/json_reference/#lifecycle-scripts (initializeCommand)",
        &[".devcontainer.json", ".devcontainer/**/devcontainer.json"],
    ),
    row(
        EDITOR,
        Executed,
        "https://vimhelp.org/starting.txt.html#initialization; tried with 9.0",
        &[".vimrc", ".gvimrc", ".exrc", ".vim/**", ".config/vim/**"],
    ),
    row(
        EDITOR,
        Executed,
        "https://neovim.io/doc/user/starting.html",
        &[".nvimrc", ".nvim.lua", ".config/nvim/**", ".local/share/nvim/site/**"],
    ),
    row(
        EDITOR,
        Executed,
        "https://www.gnu.org/software/emacs/manual/html_node/emacs/Init-File.html, Safe-File-Variables.html",
        &[".emacs", ".emacs.el", ".emacs.d/**", ".config/emacs/**", ".dir-locals.el", ".dir-locals-2.el"],
    ),
    row(
        EDITOR,
        Executed,
        "https://docs.helix-editor.com/master/workspace-trust.html",
        &[".helix/config.toml", ".helix/languages.toml", ".config/helix/**"],
    ),
    row(
        EDITOR,
        Executed,
        "https://zed.dev/docs/configuring-languages",
        &[".zed/settings.json", ".zed/tasks.json", ".zed/debug.json", ".config/zed/**"],
    ),
    row(
        EDITOR,
        Executed,
        "https://www.jetbrains.com/help/idea/settings-tools-startup-tasks.html, project-security.html",
        &[
            ".idea/workspace.xml",
            ".idea/startup.xml",
            ".idea/watcherTasks.xml",
            ".idea/runConfigurations/**",
            ".run/*.run.xml",
        ],
    ),
    row(EDITOR, Executed, "https://github.com/mawww/kakoune#basic-interaction (kakrc)", &[".config/kak/**"]),
    row(
        AGENT,
        Executed,
        "https://code.visualstudio.com/docs/copilot/chat/mcp-servers; tried with Claude Code 2.1.325",
        &[".mcp.json", ".vscode/mcp.json", ".claude.json"],
    ),
    row(
        AGENT,
        Executed,
        "https://docs.github.com/en/copilot/reference/copilot-cli-reference/cli-hooks-reference",
        &[".github/hooks/**", ".github/copilot/**", ".copilot/mcp-config.json", ".copilot/hooks/**"],
    ),
    row(AGENT, Executed, "https://aider.chat/docs/config/aider_conf.html", &[".aider.conf.yml"]),
    row(AGENT, Executed, agent_config!("opencode"), &["opencode.json", "opencode.jsonc"]),
    row(AGENT, Executed, agent_config!("crush"), &["crush.json", ".crush.json", ".config/crush/**"]),
    row(AGENT, Executed, agent_config!("kilocode"), &["kilo.jsonc"]),
    row(AGENT, Executed, agent_config!("qodercli"), &[".qoder.json"]),
    row(
        AGENT,
        Executed,
        agent_config!("cline"),
        &[".clinerules/hooks/**", ".cline/hooks/**", ".cline/mcp.json"],
    ),
    row(AGENT, Executed, agent_config!("junie"), &[".junie/mcp/mcp.json"]),
    row(AGENT, Executed, agent_config!("roo"), &[".roo/mcp.json"]),
    row(
        AGENT,
        Executed,
        agent_config!("windsurf"),
        &[".windsurf/hooks.json", ".windsurf/mcp_config.json", ".codeium/windsurf/mcp_config.json"],
    ),
    row(
        AGENT,
        Executed,
        agent_config!("antigravity"),
        &[".agent/mcp_config.json", ".agent/hooks.json", ".agents/mcp_config.json", ".agents/hooks.json"],
    ),
    row(
        AGENT,
        Executed,
        "https://docs.firecrawl.dev/quickstarts/amazon-q-developer",
        &[".amazonq/mcp.json", ".amazonq/default.json", ".amazonq/cli-agents/**", ".aws/amazonq/**"],
    ),
    row(
        AGENT,
        Executed,
        "https://kiro.dev/docs/mcp/configuration, https://kiro.dev/docs/hooks",
        &[".kiro/settings/**", ".kiro/hooks/**", ".kiro/agents/**"],
    ),
    row(AGENT, Executed, "https://block.github.io/goose/docs/guides/config-files", &[".config/goose/**"]),
    // Directories of agents: Markdown contains instructions, and the rest settings, hooks and scripts.
    row(
        INSTRUCTIONS,
        ReadByAgents,
        "https://agents.md; the sources of the settings in these directories",
        &[
            ".claude/**/*.md",
            ".cursor/**/*.md",
            ".cursor/**/*.mdc",
            ".codex/**/*.md",
            ".gemini/**/*.md",
            ".opencode/**/*.md",
            ".config/opencode/**/*.md",
            ".amp/**/*.md",
            ".codebuddy/**/*.md",
            ".continue/**/*.md",
            ".crush/**/*.md",
            ".factory/**/*.md",
            ".forge/**/*.md",
            ".hermes/**/*.md",
            ".iflow/**/*.md",
            ".kilo/**/*.md",
            ".kilocode/**/*.md",
            ".pi/**/*.md",
            ".qoder/**/*.md",
            ".qwen/**/*.md",
            ".tabnine/**/*.md",
            ".trae/**/*.md",
        ],
    ),
    row(
        AGENT,
        Executed,
        "https://code.claude.com/docs/en/settings; tried with Claude Code 2.1.325",
        &[".claude/**"],
    ),
    row(AGENT, Executed, agent_config!("cursor"), &[".cursor/**"]),
    row(
        AGENT,
        Executed,
        "https://learn.chatgpt.com/docs/hooks; tried with Codex CLI 0.166.0",
        &[".codex/**"],
    ),
    row(AGENT, Executed, "https://geminicli.com/docs/extensions/reference.md", &[".gemini/**"]),
    row(AGENT, Executed, "https://opencode.ai/docs/config", &[".opencode/**", ".config/opencode/**"]),
    row(AGENT, Executed, agent_config!("amp"), &[".amp/**"]),
    row(AGENT, Executed, agent_config!("codebuddy"), &[".codebuddy/**"]),
    row(
        AGENT,
        Executed,
        "https://docs.continue.dev/customize/deep-dives/mcp",
        &[".continue/config.yaml", ".continue/config.json", ".continue/config.ts", ".continue/mcpServers/**"],
    ),
    row(AGENT, Executed, agent_config!("crush"), &[".crush/skills/**"]),
    row(AGENT, Executed, "https://docs.factory.com/reference/hooks-reference", &[".factory/**"]),
    row(AGENT, Executed, agent_config!("forge"), &[".forge/**"]),
    row(AGENT, Executed, agent_config!("hermes"), &[".hermes/**"]),
    row(AGENT, Executed, agent_config!("iflow"), &[".iflow/**"]),
    row(AGENT, Executed, agent_config!("kilocode"), &[".kilo/**", ".kilocode/mcp.json", ".config/kilo/**"]),
    row(AGENT, Executed, agent_config!("openclaw"), &[".openclaw/openclaw.json"]),
    row(AGENT, Executed, agent_config!("pi"), &[".pi/**"]),
    row(AGENT, Executed, agent_config!("qodercli"), &[".qoder/**"]),
    row(AGENT, Executed, agent_config!("qwen"), &[".qwen/**"]),
    row(AGENT, Executed, agent_config!("tabnine"), &[".tabnine/**"]),
    row(
        INSTRUCTIONS,
        ReadByAgents,
        "https://agents.md, https://code.claude.com/docs/en/memory, https://zed.dev/docs/ai/rules",
        &[
            "AGENTS.md",
            "AGENTS.override.md",
            "AGENTS.local.md",
            "AGENT.md",
            "CLAUDE.md",
            "CLAUDE.local.md",
            "GEMINI.md",
            "QWEN.md",
            ".rules",
            ".cursorrules",
            ".windsurfrules",
            ".clinerules",
            ".roorules",
            ".goosehints",
        ],
    ),
    row(INSTRUCTIONS, ReadByAgents, agent_config!("crush"), &["CRUSH.md"]),
    row(INSTRUCTIONS, ReadByAgents, agent_config!("hermes"), &["HERMES.md", ".hermes.md", "SOUL.md"]),
    row(INSTRUCTIONS, ReadByAgents, "https://docs.warp.dev/agents/capabilities/rules.md", &["WARP.md"]),
    row(
        INSTRUCTIONS,
        ReadByAgents,
        "agent-config 0.3.3 (docs/agents: windsurf, cline, roo, junie, kilocode, antigravity, codex, trae)",
        &[
            ".windsurf/**",
            ".codeium/windsurf/memories/**",
            ".clinerules/**",
            ".cline/**",
            ".roo/**",
            ".junie/**",
            ".kilocode/**",
            ".trae/**",
            ".agent/**",
            ".agents/**",
        ],
    ),
    row(
        INSTRUCTIONS,
        ReadByAgents,
        "https://kiro.dev/docs/steering; https://docs.aws.amazon.com/amazonq/latest/qdeveloper-ug/context-project-rules.html",
        &[".kiro/steering/**", ".amazonq/rules/**", ".amazonq/prompts/**"],
    ),
    row(
        INSTRUCTIONS,
        ReadByAgents,
        "https://code.visualstudio.com/docs/copilot/customization/custom-instructions",
        &[
            ".github/copilot-instructions.md",
            ".github/instructions/**",
            ".github/prompts/**",
            ".github/agents/**",
            ".github/chatmodes/**",
            ".github/skills/**",
        ],
    ),
];
