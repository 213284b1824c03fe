//! Time to parse a command of 200 words, as text and as argv.

use std::hint::black_box;
use std::path::Path;

use criterion::{Criterion, criterion_group, criterion_main};

use avfs_policy::{Asked, OwnChoices, read};
use avfs_request::{Confinement, ExecutionTimeout, NetMode, Profile, Terminal};
use avfs_types::CommandLine;

fn commands() -> Vec<(&'static str, CommandLine)> {
    let stage = |i: usize| format!("grep -rn 'foo bar' src/x{i} --include=\"*.rs\" | sort -u | head -n 5; ");
    let text: String = (0..15).map(stage).collect();
    let arguments: String = (0..199).map(|i| format!(" arg{i}")).collect();
    let words = std::iter::once("grep".into()).chain((0..199).map(|i| format!("arg{i}").into()));
    vec![
        ("200 tokens, 45 commands", CommandLine::Shell(text.into())),
        ("200 words, one command", CommandLine::Shell(format!("grep{arguments}").into())),
        ("200 words of argv", CommandLine::Argv(words.collect())),
    ]
}

fn reading(criterion: &mut Criterion) {
    for (name, command) in commands() {
        let asked = Asked {
            command: &command,
            fork: None,
            cwd: Path::new("/home/u/proj"),
            workspace: Path::new("/home/u/proj"),
            project: Path::new("/home/u/proj"),
            home: Some(Path::new("/home/u")),
            net: &NetMode::None,
            confinement: Confinement::DEFAULT,
            profile: Profile::Strict,
            timeout: ExecutionTimeout::None,
            rw: &[],
            provided: &[],
            secrets: &[],
            variables: &[],
            openings: &[],
            terminal: Terminal::None,
            editor: false,
            own: OwnChoices::NONE,
        };
        criterion.bench_function(name, |bencher| bencher.iter(|| read(black_box(&asked))));
    }
}

criterion_group!(benches, reading);
criterion_main!(benches);
