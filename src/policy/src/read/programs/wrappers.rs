//! Programs that run another one: it is judged as if it stood alone.

use super::builtins::joined;
use super::{Judge, Row};
use crate::read::found::{Call, Found, Input, shown};
use crate::read::options::{Does, Opt, Order, Parsed, Takes, may_split, parse};
use crate::read::reader::Reader;
use crate::read::shell::Dialect;
use crate::read::{assignments, options};
use crate::reading::Word;

pub const ROWS: &[Row] = &[
    Row("env", Judge::By(env)),
    Row("xargs", Judge::By(xargs)),
    Row("parallel", Judge::By(parallel)),
    Row("timeout gtimeout", Judge::By(|c, _, r| plain(c, r, "s signal k kill-after", 1))),
    Row("nice", Judge::By(|c, _, r| plain(c, r, "n adjustment", 0))),
    Row("ionice", Judge::By(|c, _, r| plain(c, r, "c class n classdata p pid P pgid u uid", 0))),
    Row("nohup", Judge::By(nohup)),
    Row("setsid chronic eatmydata catchsegv ccache sccache distcc ", Judge::By(|c, _, r| plain(c, r, "", 0))),
    Row("stdbuf", Judge::By(|c, _, r| plain(c, r, "i input o output e error", 0))),
    Row("time", Judge::By(time)),
    Row("chrt", Judge::By(|c, _, r| plain(c, r, "T sched-runtime P sched-period D sched-deadline p pid", 1))),
    Row("taskset", Judge::By(|c, _, r| plain(c, r, "p pid", 1))),
    Row("choom", Judge::By(|c, _, r| plain(c, r, "n adjust p pid", 0))),
    Row("prlimit", Judge::By(|c, _, r| plain(c, r, "p pid o output", 0))),
    Row(
        "numactl",
        Judge::By(|c, _, r| plain(c, r, "N m C p i cpunodebind membind physcpubind preferred interleave", 0)),
    ),
    Row("cpulimit", Judge::By(|c, _, r| plain(c, r, "l limit p pid e exe P path c cpu", 0))),
    Row("unbuffer rlwrap", Judge::By(|c, _, r| plain(c, r, "", 0))),
    Row("faketime", Judge::By(|c, _, r| plain(c, r, "", 1))),
    Row("fakeroot", Judge::By(|c, _, r| plain(c, r, "l lib f faked s i b", 0))),
    Row("setarch linux32 linux64 i386 x86_64", Judge::By(setarch)),
    Row("xvfb-run dbus-run-session dbus-launch", Judge::By(|c, _, r| plain(c, r, XVFB, 0))),
    Row("script", Judge::By(script)),
    Row("watch", Judge::By(watch)),
    Row("flock", Judge::By(flock)),
    Row("strace", Judge::By(|c, f, r| trace(c, f, r, "a b e E I O p P s S u U X"))),
    Row("ltrace", Judge::By(|c, f, r| trace(c, f, r, "a A D e F l n p s u w x X"))),
    Row("valgrind", Judge::By(|c, f, r| traced(c, f, r, "tool log-file xml-file"))),
    Row("gdb lldb rr", Judge::By(debugger)),
    Row("busybox toybox coreutils", Judge::By(applet)),
    Row("ld.so ld-linux.so ld-linux-x86-64.so ld-linux-aarch64.so", Judge::By(loader)),
    Row(
        "entr",
        Judge::By(|c, f, r| {
            f.talks("`entr` waits for files to change");
            plain(c, r, "", 0);
        }),
    ),
    Row("hyperfine", Judge::By(hyperfine)),
    Row("sudo doas pkexec sudoedit", Judge::By(sudo)),
    Row("su runuser", Judge::By(su)),
    Row("chroot", Judge::By(|c, f, r| escaping(c, f, r, "userspec groups", 1))),
    Row(
        "unshare",
        Judge::By(|c, f, r| {
            escaping(c, f, r, "S setuid G setgid R root w wd map-user map-group propagation", 0)
        }),
    ),
    Row("nsenter", Judge::By(|c, f, r| escaping(c, f, r, "t target S setuid G setgid", 0))),
    Row(
        "setpriv capsh bwrap firejail proot fakechroot",
        Judge::By(|c, f, r| escaping(c, f, r, "reuid regid", 0)),
    ),
    Row(
        "systemd-run",
        Judge::By(|c, f, r| escaping(c, f, r, "u unit p property M machine H host E setenv", 0)),
    ),
    Row("systemd-nspawn machinectl", Judge::Does(&[Does::Escapes("starts something beyond the sandbox")])),
    Row("at batch crontab", Judge::Does(&[Does::Escapes("has something run later, beyond the sandbox")])),
];

