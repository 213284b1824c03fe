//! Programs that look: at files, text, processes, the system. What makes some of them write or run is in their tables.

use super::{Judge, Row, awk, sed};
use crate::read::found::{Call, Found};
use crate::read::options;
use crate::read::options::{Does, Operands, Opt, Order, Spec, Takes};
use crate::read::places::Place;
use crate::read::reader::Reader;
use crate::read::shell::Dialect;
use crate::reading::Word;

const OUTPUT: Does = Does::Writes("writes a file");

const fn looks(opts: &'static [Opt]) -> Spec {
    Spec { base: &[], opts, operands: Operands::Ignored }
}

static SORT: Spec = looks(&[
    Opt("o output", Takes::Value, OUTPUT),
    Opt("compress-program", Takes::Value, Does::RunsText("runs a program")),
    Opt("T temporary-directory", Takes::Value, Does::Nothing),
    Opt("k key t field-separator S buffer-size", Takes::Value, Does::Nothing),
]);

static RG: Spec = looks(&[
    Opt("pre", Takes::Value, Does::RunsText("runs a program for each file")),
    Opt("hostname-bin", Takes::Value, Does::RunsText("runs a program")),
    Opt("z search-zip", Takes::Nothing, Does::Nothing),
    Opt("pre-glob pretty", Takes::Nothing, Does::Nothing),
    Opt("e regexp f file g glob A B C m t T type type-not", Takes::Value, Does::Nothing),
]);

static LESS: Spec = Spec {
    base: &[Does::Talks("waits for keys")],
    opts: &[
        Opt("o O log-file LOG-FILE", Takes::Value, OUTPUT),
        Opt(
            "k lesskey-file lesskey-src lesskey-content",
            Takes::Value,
            Does::Mutates("can make keys run commands"),
        ),
        Opt(
            "p pattern P prompt j jump-target x tabs D color b buffers h y z window",
            Takes::Value,
            Does::Nothing,
        ),
    ],
    operands: Operands::Ignored,
};

static MAN: Spec = Spec {
    base: &[],
    opts: &[
        Opt("P pager", Takes::Value, Does::RunsText("runs a program")),
        Opt("H html", Takes::Attached, Does::Mutates("runs a browser")),
        Opt("X gxditview", Takes::Attached, Does::Mutates("runs a viewer")),
        Opt("C config-file", Takes::Value, Does::Mutates("runs what a file says")),
        Opt("p preprocessor", Takes::Value, Does::Nothing),
        Opt("M manpath S s sections e extension L locale m systems r prompt", Takes::Value, Does::Nothing),
    ],
    operands: Operands::Ignored,
};

static DATE: Spec = looks(&[
    Opt("s set", Takes::Value, Does::Escapes("sets the clock of the host")),
    Opt("d date f file r reference", Takes::Value, Does::Nothing),
]);

static BAT: Spec = looks(&[
    Opt(
        "generate-config-file build clear",
        Takes::Nothing,
        Does::Mutates("writes its settings or its cache"),
    ),
    Opt("pager", Takes::Value, Does::RunsText("runs a program")),
    Opt("l language H highlight-line r line-range theme style m map-syntax", Takes::Value, Does::Nothing),
]);

static XXD: Spec = Spec {
    base: &[],
    opts: &[
        Opt("r revert", Takes::Nothing, Does::Mutates("writes bytes")),
        Opt("c cols g groupsize l len s seek o n name", Takes::Value, Does::Nothing),
    ],
    // `xxd IN OUT` writes, with or without options.
    operands: Operands::LastWritten,
};

