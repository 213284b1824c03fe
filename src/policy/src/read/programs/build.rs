//! Builds, compilers, linters and formatters.

use super::{Judge, Row};
use crate::read::found::{Call, Found, shown};
use crate::read::options;
use crate::read::options::{Does, Operands, Opt, Spec, Takes};
use crate::read::reader::Reader;
use crate::reading::Word;

const BUILDS: Does = Does::Mutates("builds, by rules that can run anything");
const FORMATS: &[Does] = &[Does::Mutates("changes files in place")];

pub const ROWS: &[Row] = &[
    Row("make gmake bmake", Judge::By(make)),
    Row(
        "cmake ninja meson scons bazel bazelisk buck buck2 waf ant just task mage rake tox nox invoke doit autoconf automake \
         autoreconf aclocal libtoolize configure ctest cpack xcodebuild msbuild dotnet gulp grunt webpack vite rollup esbuild parcel \
         turbo nx lerna tsup swc babel sass lessc postcss tailwindcss next nuxt astro gatsby hugo jekyll mkdocs sphinx-build doxygen latexmk pdflatex \
         xelatex lualatex bibtex protoc flatc thrift bison yacc flex lex m4 gperf swig cython cythonize pyinstaller nuitka maturin \
         wasm-pack trunk pre-commit husky lint-staged cross xtask act",
        Judge::Does(&[BUILDS]),
    ),
    Row(
        "gcc g++ cc c++ clang clang++ cpp tcc rustc rustdoc gccgo gfortran ifort nvcc javac kotlinc scalac ghc ocamlfind ocamlc ocamlopt \
         dmd ldc2 gdc zig nasm yasm as gas ld lld ld.lld mold gold ld.gold ranlib strip objcopy patchelf install_name_tool dsymutil llc opt \
         llvm-link lipo gnatmake fpc windres msgfmt xgettext msgmerge tsc vala valac swiftc emcc em++ solc elm purs",
        Judge::By(compiler),
    ),
    Row(
        "pytest py.test jest vitest mocha ava tape karma cypress playwright phpunit rspec cucumber nosetests unittest coverage behave robot bats shunit2 ginkgo gotestsum",
        Judge::Does(&[Does::Mutates("runs tests, which can write")]),
    ),
    Row(
        "rustfmt prettier black isort autopep8 yapf gofmt goimports gofumpt clang-format shfmt dprint biome standard stylua rubocop php-cs-fixer ktlint scalafmt google-java-format ormolu nixfmt alejandra taplo djlint cmake-format ruff buf",
        Judge::By(formatter),
    ),
    Row(
        "eslint stylelint tslint textlint oxlint golangci-lint ansible-lint sqlfluff",
        Judge::Table(&Spec {
            base: &[],
            opts: &[
                Opt("fix fix-dry-run", Takes::Nothing, Does::Mutates("changes files in place")),
                Opt("o output-file cache-location", Takes::Value, Does::Writes("writes a file")),
                Opt(
                    "c config rulesdir resolve-plugins-relative-to parser plugin custom-syntax",
                    Takes::Value,
                    Does::Mutates("runs what a file says"),
                ),
                Opt("cache init", Takes::Nothing, Does::Mutates("writes a file")),
            ],
            operands: Operands::Ignored,
        }),
    ),
    Row(
        "markdownlint",
        Judge::Table(&Spec {
            base: &[],
            opts: &[
                Opt("f fix", Takes::Nothing, Does::Mutates("changes files in place")),
                Opt("o output", Takes::Value, Does::Writes("writes a file")),
                Opt("r rules c config", Takes::Value, Does::Mutates("runs what a file says")),
            ],
            operands: Operands::Ignored,
        }),
    ),
    Row(
        "shellcheck hadolint yamllint jsonlint flake8 pyflakes pycodestyle pydocstyle bandit vulture luacheck cppcheck cpplint tflint actionlint typos codespell gitleaks",
        Judge::Table(&Spec {
            base: &[],
            opts: &[
                Opt(
                    "w write-changes i interactive fix",
                    Takes::Nothing,
                    Does::Mutates("changes files in place"),
                ),
                Opt("dump init install-hook", Takes::Attached, Does::Mutates("writes files")),
                Opt("cppcheck-build-dir plist-output", Takes::Value, Does::Writes("writes files")),
                Opt("addon", Takes::Value, Does::Mutates("runs a program")),
                Opt("o output output-file report-path r", Takes::Value, Does::Writes("writes a file")),
            ],
            operands: Operands::Ignored,
        }),
    ),
    Row(
        "mypy pyright pylint pyre clang-tidy iwyu",
        Judge::Does(&[Does::Mutates("keeps a cache, or runs what its settings say")]),
    ),
];