const XVFB: &str = "n server-num e error-file s server-args w wait f auth-file p xauth-protocol";

/// Options with values, and how many words stand between them and the program.
fn plain(call: &Call<'_>, reader: &mut Reader<'_>, valued: &'static str, skip: usize) {
    let opts = [Opt(valued, Takes::Value, Does::Nothing)];
    let rest = after(call, reader, &opts, skip);
    reader.inner(rest, call.input);
}

/// What is left of the arguments after options and `skip` words.
fn after<'c>(call: &Call<'c>, reader: &mut Reader<'_>, opts: &[Opt], skip: usize) -> &'c [Word] {
    let parsed = parse(call.args, opts, Order::OptionsFirst);
    let start = parsed.before_operands + skip;
    let before = call.args.get(..start.min(call.args.len())).unwrap_or_default();
    if let Some(word) = before.iter().find(|word| may_split(word)) {
        reader.doubt(format!("`{}` may hold the program that `{}` runs", shown(word.shown()), call.name));
    }
    call.args.get(start..).unwrap_or_default()
}

fn nohup(call: &Call<'_>, found: &mut Found, reader: &mut Reader<'_>) {
    if call.may_ask() && !call.args.is_empty() {
        found.mutates("`nohup` may write `nohup.out`");
    }
    plain(call, reader, "", 0);
}

/// As `env`, for programs; a shell's own `time` takes assignments and `!` too.
fn time(call: &Call<'_>, found: &mut Found, reader: &mut Reader<'_>) {
    let opts = [Opt("o output", Takes::Value, Does::Nothing), Opt("f format", Takes::Value, Does::Nothing)];
    let parsed = parse(call.args, &opts, Order::OptionsFirst);
    if let Some(file) = parsed.value(&["o", "output"]) {
        options::writes("`time -o`", file, found, reader);
    }
    let mut rest = after(call, reader, &opts, 0);
    while let [Word::Known(first), more @ ..] = rest {
        let Some((name, value)) = first.split_once('=').filter(|_| is_assignment(first)) else { break };
        assignments::judge(name, &Word::Known(value.to_owned()), found);
        rest = more;
    }
    if let [Word::Known(bang), more @ ..] = rest
        && bang == "!"
    {
        rest = more;
    }
    reader.inner(rest, call.input);
}

fn is_assignment(text: &str) -> bool {
    let name = text.split('=').next().unwrap_or("");
    text.contains('=')
        && !name.is_empty()
        && !name.starts_with(|c: char| c.is_ascii_digit())
        && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_')
}

fn env(call: &Call<'_>, found: &mut Found, reader: &mut Reader<'_>) {
    let opts = [
        Opt("u unset C chdir", Takes::Value, Does::Nothing),
        Opt("S split-string", Takes::Value, Does::Nothing),
        Opt("block-signal default-signal ignore-signal", Takes::Attached, Does::Nothing),
    ];
    let parsed = parse(call.args, &opts, Order::OptionsFirst);
    let mut rest = after(call, reader, &opts, 0);
    while let Some((word, more)) = rest.split_first() {
        let text = word.shown();
        let Some((name, value)) = text.split_once('=') else { break };
        let value = match word {
            Word::Known(_) => Word::Known(value.to_owned()),
            Word::Unknown(_) if is_assignment(text) => Word::Unknown(value.to_owned()),
            Word::Unknown(_) => break,
        };
        assignments::judge(name, &value, found);
        rest = more;
    }
    reader.places.enter();
    if let Some(directory) = parsed.value(&["C", "chdir"]) {
        reader.places.change(directory.known());
    }
    match parsed.value(&["S", "split-string"]) {
        Some(text) => split_string(text, rest, reader),
        None => reader.inner(rest, call.input),
    }
    reader.places.leave();
}

