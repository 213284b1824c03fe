//! Interpreters: their code can do anything that files and processes allow, so it counts as writing.

use super::{Judge, Row};
use crate::read::found::{Call, Found, shown};
use crate::read::reader::Reader;
use crate::read::shell::Dialect;
use crate::reading::Word;

pub const ROWS: &[Row] = &[
    Row("python python2 python3 pypy pypy3 ipython bpython", Judge::By(python)),
    Row(
        "perl ruby irb pry node nodejs deno bun php lua luajit tclsh wish Rscript R julia ghci guile racket scheme sbcl clisp clojure clj bb groovy groovysh scala kotlin jshell java erl iex elixir octave ocaml swipl gnuplot expect osascript wasmtime wasmer crystal raku dart nim ts-node tsx esno zx",
        Judge::By(interpreter),
    ),
    Row("sqlite3 sqlite duckdb", Judge::By(database)),
    Row(
        "openssl gpg gpg2 age ssh-keygen ssh-add ssh-agent ssh-keyscan keytool certutil pass",
        Judge::By(keys),
    ),
];

/// Options after which nothing is run.
fn only_asks(call: &Call<'_>) -> bool {
    match call.args {
        [Word::Known(only)] => {
            matches!(
                only.as_str(),
                "-V" | "-VV" | "-v" | "-h" | "--version" | "--help" | "-version" | "version" | "help"
            )
        }
        _ => false,
    }
}

fn is_alone(call: &Call<'_>) -> bool {
    call.args.is_empty() && call.may_ask()
}

fn interpreter(call: &Call<'_>, found: &mut Found, _: &mut Reader<'_>) {
    let name = call.name;
    if only_asks(call) {
        return;
    }
    let checks = match (name, call.first()) {
        ("php", Some("-l" | "-m" | "-i")) | ("node" | "nodejs", Some("--check" | "-c")) => true,
        ("ruby", Some("-c")) => call.args.len() == 2,
        _ => false,
    };
    if checks && call.args.len() <= 2 {
        return;
    }
    found.mutates(format!("`{name}` runs code that can write"));
    if is_alone(call) {
        found.talks(format!("`{name}` asks for code"));
    }
    if matches!((name, call.first()), ("php", Some("-S"))) {
        found.networks("`php -S` serves over the network");
    }
    if matches!(
        (name, call.first()),
        ("bun", Some("install" | "add" | "i" | "update" | "x" | "create" | "upgrade" | "publish"))
            | ("deno", Some("install" | "add" | "cache" | "upgrade" | "deploy"))
    ) {
        found.networks(format!("`{name}` fetches packages"));
    }
    if call
        .args
        .iter()
        .any(|word| word.shown().starts_with("http://") || word.shown().starts_with("https://"))
    {
        found.networks(format!("`{name}` is given an address"));
    }
}

fn python(call: &Call<'_>, found: &mut Found, reader: &mut Reader<'_>) {
    if only_asks(call) {
        return;
    }
    let module = call.args.iter().position(|word| word.shown() == "-m" || is_flags_with_m(word.shown()));
    let code = call.args.iter().position(|word| !word.shown().starts_with('-') || word.shown() == "-c");
    // After `-i` it asks for code when the module is done.
    let asks = call.args.iter().any(|word| word.shown() == "-i");
    if let Some(at) = module.filter(|at| !asks && code.is_none_or(|code| *at < code))
        && let [name, rest @ ..] = call.args.get(at + 1..).unwrap_or_default()
    {
        match name.shown() {
            "pip" | "pip3" | "pipx" | "poetry" | "uv" | "black" | "ruff" | "mypy" | "pytest" | "flake8"
            | "isort" => {
                let mut words = vec![name.clone()];
                words.extend(rest.iter().cloned());
                reader.inner(&words, call.input);
                if name.shown() == "pytest" {
                    found.mutates("`pytest` runs code that can write");
                }
                return;
            }
            "json.tool" if rest.iter().filter(|word| !word.shown().starts_with('-')).count() < 2 => return,
            "http.server" | "SimpleHTTPServer" | "smtpd" | "ftplib" | "pyftpdlib" => {
                found.networks(format!("`{} -m {}` serves over the network", call.name, shown(name.shown())));
            }
            "tokenize" | "ast" | "dis" | "this" | "calendar" | "platform" | "sysconfig" | "site" => return,
            _ => {}
        }
    }
    found.mutates(format!("`{}` runs code that can write", call.name));
    if is_alone(call) {
        found.talks(format!("`{}` asks for code", call.name));
    }
}

