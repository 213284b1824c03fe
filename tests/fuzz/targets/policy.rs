//! A policy file and a command: both are parsed completely and deterministically, and a command that is passed to a
//! shell is classified at least as strictly as the command alone.

#![no_main]

use std::path::Path;

use libfuzzer_sys::fuzz_target;

use avfs_policy::{Action, Asked, COMMANDS_MAX, Category, Layer, OwnChoices, Policy, Reading, Tier, read};
use avfs_request::{Confinement, ExecutionTimeout, NetMode, Profile, Terminal};
use avfs_types::CommandLine;

const TEXT_BYTES_MAX: usize = 4096;
/// Only shells of the same kind: a doubt for an unknown shell may not be a doubt for bash.
const WRAPPERS: [&str; 5] = ["sh -c", "timeout 5 sh -c", "env A=1 sh -c", "nice -n 3 nohup sh -c", "eval"];

fn asked<T>(command: &CommandLine, with: impl FnOnce(&Asked<'_>) -> T) -> T {
    let project = Path::new("/home/u/proj");
    with(&Asked {
        command,
        fork: None,
        cwd: project,
        workspace: project,
        project,
        home: Some(Path::new("/home/u")),
        net: &NetMode::None,
        confinement: Confinement::DEFAULT,
        profile: Profile::Strict,
        timeout: ExecutionTimeout::None,
        rw: &[Path::new("/data")],
        provided: &[],
        secrets: &[],
        variables: &[],
        openings: &[],
        terminal: Terminal::None,
        editor: false,
        own: OwnChoices::NONE,
    })
}

fn shell(text: &str) -> CommandLine {
    CommandLine::Shell(text.into())
}

fn quoted(text: &str) -> String {
    format!("'{}'", text.replace('\'', "'\\''"))
}

/// Whether parsing stopped earlier: the wrapper can exceed a limit that the text alone does not.
fn stopped_earlier(wide: &Reading, narrow: &Reading) -> bool {
    wide.commands.len() >= COMMANDS_MAX || wide.doubts.iter().any(|doubt| !narrow.doubts.contains(doubt))
}

/// A doubt is at least mutating, never read-only.
fn is_as_strict(wide: &Reading, narrow: &Reading) -> bool {
    let (wide_is, narrow_is) = (wide.categories(), narrow.categories());
    if !wide.doubts.is_empty()
        && (wide_is.contains(Category::ReadOnly) || !wide_is.contains(Category::Mutating))
    {
        return false;
    }
    let keeps = |category: Category| category == Category::ReadOnly || wide_is.contains(category);
    let keeps_doubts = !wide.doubts.is_empty() || narrow.doubts.is_empty();
    stopped_earlier(wide, narrow) || keeps_doubts && narrow_is.iter().all(keeps)
}

fuzz_target!(|bytes: &[u8]| {
    let Ok(text) = std::str::from_utf8(&bytes[..bytes.len().min(TEXT_BYTES_MAX)]) else { return };
    // The policy, a zero byte, the command; without a zero byte, a command alone.
    let (policy_text, command_text) = text.split_once('\0').unwrap_or(("", text));
    let command_text = command_text.replace('\0', "");
    let command = shell(&command_text);
    let alone = asked(&command, read);
    assert_eq!(alone, asked(&command, read));
    let builtin = Policy::builtin();
    let decided = asked(&command, |asked| builtin.decide(asked));
    // A text that starts like an option is an option to a shell, even if it is a command alone.
    let wrappers: &[&str] = if command_text.starts_with(['-', '+']) { &[] } else { &WRAPPERS };
    for wrapper in wrappers {
        let wrapped = shell(&format!("{wrapper} {}", quoted(&command_text)));
        let reading = asked(&wrapped, read);
        assert!(is_as_strict(&reading, &alone), "{wrapped:?}: {reading:?} is less strict than {alone:?}");
        let action = asked(&wrapped, |asked| builtin.decide(asked)).action;
        let least = match stopped_earlier(&reading, &alone) {
            true => decided.action.min(Action::AllowWithCheckpoint),
            false => decided.action,
        };
        assert!(action >= least, "{wrapped:?}: {action:?} is less strict than {least:?}");
    }
    for tier in [Tier::System, Tier::User, Tier::Vault] {
        let Ok(layer) = Layer::parse(tier, Path::new("policy.toml"), policy_text, read) else { continue };
        let policy = Policy::builtin().with(layer);
        let decide = || asked(&command, |asked| policy.decide(asked));
        assert_eq!(decide(), decide());
    }
});