/// `env -S`: a text that is split, and words after it.
fn split_string(text: &Word, rest: &[Word], reader: &mut Reader<'_>) {
    let mut whole = vec![text.clone()];
    whole.extend(rest.iter().map(|word| match word {
        Word::Known(word) => Word::Known(format!("'{}'", word.replace('\'', "'\\''"))),
        Word::Unknown(_) => word.clone(),
    }));
    let whole = match joined(&whole) {
        // Its own assignments come first; what follows is a program.
        Word::Known(text) => Word::Known(format!("env {text}")),
        Word::Unknown(text) => Word::Unknown(text),
    };
    reader.text(&whole, Dialect::Bash);
}

const XARGS: &[Opt] = &[
    Opt(
        "I L n P s a d E arg-file delimiter max-args max-procs max-chars process-slot-var",
        Takes::Value,
        Does::Nothing,
    ),
    Opt("i e l replace max-lines eof", Takes::Attached, Does::Nothing),
];

fn xargs(call: &Call<'_>, found: &mut Found, reader: &mut Reader<'_>) {
    let parsed = parse(call.args, XARGS, Order::OptionsFirst);
    let mark = match parsed.value(&["I", "i", "replace"]).and_then(Word::known) {
        Some(mark) => Some(mark.to_owned()),
        None => parsed.has(&["i", "replace"]).then(|| "{}".to_owned()),
    };
    if let Some(name) = parsed.value(&["process-slot-var"]) {
        assignments::judge_name(name.shown(), found);
    }
    if parsed.has(&["p", "interactive"]) {
        found.talks("`xargs -p` asks before each command");
    }
    let rest = after(call, reader, XARGS, 0);
    fed(rest, mark.as_deref(), reader);
}

/// Programs whose arguments are code.
const RUN_CODE: &[&str] = &[
    "sh", "bash", "dash", "ash", "zsh", "ksh", "eval", "env", "ssh", "su", "awk", "gawk", "sed", "python",
    "python3", "perl", "ruby", "node", "php", "xargs", "find", "timeout", "nice", "nohup", "sudo", "watch",
    "parallel", "busybox",
];

/// A program that gets words nobody knows: in place of `mark`, or at the end.
fn fed(words: &[Word], mark: Option<&str>, reader: &mut Reader<'_>) {
    if words.is_empty() {
        return;
    }
    let mut words = words.to_vec();
    match mark {
        Some(mark) => {
            let code = words.first().is_some_and(|word| RUN_CODE.contains(&word.shown()));
            for word in words.iter_mut().filter(|word| word.shown().contains(mark)) {
                if code && word.shown() != mark {
                    // The text is judged as it is written, and what comes into it is not known.
                    reader.doubt(format!("`{}` becomes part of what is run", shown(mark)));
                } else if word.shown().starts_with(mark) {
                    *word = Word::Unknown(format!("${}", word.shown()));
                } else {
                    *word = Word::Unknown(word.shown().to_owned());
                }
            }
        }
        None => words.push(Word::Unknown("$…".to_owned())),
    }
    reader.inner(&words, Input::Unknown);
}

fn parallel(call: &Call<'_>, found: &mut Found, reader: &mut Reader<'_>) {
    let opts = [Opt(
        "j jobs P n N L a arg-file S sshlogin I C colsep d delimiter joblog results tmpdir timeout retries delay halt workdir wd",
        Takes::Value,
        Does::Nothing,
    )];
    let parsed = parse(call.args, &opts, Order::OptionsFirst);
    if parsed.has(&["S", "sshlogin", "sshloginfile"]) {
        found.networks("`parallel -S` runs on other machines");
    }
    if parsed.has(&["joblog", "results"]) {
        found.mutates("`parallel` writes a log");
    }
    let rest = after(call, reader, &opts, 0);
    let end = rest.iter().position(|word| word.shown().starts_with(":::")).unwrap_or(rest.len());
    let command = rest.get(..end).unwrap_or_default();
    if command.is_empty() {
        found.mutates("`parallel` runs what it reads");
        reader.doubt("`parallel` runs what it reads, and that is not known");
        return;
    }
    // It hands its words to a shell.
    match joined(command) {
        Word::Known(text) => reader.text(&Word::Known(format!("{text} \"$_\"")), Dialect::Bash),
        Word::Unknown(text) => reader.text(&Word::Unknown(text), Dialect::Bash),
    }
}