fn is_flags_with_m(word: &str) -> bool {
    // `-cm` runs the code `m`, and `-im` asks for code.
    let letters = word.strip_prefix('-').and_then(|letters| letters.strip_suffix('m'));
    letters.is_some_and(|letters| letters.chars().all(|letter| "bBdEIOPqRsSuvx".contains(letter)))
}

fn database(call: &Call<'_>, found: &mut Found, reader: &mut Reader<'_>) {
    let operands: Vec<&Word> = call.args.iter().filter(|word| !word.shown().starts_with('-')).collect();
    for word in &operands {
        // `.shell rm x`, `.system rm x`.
        for line in word.shown().split([';', '\n']) {
            let line = line.trim();
            let text = [".shell ", ".system "].iter().find_map(|dot| line.strip_prefix(dot));
            if let Some(text) = text {
                reader.text(&Word::Known(text.to_owned()), Dialect::Sh);
            }
        }
    }
    let is_readonly = call.args.iter().any(|word| matches!(word.shown(), "-readonly" | "--readonly"));
    let selects = operands.last().and_then(|word| word.known()).is_some_and(is_select);
    if !(is_readonly && operands.len() == 2 && selects) {
        found.mutates(format!("`{}` can write the database and other files", call.name));
    }
    if operands.len() < 2 && call.may_ask() {
        found.talks(format!("`{}` asks for statements", call.name));
    }
}

fn is_select(statement: &str) -> bool {
    let lower = statement.trim_start().to_ascii_lowercase().replace(" (", "(");
    let asks = lower.starts_with("select") || matches!(lower.trim(), ".schema" | ".tables");
    // Functions that write files or load code.
    asks && !["writefile", "load_extension", "edit(", "fts3_tokenizer", "://", ".", ";"].iter().any(|word| {
        lower.trim_end_matches(';').contains(word) && !matches!(lower.trim(), ".schema" | ".tables")
    })
}

fn keys(call: &Call<'_>, found: &mut Found, _: &mut Reader<'_>) {
    let first = call.first().unwrap_or("");
    let has = |words: &[&str]| call.args.iter().any(|word| words.contains(&word.shown()));
    let begins =
        |flags: &[&str]| call.args.iter().any(|word| flags.iter().any(|flag| word.shown().starts_with(flag)));
    match call.name {
        "openssl" => {
            // It takes its options with two dashes as well.
            let has = |words: &[&str]| {
                call.args.iter().any(|word| {
                    let text = word.shown();
                    words.contains(&text) || text.strip_prefix('-').is_some_and(|text| words.contains(&text))
                })
            };
            if matches!(first, "s_client" | "s_server" | "s_time" | "ocsp" | "cmp") {
                found.networks(format!("`openssl {first}` makes connections"));
            }
            let looks = matches!(
                first,
                "version"
                    | "list"
                    | "dgst"
                    | "sha256"
                    | "md5"
                    | "x509"
                    | "verify"
                    | "base64"
                    | "ciphers"
                    | "rand"
                    | "prime"
                    | "asn1parse"
                    | "errstr"
                    | "crl"
                    | "s_client"
            );
            if !looks
                || has(&[
                    "-out",
                    "-keyout",
                    "-writerand",
                    "-CAcreateserial",
                    "-engine",
                    "-provider",
                    "-signature",
                    "-config",
                    "-CAserial",
                    "-sess_out",
                    "-keylogfile",
                    "-msgfile",
                    "-provider-path",
                    "-genconf",
                ])
                || call.args.iter().any(|word| word.known().is_none())
            {
                found.mutates("`openssl` writes keys or files");
            }
        }
        "gpg" | "gpg2" => {
            let looks = has(&[
                "--list-keys",
                "--list-secret-keys",
                "-k",
                "-K",
                "--verify",
                "--fingerprint",
                "--list-packets",
                "--list-config",
            ]);
            if begins(&[
                "--recv",
                "--send",
                "--search",
                "--refresh",
                "--fetch",
                "--locate",
                "--auto-key",
                "--keyserver",
            ]) {
                found.networks("`gpg` asks a key server");
            }
            let writes =
                begins(&["-o", "--ou", "--log", "--status-fi", "--attribute-fi", "--photo", "--exec-path"]);
            if !looks || writes {
                found.mutates("`gpg` writes keys or files");
            }
        }
        "ssh-keyscan" => found.networks("`ssh-keyscan` makes connections"),
        "ssh-add" => found.escapes("`ssh-add` talks to the agent of the host"),
        _ => {
            if call.name != "ssh-keygen" || !has(&["-l", "-lf", "-L"]) {
                found.mutates(format!("`{}` writes keys or files", call.name));
            }
        }
    }
}