fn make(call: &Call<'_>, found: &mut Found, reader: &mut Reader<'_>) {
    found.mutates(format!("`{}` builds, by rules that can run anything", call.name));
    let mut words = call.args.iter();
    while let Some(word) = words.next() {
        let directory = match word.shown() {
            "-C" | "--directory" => words.next().cloned(),
            text => text
                .strip_prefix("--directory=")
                .or_else(|| text.strip_prefix("-C").filter(|rest| !rest.is_empty()))
                .map(|directory| Word::Known(directory.to_owned())),
        };
        if let Some(directory) = directory {
            options::writes("`make -C`", &directory, found, reader);
        }
        if let Some(text) = word.shown().strip_prefix("--eval=") {
            reader.doubt(format!("`make --eval` runs `{}`", shown(text)));
        }
    }
}

fn compiler(call: &Call<'_>, found: &mut Found, reader: &mut Reader<'_>) {
    if let [Word::Known(only)] = call.args
        && matches!(
            only.as_str(),
            "-v" | "-V"
                | "-vV"
                | "-dumpversion"
                | "-dumpmachine"
                | "-version"
                | "--print-sysroot"
                | "--target-help"
        )
    {
        return;
    }
    if matches!((call.name, call.first()), ("rustc", Some("--print" | "--explain"))) && call.args.len() == 2 {
        return;
    }
    found.mutates(format!("`{}` writes what it makes", call.name));
    let mut words = call.args.iter();
    while let Some(word) = words.next() {
        if word.shown() == "-o"
            && let Some(file) = words.next()
        {
            options::writes(&format!("`{}`", call.name), file, found, reader);
        }
    }
}

/// Letters that make a formatter write, alone or among others.
fn writing_letters(name: &str) -> &'static [char] {
    match name {
        "gofmt" | "goimports" | "gofumpt" | "shfmt" | "prettier" => &['w'],
        "yapf" | "autopep8" | "clang-format" | "cmake-format" | "google-java-format" | "ormolu" => &['i'],
        "rubocop" => &['a', 'A', 'x'],
        _ => &[],
    }
}

fn has_letter(word: &Word, letters: &[char]) -> bool {
    let cluster = word.shown().strip_prefix('-').filter(|rest| !rest.starts_with('-'));
    cluster.is_some_and(|cluster| cluster.split('=').next().unwrap_or("").contains(letters))
}

/// Formatters change files unless they are told to check; some only print unless told to write.
fn formatter(call: &Call<'_>, found: &mut Found, reader: &mut Reader<'_>) {
    let has = |flags: &[&str]| call.args.iter().any(|word| flags.contains(&word.shown()));
    let starts =
        |flags: &[&str]| call.args.iter().any(|word| flags.iter().any(|flag| word.shown().starts_with(flag)));
    let writes = has(&[
        "-w",
        "--write",
        "-i",
        "--in-place",
        "--fix",
        "-a",
        "-A",
        "--autocorrect",
        "--auto-correct",
        "-F",
        "--fix-only",
    ]) || starts(&[
        "--fix",
        "--w",
        "--i",
        "-i=",
        "--output",
        "-o",
        "--emit",
        "--apply",
        "--autocorrect",
        "--auto-correct",
        "--auto-gen",
        "--add-noqa",
        "--require",
        "--plugin",
    ]) || call.args.iter().any(|word| has_letter(word, writing_letters(call.name)));
    // These print what they would write.
    let prints = matches!(
        call.name,
        "gofmt"
            | "goimports"
            | "gofumpt"
            | "clang-format"
            | "shfmt"
            | "prettier"
            | "autopep8"
            | "yapf"
            | "google-java-format"
            | "rubocop"
            | "standard"
            | "ktlint"
            | "cmake-format"
            | "ormolu"
    );
    // Of the short ones only those that mean it: `black -l 80` is a width.
    let short: &[&str] = match call.name {
        "isort" => &["-c", "-d"],
        "nixfmt" | "alejandra" => &["-c"],
        "buf" => &["-d"],
        _ => &[],
    };
    let checks = has(&["--check", "--diff", "--list-different", "--check-only", "--dry-run", "--test"])
        || has(short)
        || matches!(
            (call.name, call.first()),
            ("ruff", Some("check" | "version" | "rule" | "linter"))
                | ("biome", Some("check" | "lint" | "ci" | "version"))
        );
    if writes || !(prints || checks) {
        let spec = Spec { base: FORMATS, opts: &[], operands: Operands::Ignored };
        options::judge(&spec, call, found, reader);
    } else if call.args.iter().any(options::may_be_unknown_option) {
        found.mutates(format!("`{}` may be told to change files", call.name));
    }
}
