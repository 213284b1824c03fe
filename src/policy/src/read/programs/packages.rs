//! Package managers and the build tools that come with them.

use super::subcommands::{Alone, Verbs};
use super::{Judge, Row, subcommands};
use crate::read::found::{Call, Found};
use crate::read::reader::Reader;
use crate::read::shell::Dialect;
use crate::reading::Word;

pub const ROWS: &[Row] = &[
    Row("npm cnpm", Judge::By(npm)),
    Row("yarn pnpm", Judge::By(yarn)),
    Row("npx pnpx bunx uvx pipx dlx", Judge::By(fetches_and_runs)),
    Row(
        "corepack nvm fnm volta n asdf mise rtx rbenv pyenv goenv jenv sdk rustup ghcup opam stack cabal",
        Judge::By(toolchains),
    ),
    Row("pip pip3", Judge::By(pip)),
    Row("uv poetry pdm pipenv rye hatch conda mamba micromamba", Judge::By(python_projects)),
    Row("cargo", Judge::By(cargo)),
    Row("go", Judge::By(go)),
    Row("gem bundle bundler", Judge::By(ruby)),
    Row("composer", Judge::By(composer)),
    Row("mvn mvnw gradle gradlew sbt lein mill", Judge::By(jvm)),
    Row(
        "mix rebar3 hex swift pod carthage flutter pub luarocks cpan cpanm nimble shards dub vcpkg conan elm-package spago bower jspm",
        Judge::By(others),
    ),
    Row(
        "apt apt-get apt-file aptitude dnf yum microdnf zypper pacman yay paru apk emerge xbps-install xbps-query eopkg snap flatpak dpkg rpm pkg port brew nix-env guix",
        Judge::By(system),
    ),
    Row("apt-cache dpkg-query rpmquery", Judge::Looks),
    Row(
        "nix nix-shell nix-build nix-store nix-channel nix-collect-garbage nixos-rebuild home-manager devbox devenv",
        Judge::By(nix),
    ),
    Row("direnv dotenv foreman honcho overmind", Judge::By(environments)),
];

const NPM: Verbs = Verbs {
    looks: "ls list ll la view info show v bin root prefix help help-search explain why query find-dupes fund completion",
    networks: "install i in ins add ci clean-install install-test it update up upgrade publish unpublish login logout adduser audit outdated search \
               whoami ping exec x create init innit access owner team token dist-tag deprecate star stars doctor profile hook org view info show v",
    destroys: "uninstall remove rm un unlink prune dedupe",
    alone: Alone::Helps,
    valued: "--prefix -C --workspace -w --registry --userconfig --cache --loglevel",
};

const YARN: Verbs = Verbs {
    looks: "list ls why versions bin help licenses explain root",
    networks: "install i add up update upgrade upgrade-interactive publish login logout audit outdated info dlx create init global npm import fetch deploy dedupe",
    destroys: "remove rm uninstall un prune unlink",
    alone: Alone::Installs,
    valued: "--cwd -C --dir --filter -F --prefix",
};

const PIP: Verbs = Verbs {
    looks: "list show freeze check help debug inspect completion hash",
    networks: "install download wheel search index",
    destroys: "uninstall",
    alone: Alone::Helps,
    valued: "--proxy --log --cache-dir --python --timeout --retries --cert",
};

const COMPOSER: Verbs = Verbs {
    looks: "show info licenses list help about depends why prohibits why-not status validate suggests fund",
    networks: "install i update u upgrade require create-project global search outdated self-update selfupdate audit diagnose archive browse",
    destroys: "remove clear-cache",
    alone: Alone::Helps,
    valued: "-d --working-dir",
};

const CARGO: Verbs = Verbs {
    looks: "tree metadata version help locate-project pkgid read-manifest verify-project config",
    networks: "install update add fetch publish login logout search yank owner vendor generate-lockfile audit outdated binstall info upgrade",
    destroys: "clean uninstall remove rm",
    alone: Alone::Helps,
    valued: "--manifest-path -C --config -Z --color",
};

const GO: Verbs = Verbs {
    looks: "version list doc help env",
    networks: "get install",
    destroys: "clean",
    alone: Alone::Helps,
    valued: "-C",
};

