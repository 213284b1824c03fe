//! Where a write to the home ends: in the private home of the run, in one that outlives it, or on the host.

use std::path::Path;

use avfs_policy::{Asked, Categories, Category, OwnChoices, read};
use avfs_request::{Confinement, ExecutionTimeout, NetMode, Profile, Terminal};
use avfs_types::CommandLine;

const WRITE: &str = "touch ~/.cache/x";

/// The place of a run, with its defaults.
struct Place {
    profile: Profile,
    home: Option<&'static str>,
    workspace: &'static str,
    provided: &'static [&'static str],
    rw: &'static [&'static str],
}

const PRIVATE: Place =
    Place { profile: Profile::Strict, home: Some("/home/u"), workspace: "/srv/proj", provided: &[], rw: &[] };

fn categories(place: &Place, line: &str) -> Categories {
    let paths = |all: &'static [&'static str]| all.iter().map(Path::new).collect::<Vec<_>>();
    let (workspace, rw, provided) = (Path::new(place.workspace), paths(place.rw), paths(place.provided));
    let command = CommandLine::Shell(line.into());
    let reading = read(&Asked {
        command: &command,
        fork: None,
        cwd: workspace,
        workspace,
        project: workspace,
        home: place.home.map(Path::new),
        net: &NetMode::None,
        confinement: Confinement::DEFAULT,
        profile: place.profile,
        timeout: ExecutionTimeout::None,
        rw: &rw,
        provided: &provided,
        secrets: &[],
        variables: &[],
        openings: &[],
        terminal: Terminal::None,
        editor: false,
        own: OwnChoices::NONE,
    });
    assert!(reading.doubts.is_empty(), "{line}: {:?}", reading.doubts);
    reading.categories()
}

fn escapes(place: &Place, line: &str) -> bool {
    categories(place, line).contains(Category::HostEscapeRisk)
}

#[test]
fn a_write_that_reaches_only_the_private_home_is_no_risk() {
    let mutating = Categories::of(Category::Mutating);
    let destructive = mutating.with(Category::Destructive);
    for (line, is) in [
        (WRITE, mutating),
        ("rm -rf ~/.cache", destructive),
        ("rm -rf ~", destructive),
        ("mkdir -p ~/.local/bin; echo x > ~/.local/bin/tool", mutating),
        ("cd && touch x", mutating),
        ("git config --global user.name x", mutating),
    ] {
        assert_eq!(categories(&PRIVATE, line), is, "{line}");
    }
}

#[test]
fn a_write_to_another_home_is_a_risk() {
    for place in [
        Place { profile: Profile::Host, ..PRIVATE },
        Place { home: None, ..PRIVATE },
        Place { home: Some("/"), ..PRIVATE },
        Place { home: Some("/srv/other"), ..PRIVATE },
    ] {
        let of_u = "touch /home/u/.cache/x";
        assert!(escapes(&place, of_u), "{:?} {:?}", place.profile, place.home);
    }
    assert!(escapes(&Place { profile: Profile::Host, ..PRIVATE }, "git config --global user.name x"));
    assert!(escapes(&Place { home: None, ..PRIVATE }, WRITE));
}

#[test]
fn a_directory_with_files_that_outlive_the_run_is_not_only_the_private_home() {
    for place in [
        Place { workspace: "/home/u/.cache/proj", ..PRIVATE },
        Place { provided: &["/home/u/.cache/pip"], ..PRIVATE },
        Place { rw: &["/home/u/.cache/data"], ..PRIVATE },
    ] {
        for line in ["rm -rf ~/.cache", "rm -rf ~/.cache/", "rm -rf /home/u", "rm -rf ~/.cache/*"] {
            assert!(escapes(&place, line), "{line} in {}", place.workspace);
        }
        // Control: beside them, it is.
        assert!(!escapes(&place, "rm -rf ~/.config"));
    }
    // What the run provides itself can be written, as everywhere.
    for provided in [&["/home/u"][..], &["/home/u/.cache"]] {
        assert!(!escapes(&Place { provided, ..PRIVATE }, "rm -rf ~/.cache/x"));
    }
}