pub const ROWS: &[Row] = &[
    Row(
        "cat tac nl head tail wc cut paste join comm cmp tr rev fold fmt expand unexpand column od hexdump hd strings \
         grep egrep fgrep zgrep zcat bzcat xzcat zstdcat lz4cat gzcat zmore look mesg tsort pr numfmt seq yes factor \
         ls dir vdir stat readlink realpath basename dirname pathchk du df tty dircolors vis unvis \
         md5sum sha1sum sha224sum sha256sum sha384sum sha512sum b2sum b3sum cksum sum crc32 base64 base32 basenc uuencode \
         whoami id groups users who w logname uname arch nproc uptime free vmstat iostat mpstat lscpu lsblk lsusb lspci \
         lsmod lsof lsns lsattr getfacl getfattr getconf locale ps pgrep pidof pstree pmap cal ncal \
         which whereis whatis apropos locate mlocate plocate printenv expr sleep usleep jq \
         readelf size c++filt addr2line otool tokei loc wdiff colordiff lsdiff \
         pt eza exa lsd figlet cowsay fortune tput clear reset namei findmnt mountpoint \
         errno ascii units uuidgen mcookie md5 shasum dust duf \
         toilet lolcat hostid lslogins lsipc last lastb acpi zipinfo zdump infocmp toe",
        Judge::Looks,
    ),
    Row("sort gsort", Judge::Table(&SORT)),
    Row(
        "shuf",
        Judge::Table(&looks(&[
            Opt("o output", Takes::Value, OUTPUT),
            Opt("n head-count i input-range random-source", Takes::Value, Does::Nothing),
        ])),
    ),
    Row(
        "file",
        Judge::Table(&looks(&[
            Opt("C compile", Takes::Nothing, Does::Mutates("writes a compiled table")),
            Opt("m magic-file f files-from F separator e exclude P parameter", Takes::Value, Does::Nothing),
        ])),
    ),
    Row(
        "pv",
        Judge::Table(&looks(&[
            Opt("o output P pidfile", Takes::Value, OUTPUT),
            Opt(
                "L rate-limit B buffer-size s size N name F format i interval w width H height D delay-start d watchfd",
                Takes::Value,
                Does::Nothing,
            ),
        ])),
    ),
    Row(
        "cloc scc",
        Judge::Table(&looks(&[
            Opt(
                "o out output report-file ignored counted unicode write-lang-def write-lang-def-incl-dup sql",
                Takes::Value,
                OUTPUT,
            ),
            Opt("extract-with vcs config", Takes::Value, Does::Mutates("can run a program")),
            Opt("git git-diff-rel git-diff-all", Takes::Nothing, Does::Mutates("unpacks files to count")),
        ])),
    ),
    Row(
        "diffstat",
        Judge::Table(&looks(&[
            Opt("o", Takes::Value, OUTPUT),
            Opt("n N p w D S", Takes::Value, Does::Nothing),
        ])),
    ),
    Row(
        "xmlwf",
        Judge::Table(&looks(&[Opt("d", Takes::Value, OUTPUT), Opt("e a b", Takes::Value, Does::Nothing)])),
    ),
    // A plugin is loaded and runs.
    Row("nm objdump", Judge::Table(&looks(&[Opt("plugin", Takes::Value, Does::Mutates("loads a library"))]))),
    Row("ldd", Judge::Does(&[Does::Mutates("can run the program it looks at")])),
    Row(
        "ag ack delta procs",
        Judge::Table(&looks(&[
            Opt("pager", Takes::Value, Does::RunsText("runs a program")),
            Opt("ackrc", Takes::Value, Does::Mutates("does what a file says")),
        ])),
    ),
    Row(
        "lastlog sensors",
        Judge::Table(&looks(&[
            Opt("C clear S set s", Takes::Nothing, Does::Escapes("changes what the system keeps")),
            Opt("u user b before t time c config-file", Takes::Value, Does::Nothing),
        ])),
    ),
    Row("tldr cheat", Judge::Does(&[Does::Networks("fetches pages"), Does::Mutates("keeps what it gets")])),
    Row("getent", Judge::By(getent)),
    Row("gron", Judge::By(gron)),
    Row(
        "uniq",
        Judge::Table(&Spec {
            base: &[],
            opts: &[Opt("f skip-fields s skip-chars w check-chars", Takes::Value, Does::Nothing)],
            operands: Operands::LastWritten,
        }),
    ),
    Row("rg ripgrep rga", Judge::Table(&RG)),
    Row("less more most pg", Judge::By(less)),
    Row("man", Judge::Table(&MAN)),
    Row(
        "info",
        Judge::Table(&Spec {
            base: &[Does::Talks("waits for keys")],
            opts: &[
                Opt("o output", Takes::Value, OUTPUT),
                Opt("restore", Takes::Value, Does::Mutates("types what a file says")),
            ],
            operands: Operands::Ignored,
        }),
    ),
    Row("date", Judge::By(date)),
    Row("bat batcat", Judge::Table(&BAT)),
    Row("xxd", Judge::Table(&XXD)),
    Row(
        "tree",
        Judge::Table(&looks(&[
            Opt("o", Takes::Value, OUTPUT),
            Opt("R", Takes::Nothing, Does::Mutates("writes a page in each directory")),
            Opt("L P I H T filelimit charset sort", Takes::Value, Does::Nothing),
        ])),
    ),
    Row(
        "diff sdiff diff3 icdiff difft difftastic",
        Judge::Table(&looks(&[
            Opt("o output", Takes::Value, OUTPUT),
            Opt("diff-program", Takes::Value, Does::RunsText("runs a program")),
            Opt("U C unified context", Takes::Attached, Does::Nothing),
        ])),
    ),
    Row(
        "iconv",
        Judge::Table(&looks(&[
            Opt("o output", Takes::Value, OUTPUT),
            Opt("f t from-code to-code", Takes::Value, Does::Nothing),
        ])),
    ),
    Row(
        "yq",
        Judge::Table(&looks(&[
            Opt("i inplace in-place", Takes::Nothing, Does::Mutates("changes files in place")),
            Opt("s split-exp", Takes::Value, Does::Mutates("writes files")),
            Opt("w write", Takes::Nothing, Does::Mutates("changes files in place")),
        ])),
    ),
    Row(
        "sd",
        Judge::Table(&Spec {
            base: &[Does::Mutates("changes files in place")],
            opts: &[Opt("p preview", Takes::Nothing, Does::Looks)],
            operands: Operands::Ignored,
        }),
    ),
    Row(
        "xmllint",
        Judge::Table(&looks(&[
            Opt("o output", Takes::Value, OUTPUT),
            Opt("shell", Takes::Nothing, Does::Talks("asks for commands")),
        ])),
    ),
    Row("xsltproc", Judge::Table(&looks(&[Opt("o output", Takes::Value, OUTPUT)]))),
    Row(
        "pandoc",
        Judge::Table(&looks(&[
            Opt("o output extract-media log", Takes::Value, OUTPUT),
            Opt(
                "F filter L lua-filter t to w write pdf-engine d defaults",
                Takes::Value,
                Does::Mutates("can run a program"),
            ),
            Opt("f from r read", Takes::Value, Does::Nothing),
        ])),
    ),
    Row(
        "dmesg",
        Judge::Table(&looks(&[
            Opt(
                "C clear c read-clear D console-off E console-on n console-level",
                Takes::Nothing,
                Does::Escapes("changes the kernel's log"),
            ),
            Opt("w W follow", Takes::Nothing, Does::Nothing),
        ])),
    ),
    Row(
        "hostname domainname nisdomainname",
        Judge::By(|call, found, _| {
            let names = call.args.iter().any(|word| !word.shown().starts_with('-'));
            if names || call.args.iter().any(|word| matches!(word.shown(), "-F" | "--file" | "-b" | "--boot"))
            {
                found.mutates("`hostname` renames the host");
                found.escapes("`hostname` renames the host");
            }
        }),
    ),
    Row(
        "top htop btop atop iotop nmon glances bpytop",
        Judge::Does(&[Does::Talks("fills the terminal until it is stopped")]),
    ),
    Row(
        "fzf sk peco gum",
        Judge::Table(&Spec {
            base: &[Does::Talks("asks for a choice")],
            opts: &[Opt(
                "preview bind execute p tmux listen become",
                Takes::Value,
                Does::Mutates("runs commands"),
            )],
            operands: Operands::Ignored,
        }),
    ),
    Row(
        "bc dc",
        Judge::By(|call, found, _| {
            let parsed =
                options::parse(call.args, &[Opt("e expression", Takes::Value, Does::Nothing)], Order::Any);
            let reads = !parsed.operands.is_empty() || parsed.has(&["f", "file"]);
            if call.name == "dc" && (reads || call.args.iter().any(|word| word.shown().contains('!'))) {
                found.mutates("`dc` runs what follows a `!`");
            }
            if call.may_ask() && call.args.is_empty() {
                found.talks(format!("`{}` asks for expressions", call.name));
            } else if call.name == "dc" && !call.may_ask() {
                found.mutates("`dc` runs what follows a `!`");
            }
        }),
    ),
    Row("sed gsed", Judge::By(sed::judge)),
    Row("awk gawk mawk nawk original-awk", Judge::By(awk::judge)),
    Row(
        "vi vim nvim view vimdiff ex rvim gvim ed red nano pico emacs emacsclient micro hx helix kak joe jed mcedit mc ranger lf nnn vifm code subl",
        Judge::By(editor),
    ),
    Row(
        "tmux screen zellij byobu dialog whiptail",
        Judge::Does(&[Does::Mutates("runs what it is told"), Does::Talks("takes the terminal")]),
    ),
];