fn pip(call: &Call<'_>, found: &mut Found, _: &mut Reader<'_>) {
    subcommands::judge(&PIP, call, found);
    if call.args.iter().any(|word| word.shown().starts_with("--log")) {
        found.mutates("`pip --log` writes a file");
    }
}

fn composer(call: &Call<'_>, found: &mut Found, _: &mut Reader<'_>) {
    subcommands::judge(&COMPOSER, call, found);
}

fn npm(call: &Call<'_>, found: &mut Found, _: &mut Reader<'_>) {
    let verbs = subcommands::judge(&NPM, call, found);
    if let Some((verb @ ("view" | "info" | "show" | "v"), _)) = verbs {
        found.networks(format!("`npm {verb}` asks a registry"));
    }
    if let Some((verb @ ("ls" | "list" | "explain" | "root" | "bin"), rest)) = verbs
        && rest.iter().any(|word| word.known().is_none())
    {
        found.mutates(format!("it is not known what `npm {verb}` is told"));
    }
}

fn yarn(call: &Call<'_>, found: &mut Found, reader: &mut Reader<'_>) {
    let verbs = subcommands::judge(&YARN, call, found);
    if call.name == "pnpm" && call.args.is_empty() {
        return;
    }
    if let Some(("exec", rest)) = verbs {
        reader.inner(after_dashes(rest), call.input);
    }
}

fn after_dashes(rest: &[Word]) -> &[Word] {
    let start = rest.iter().position(|word| word.shown() == "--").map_or(0, |at| at + 1);
    let rest = rest.get(start..).unwrap_or_default();
    let options = rest.iter().take_while(|word| word.shown().starts_with('-')).count();
    rest.get(options..).unwrap_or_default()
}

fn fetches_and_runs(call: &Call<'_>, found: &mut Found, _: &mut Reader<'_>) {
    if call.args.is_empty() || matches!((call.name, call.first()), ("pipx", Some("list" | "environment"))) {
        return;
    }
    // Before the package's name: what follows is for the package.
    let mut options = call.args.iter().map(Word::shown).take_while(|word| word.starts_with('-'));
    if !(call.name == "npx" && options.any(|option| matches!(option, "--no" | "--no-install" | "--offline")))
    {
        found.networks(format!("`{}` fetches the package that it runs", call.name));
    }
    found.mutates(format!("`{}` runs code that can write", call.name));
}

fn toolchains(call: &Call<'_>, found: &mut Found, reader: &mut Reader<'_>) {
    const VERBS: Verbs = Verbs {
        looks: "list ls current which where show version versions help whence root prefix doctor completions",
        networks: "latest install i update upgrade self-update self ls-remote list-remote download get setup enable prepare pin plugin add",
        destroys: "uninstall remove rm clean prune",
        alone: Alone::Helps,
        valued: "",
    };
    let verbs = subcommands::judge(&VERBS, call, found);
    match (call.name, verbs) {
        ("rustup", Some(("toolchain" | "target" | "component", rest)))
            if rest.first().map(Word::shown) != Some("list") =>
        {
            found.networks("`rustup` fetches toolchains");
        }
        ("rustup", Some(("run", [_, rest @ ..]))) => reader.inner(rest, call.input),
        (_, Some(("exec" | "x", rest))) => reader.inner(after_dashes(rest), call.input),
        _ => {}
    }
}

fn python_projects(call: &Call<'_>, found: &mut Found, reader: &mut Reader<'_>) {
    const VERBS: Verbs = Verbs {
        looks: "tree show list version help info about check graph",
        networks: "install add sync lock update upgrade publish self tool python create search download",
        destroys: "remove uninstall rm clean",
        alone: Alone::Helps,
        valued: "--project --directory -C -p --python -n --name",
    };
    if call.name == "uv" && call.first() == Some("pip") {
        let pip = Call { name: "pip", args: call.args.get(1..).unwrap_or_default(), ..*call };
        subcommands::judge(&PIP, &pip, found);
        return;
    }
    match subcommands::judge(&VERBS, call, found) {
        Some(("pip", rest)) => {
            let pip = Call { name: "pip", args: rest, ..*call };
            subcommands::judge(&PIP, &pip, found);
        }
        Some(("run", rest)) => {
            // Dependencies may be fetched first.
            if matches!(call.name, "uv" | "hatch" | "rye" | "pdm")
                && rest.iter().any(|word| word.shown().starts_with("--with"))
            {
                found.networks(format!("`{} run --with` fetches packages", call.name));
            }
            reader.inner(after_dashes(rest), call.input);
        }
        Some(("version", rest)) if !rest.is_empty() => {
            found.mutates(format!("`{} version` sets the version", call.name));
        }
        Some(("create" | "env", _)) if matches!(call.name, "conda" | "mamba" | "micromamba") => {
            found.networks(format!("`{}` fetches packages", call.name));
        }
        _ => {}
    }
}