fn setarch(call: &Call<'_>, _: &mut Found, reader: &mut Reader<'_>) {
    let skip =
        usize::from(call.name == "setarch" && call.first().is_some_and(|first| !first.starts_with('-')));
    let args = call.args.get(skip..).unwrap_or_default();
    plain(&Call { args, ..*call }, reader, "", 0);
}

fn script(call: &Call<'_>, found: &mut Found, reader: &mut Reader<'_>) {
    found.mutates("`script` writes what it sees to a file");
    let opts = [
        Opt("c command", Takes::Value, Does::RunsText("runs a text")),
        Opt(
            "O log-out I log-in B log-io T log-timing E echo o output-limit m logging-format",
            Takes::Value,
            Does::Nothing,
        ),
    ];
    let parsed = parse(call.args, &opts, Order::Any);
    match parsed.value(&["c", "command"]) {
        Some(text) => reader.text(text, Dialect::Sh),
        None => found.talks("`script` starts a shell"),
    }
    for file in &parsed.operands {
        options::writes("`script`", file, found, reader);
    }
}

fn watch(call: &Call<'_>, found: &mut Found, reader: &mut Reader<'_>) {
    found.talks("`watch` fills the terminal until it is stopped");
    let opts = [
        Opt("n interval q equexit", Takes::Value, Does::Nothing),
        Opt("d differences", Takes::Attached, Does::Nothing),
    ];
    let rest = after(call, reader, &opts, 0);
    if !rest.is_empty() {
        reader.text(&joined(rest), Dialect::Sh);
    }
}

fn flock(call: &Call<'_>, found: &mut Found, reader: &mut Reader<'_>) {
    let opts = [Opt("w timeout wait E conflict-exit-code c command", Takes::Value, Does::Nothing)];
    let parsed = parse(call.args, &opts, Order::OptionsFirst);
    if let Some(file) = parsed.operands.first() {
        options::writes("`flock`", file, found, reader);
    }
    let rest = after(call, reader, &opts, 1);
    match rest {
        [Word::Known(flag), text, ..] if flag == "-c" || flag == "--command" => {
            reader.text(text, Dialect::Sh)
        }
        rest => reader.inner(rest, call.input),
    }
    if let Some(text) = parsed.value(&["c", "command"]) {
        reader.text(text, Dialect::Sh);
    }
}

fn trace(call: &Call<'_>, found: &mut Found, reader: &mut Reader<'_>, valued: &'static str) {
    let opts = [Opt("o output", Takes::Value, Does::Nothing), Opt(valued, Takes::Value, Does::Nothing)];
    let parsed = parse(call.args, &opts, Order::OptionsFirst);
    match parsed.value(&["o", "output"]) {
        // It hands the value to a shell.
        Some(Word::Known(file)) if file.starts_with(['|', '!']) => {
            reader.text(&Word::Known(file[1..].to_owned()), Dialect::Sh);
        }
        Some(file) => options::writes(&format!("`{} -o`", call.name), file, found, reader),
        None => {}
    }
    if parsed.has(&["p"]) {
        found.escapes(format!("`{} -p` looks into another process", call.name));
    }
    let rest = after(call, reader, &opts, 0);
    reader.inner(rest, call.input);
}

fn traced(call: &Call<'_>, found: &mut Found, reader: &mut Reader<'_>, logs: &str) {
    let parsed = parse(call.args, &[], Order::OptionsFirst);
    for given in
        parsed.given.iter().filter(|given| logs.split(' ').any(|log| log == given.name && log != "tool"))
    {
        if let Some(file) = &given.value {
            options::writes(&format!("`{}`", call.name), file, found, reader);
        }
    }
    found.mutates(format!("`{}` may write what it found", call.name));
    let rest = after(call, reader, &[], 0);
    reader.inner(rest, call.input);
}