/// A word without a `+` is a time to set.
fn date(call: &Call<'_>, found: &mut Found, reader: &mut Reader<'_>) {
    options::judge(&DATE, call, found, reader);
    let parsed = options::parse(call.args, DATE.opts, Order::Any);
    let sets = |word: &&Word| word.known().is_some_and(|text| !text.starts_with('+'));
    if parsed.operands.iter().any(sets) {
        found.mutates("`date` sets the clock of the host");
        found.escapes("`date` sets the clock of the host");
    }
}

/// Names of hosts are asked for over the network.
fn getent(call: &Call<'_>, found: &mut Found, _: &mut Reader<'_>) {
    let is_network = |word: &Word| matches!(word.shown(), "hosts" | "ahosts" | "ahostsv4" | "ahostsv6");
    if call.args.len() > 1 && call.args.iter().any(is_network) {
        found.networks("`getent` asks for the address of a host");
    }
}

fn gron(call: &Call<'_>, found: &mut Found, _: &mut Reader<'_>) {
    if call.args.iter().any(|word| word.shown().starts_with("http")) {
        found.networks("`gron` is given an address");
    }
}

/// An editor: with `-c`, `+` or a script it runs commands without anybody.
fn editor(call: &Call<'_>, found: &mut Found, reader: &mut Reader<'_>) {
    found.mutates(format!("`{}` writes files", call.name));
    found.talks(format!("`{}` takes the terminal", call.name));
    for word in call.args {
        // `:!rm x`, `+!rm x`, `-c '!rm x'`.
        let is_command = word.shown().starts_with(['+', ':', '!', '%']);
        if let Some((_, text)) = word.shown().split_once('!').filter(|_| is_command) {
            let text = Word::Known(text.to_owned());
            reader.text(&text, Dialect::Sh);
        } else if !word.shown().starts_with(['-', '+']) {
            let place = reader.places.of(word);
            if place == Place::Outside && call.name != "view" {
                options::writes(&format!("`{}`", call.name), word, found, reader);
            }
        }
    }
}

fn less(call: &Call<'_>, found: &mut Found, reader: &mut Reader<'_>) {
    for word in call.args.iter().filter(|word| word.shown().starts_with('+')) {
        // `+cmd` is typed for the user; `!` and `|` begin a shell command, `s` and `v` write and edit.
        if word.shown().contains(['!', '|', '#', 's', 'v', 'o']) || word.known().is_none() {
            found.mutates("`less +…` can run commands and write files");
        }
        if let Some((_, text)) = word.shown().split_once('!') {
            reader.text(&Word::Known(text.to_owned()), Dialect::Sh);
        }
    }
    options::judge(&LESS, call, found, reader);
}