fn cargo(call: &Call<'_>, found: &mut Found, _: &mut Reader<'_>) {
    if let [Word::Known(only)] = call.args
        && matches!(only.as_str(), "--list" | "-V" | "-vV")
    {
        return;
    }
    subcommands::judge(&CARGO, call, found);
    if call.args.iter().any(|word| word.shown().starts_with("--config")) {
        found.mutates("`cargo --config` can make it run something else");
    }
}

fn go(call: &Call<'_>, found: &mut Found, _: &mut Reader<'_>) {
    match subcommands::judge(&GO, call, found) {
        Some(("env", rest))
            if rest.iter().any(|word| {
                matches!(word.shown().trim_start_matches('-'), "w" | "u") || word.known().is_none()
            }) =>
        {
            found.mutates("`go env -w` writes settings");
        }
        Some(("list", rest)) => {
            for word in rest.iter().filter(|word| word.shown().starts_with('-')) {
                match word.shown().trim_start_matches('-').split('=').next().unwrap_or("") {
                    "toolexec" | "export" | "compiled" => found.mutates("`go list` runs a program"),
                    "mod" => found.mutates("`go list -mod` can write `go.mod`"),
                    "u" | "versions" => found.networks("`go list` asks for newer modules"),
                    _ => {}
                }
            }
        }
        Some(("mod", [Word::Known(verb), ..]))
            if matches!(verb.as_str(), "download" | "tidy" | "vendor" | "why") =>
        {
            found.networks(format!("`go mod {verb}` fetches modules"));
        }
        Some(("run" | "get" | "install", rest)) if rest.iter().any(|word| word.shown().contains('@')) => {
            found.networks("`go` fetches the module that it runs");
        }
        Some(("vet" | "build" | "test", rest))
            if rest.iter().any(|word| {
                word.shown().starts_with("-toolexec")
                    || word.shown().starts_with("-vettool")
                    || word.shown().starts_with("-exec")
            }) =>
        {
            found.mutates("`go` runs a program for each step");
        }
        _ => {}
    }
}

fn ruby(call: &Call<'_>, found: &mut Found, reader: &mut Reader<'_>) {
    const VERBS: Verbs = Verbs {
        looks: "list show info env environment help specification contents dependency which platform licenses check",
        networks: "install i update add outdated fetch push search query signin yank lock cache package sources owner",
        destroys: "uninstall clean remove cleanup",
        alone: Alone::Installs,
        valued: "--gemfile",
    };
    if call.name == "gem" && call.args.is_empty() {
        return;
    }
    if let Some(("exec", rest)) = subcommands::judge(&VERBS, call, found) {
        reader.inner(after_dashes(rest), call.input);
    }
}

/// They resolve dependencies over the network before anything else.
fn jvm(call: &Call<'_>, found: &mut Found, _: &mut Reader<'_>) {
    if matches!(call.args, [Word::Known(only)] if matches!(only.as_str(), "-v" | "-version" | "-h" | "help"))
    {
        return;
    }
    found.mutates(format!("`{}` builds, by rules that can run anything", call.name));
    let fetches = |word: &Word| {
        ["deploy", "publish", "dependency:", "versions:", "release:", "--refresh-dependencies"]
            .iter()
            .any(|goal| word.shown().contains(goal))
    };
    if call.args.iter().any(fetches) {
        found.networks(format!("`{}` works with a repository over the network", call.name));
    }
}

fn others(call: &Call<'_>, found: &mut Found, _: &mut Reader<'_>) {
    const VERBS: Verbs = Verbs {
        looks: "list show info help version dump which path",
        networks: "install add get update upgrade fetch publish search deps deps.get deps.update local.hex local.rebar repo outdated create pub global download i",
        destroys: "remove uninstall clean deps.clean rm",
        alone: Alone::Helps,
        valued: "",
    };
    if matches!(call.name, "cpan" | "cpanm") && !call.args.is_empty() {
        found.networks(format!("`{}` fetches packages", call.name));
    }
    subcommands::judge(&VERBS, call, found);
}