fn debugger(call: &Call<'_>, found: &mut Found, reader: &mut Reader<'_>) {
    found.mutates(format!("`{}` runs what it is told", call.name));
    let is_batch =
        call.args.iter().any(|word| matches!(word.shown(), "-batch" | "--batch" | "record" | "replay"));
    if !is_batch {
        found.talks(format!("`{}` asks for commands", call.name));
    }
    let inner = call.args.iter().position(|word| matches!(word.shown(), "--args" | "--" | "record"));
    if let Some(at) = inner {
        reader.inner(call.args.get(at + 1..).unwrap_or_default(), call.input);
    }
}

fn applet(call: &Call<'_>, found: &mut Found, reader: &mut Reader<'_>) {
    match call.first() {
        Some("--install") => found.mutates(format!("`{} --install` writes links", call.name)),
        Some(flag) if flag.starts_with("--") => {}
        _ => reader.inner(call.args, call.input),
    }
}

fn loader(call: &Call<'_>, found: &mut Found, reader: &mut Reader<'_>) {
    found.mutates(format!("`{}` runs any file", call.name));
    plain(call, reader, "library-path preload audit argv0 inhibit-rpath", 0);
}

fn hyperfine(call: &Call<'_>, found: &mut Found, reader: &mut Reader<'_>) {
    let opts = [
        Opt("p prepare s setup c cleanup conclude reference", Takes::Value, Does::Nothing),
        Opt("export-json export-csv export-markdown export-asciidoc output", Takes::Value, Does::Nothing),
        Opt(
            "w warmup r runs m min-runs M max-runs P parameter-scan L parameter-list S shell n command-name",
            Takes::Value,
            Does::Nothing,
        ),
    ];
    let parsed = parse(call.args, &opts, Order::Any);
    for given in &parsed.given {
        match (&given.value, given.name) {
            (Some(text), "p" | "prepare" | "s" | "setup" | "c" | "cleanup" | "conclude" | "reference") => {
                reader.text(text, Dialect::Sh);
            }
            (Some(file), name) if name.starts_with("export") => {
                options::writes("`hyperfine`", file, found, reader)
            }
            _ => {}
        }
    }
    for text in &parsed.operands {
        reader.text(text, Dialect::Sh);
    }
}

fn sudo(call: &Call<'_>, found: &mut Found, reader: &mut Reader<'_>) {
    found.escapes(format!("`{}` acts as another user", call.name));
    found.mutates(format!("`{}` acts as another user", call.name));
    let opts = [Opt(
        "u user g group h host p prompt C close-from D chdir r role t type T command-timeout U other-user R chroot",
        Takes::Value,
        Does::Nothing,
    )];
    let parsed = parse(call.args, &opts, Order::OptionsFirst);
    if parsed.has(&["i", "login", "s", "shell"]) && parsed.operands.is_empty() {
        found.talks(format!("`{}` starts a shell", call.name));
    }
    let mut rest = after(call, reader, &opts, 0);
    while let [Word::Known(first), more @ ..] = rest {
        if !is_assignment(first) {
            break;
        }
        rest = more;
    }
    reader.inner(rest, call.input);
}

fn su(call: &Call<'_>, found: &mut Found, reader: &mut Reader<'_>) {
    found.escapes(format!("`{}` acts as another user", call.name));
    found.mutates(format!("`{}` acts as another user", call.name));
    let opts = [Opt(
        "c command g group G supp-group s shell u user w whitelist-environment",
        Takes::Value,
        Does::Nothing,
    )];
    let parsed = parse(call.args, &opts, Order::Any);
    match parsed.value(&["c", "command"]) {
        Some(text) => reader.text(text, Dialect::Sh),
        None if parsed.has(&["u", "user"]) => inner_operands(&parsed, call, reader),
        None => found.talks(format!("`{}` starts a shell", call.name)),
    }
}

fn inner_operands(parsed: &Parsed<'_>, call: &Call<'_>, reader: &mut Reader<'_>) {
    let words: Vec<Word> = parsed.operands.iter().map(|word| (*word).clone()).collect();
    reader.inner(&words, call.input);
}

fn escaping(call: &Call<'_>, found: &mut Found, reader: &mut Reader<'_>, valued: &'static str, skip: usize) {
    found.escapes(format!("`{}` leaves the sandbox's own view", call.name));
    found.mutates(format!("`{}` leaves the sandbox's own view", call.name));
    plain(call, reader, valued, skip);
}