/// They change the system, which the sandbox keeps read-only.
fn system(call: &Call<'_>, found: &mut Found, _: &mut Reader<'_>) {
    const LOOKS: &str = "list show search info policy depends rdepends showsrc provides repolist query what-provides \
                         deps leaves outdated config doctor cat desc uses home version help --list -l -s -S -L --status --search --listfiles --contents -q -Q -Qi -Ql -Qs -qa -qi -ql -qf --query";
    const FETCHES: &str = "search update upgrade install download source repolist refresh info outdated";
    let verb = call.args.iter().find(|word| !word.shown().starts_with('-')).or(call.args.first());
    let first = call.args.first().map_or("", Word::shown);
    let verb = verb.map_or("", Word::shown);
    let is_flagged = matches!(call.name, "dpkg" | "rpm" | "pacman" | "yay" | "paru" | "xbps-query");
    let looks = if is_flagged {
        let pacman = matches!(call.name, "pacman" | "yay" | "paru");
        subcommands::lists(LOOKS, first) && !(pacman && first == "-S") && !(pacman && first == "-L")
    } else {
        subcommands::lists(LOOKS, verb)
    };
    if call.name == "xbps-query" || looks || call.args.is_empty() {
        // A macro of rpm can hold a command.
        let defines = |word: &Word| {
            ["--define", "-D", "--eval", "-E", "--pipe", "--macros", "--load"]
                .iter()
                .any(|flag| word.shown().starts_with(flag))
        };
        if call.name == "rpm" && call.args.iter().any(defines) {
            found.mutates("`rpm` can be told to run a command");
        }
        if matches!(call.name, "brew" | "snap" | "flatpak" | "dnf" | "yum")
            && matches!(verb, "search" | "info" | "outdated")
        {
            found.networks(format!("`{} {verb}` asks a repository", call.name));
        }
        if call.args.iter().any(|word| word.known().is_none() && word.shown().starts_with('$')) && !is_flagged
        {
            found.mutates(format!("it is not known what `{}` is told to do", call.name));
        }
        return;
    }
    found.mutates(format!("`{}` changes the packages of the system", call.name));
    found.escapes(format!("`{}` changes the packages of the system", call.name));
    let local = matches!(call.name, "dpkg" | "rpm");
    if !local
        && (subcommands::lists(FETCHES, verb)
            || !matches!(verb, "remove" | "purge" | "autoremove" | "clean" | "uninstall"))
    {
        found.networks(format!("`{}` fetches packages", call.name));
    }
    if matches!(verb, "remove" | "purge" | "autoremove" | "uninstall" | "erase" | "del") {
        found.destroys(format!("`{} {verb}` removes packages", call.name));
    }
}

fn nix(call: &Call<'_>, found: &mut Found, reader: &mut Reader<'_>) {
    if matches!(call.first(), Some("eval" | "show-config" | "path-info" | "why-depends" | "--version"))
        && call.name == "nix"
    {
        found.mutates("`nix` evaluates code that can fetch and write");
        return;
    }
    found.networks(format!("`{}` fetches what it builds", call.name));
    found.mutates(format!("`{}` writes to its store", call.name));
    if matches!(call.name, "nixos-rebuild" | "nix-collect-garbage" | "nix-channel") {
        found.escapes(format!("`{}` changes the system", call.name));
    }
    for (at, word) in call.args.iter().enumerate() {
        match word.shown() {
            "--run" | "--command" if call.name == "nix-shell" => {
                if let Some(text) = call.args.get(at + 1) {
                    reader.text(text, Dialect::Sh);
                }
            }
            "-c" | "--command" | "--" => {
                reader.inner(call.args.get(at + 1..).unwrap_or_default(), call.input);
                return;
            }
            _ => {}
        }
    }
}

fn environments(call: &Call<'_>, found: &mut Found, reader: &mut Reader<'_>) {
    found.mutates(format!("`{}` runs what a file of the workspace says", call.name));
    match (call.name, call.args) {
        ("direnv", [verb, _, rest @ ..]) if verb.shown() == "exec" => reader.inner(rest, call.input),
        ("dotenv", rest) => reader.inner(after_dashes(rest), call.input),
        _ => {}
    }
}
