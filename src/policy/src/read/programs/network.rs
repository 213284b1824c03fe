//! Programs that work over the network.

use super::builtins::joined;
use super::{Judge, Row};
use crate::read::found::{Call, Found, shown};
use crate::read::options;
use crate::read::options::{Does, Operands, Opt, Order, Spec, Takes, parse};
use crate::read::reader::Reader;
use crate::read::shell::Dialect;
use crate::reading::Word;

const CONNECTS: Does = Does::Networks("makes connections");
const DOWNLOADS: Does = Does::Writes("writes what it gets");

static CURL: Spec = Spec {
    base: &[CONNECTS],
    opts: &[
        Opt("V version", Takes::Nothing, Does::Looks),
        Opt("o output output-dir", Takes::Value, DOWNLOADS),
        Opt(
            "O remote-name remote-name-all J remote-header-name",
            Takes::Nothing,
            Does::Mutates("writes what it gets"),
        ),
        Opt("K config", Takes::Value, Does::Mutates("does what a file says")),
        Opt(
            "c cookie-jar D dump-header trace trace-ascii libcurl stderr hsts alt-svc etag-save",
            Takes::Value,
            DOWNLOADS,
        ),
        Opt(
            "d data data-raw data-binary data-urlencode X request H header u user A user-agent e referer F form T upload-file b cookie w write-out x proxy m max-time retry connect-timeout E cert key cacert r range Q quote U Y y z C P t",
            Takes::Value,
            Does::Nothing,
        ),
    ],
    operands: Operands::Ignored,
};

pub const ROWS: &[Row] = &[
    Row("curl curlie", Judge::By(curl)),
    Row("wget wget2 aria2c axel lftp lftpget httrack yt-dlp youtube-dl", Judge::By(wget)),
    Row(
        "http https xh xhs httpie",
        Judge::Table(&Spec {
            base: &[CONNECTS],
            opts: &[
                Opt("o output", Takes::Value, DOWNLOADS),
                Opt("d download c continue", Takes::Nothing, Does::Mutates("writes what it gets")),
                Opt("session", Takes::Value, Does::Mutates("writes a session")),
            ],
            operands: Operands::Ignored,
        }),
    ),
    Row("ssh autossh mosh slogin rsh rlogin rexec sshpass", Judge::By(ssh)),
    Row("scp sftp ftp tftp rcp pscp psftp", Judge::By(copies)),
    Row("nc ncat netcat socat", Judge::By(netcat)),
    Row(
        "telnet irssi weechat mutt mail mailx sendmail lynx links w3m elinks",
        Judge::Does(&[
            CONNECTS,
            Does::Mutates("sends or keeps what it is told"),
            Does::Talks("takes the terminal"),
        ]),
    ),
    Row(
        "ping ping6 fping arping dig drill nslookup host traceroute traceroute6 tracepath mtr whois finger dog doggo kdig \
         nmap masscan zmap iperf iperf3 ab wrk siege hping3 dhclient tcpdump tshark ngrep speedtest speedtest-cli ntpdate rdate \
         snmpget snmpwalk ldapsearch smbclient showmount rpcinfo openvpn wg-quick tailscale ngrok cloudflared redis-cli mongo \
         mongosh psql mysql mysqldump pg_dump pg_restore mariadb cqlsh influx kafkacat kcat mosquitto_pub mosquitto_sub grpcurl websocat",
        Judge::By(tool),
    ),
    Row(
        "aws gcloud gsutil az gh glab hub doctl heroku flyctl fly vercel netlify wrangler firebase terraform tofu pulumi ansible ansible-playbook ansible-galaxy vault consul nomad packer eksctl kops oc rclone s3cmd linode-cli hcloud sam serverless cdk railway supabase",
        Judge::By(cloud),
    ),
];

fn curl(call: &Call<'_>, found: &mut Found, reader: &mut Reader<'_>) {
    options::judge(&CURL, call, found, reader);
    // `-w '%output{file}'`.
    if call.args.iter().any(|word| word.shown().contains("%output{")) {
        found.mutates(format!("`{} -w` with `%output` writes a file", call.name));
    }
}

const WGET: &[Opt] = &[
    Opt("O output-document o output-file a append-output P directory-prefix", Takes::Value, Does::Nothing),
    Opt("save-cookies warc-file rejected-log", Takes::Value, Does::Nothing),
    Opt("spider", Takes::Nothing, Does::Looks),
    Opt("use-askpass", Takes::Value, Does::RunsText("runs a program")),
    Opt(
        "e execute i input-file U user-agent t tries T timeout header post-data",
        Takes::Value,
        Does::Nothing,
    ),
];

fn wget(call: &Call<'_>, found: &mut Found, reader: &mut Reader<'_>) {
    found.networks(format!("`{}` makes connections", call.name));
    let parsed = parse(call.args, WGET, Order::Any);
    let to_stdout = parsed
        .value(&["O", "output-document"])
        .is_some_and(|file| matches!(file.shown(), "-" | "/dev/stdout" | "/dev/null"));
    if !to_stdout && !parsed.has(&["spider"]) {
        found.mutates(format!("`{}` writes what it gets", call.name));
    }
    for given in &parsed.given {
        match (&given.value, given.name) {
            (
                Some(file),
                "O" | "output-document" | "o" | "output-file" | "a" | "append-output" | "P"
                | "directory-prefix" | "save-cookies" | "warc-file" | "rejected-log",
            ) if file.shown() != "-" => {
                options::writes(&format!("`{}`", call.name), file, found, reader);
            }
            (_, "e" | "execute" | "use-askpass") => {
                found.mutates(format!("`{} --{}` can run a program", call.name, given.name));
            }
            _ => {}
        }
    }
}

const SSH: &[Opt] = &[
    Opt("o", Takes::Value, Does::Nothing),
    Opt("b B c D E e F I i J L l m O p P Q R S W w", Takes::Value, Does::Nothing),
];

const SCP: &[Opt] = &[Opt("P l i F c J o S X D b R s", Takes::Value, Does::Nothing)];

fn ssh(call: &Call<'_>, found: &mut Found, reader: &mut Reader<'_>) {
    found.networks(format!("`{}` connects to another machine", call.name));
    found.mutates(format!("`{}` acts on another machine", call.name));
    let parsed = parse(call.args, SSH, Order::OptionsFirst);
    for given in parsed.given.iter().filter(|given| given.name == "o") {
        let Some(value) = &given.value else { continue };
        let (key, text) = value.shown().split_once(['=', ' ']).unwrap_or((value.shown(), ""));
        if matches!(key.to_ascii_lowercase().as_str(), "proxycommand" | "localcommand" | "knownhostscommand")
        {
            found.mutates(format!("`ssh -o {}` runs a command here", shown(key)));
            reader.text(&Word::Known(text.to_owned()), Dialect::Sh);
        }
    }
    match parsed.operands.as_slice() {
        [_] if call.may_ask() && !parsed.has(&["N", "f", "T"]) => {
            found.talks("`ssh` starts a shell on another machine");
        }
        [_, command @ ..] if !command.is_empty() => {
            // It is a shell of another machine that runs it; what it does there counts as well.
            let words: Vec<Word> = command.iter().map(|word| (*word).clone()).collect();
            reader.text(&joined(&words), Dialect::Sh);
        }
        _ => {}
    }
}

fn copies(call: &Call<'_>, found: &mut Found, reader: &mut Reader<'_>) {
    found.networks(format!("`{}` copies over the network", call.name));
    found.mutates(format!("`{}` writes files, here or there", call.name));
    let parsed = parse(call.args, SCP, Order::Any);
    for given in parsed.given.iter().filter(|given| matches!(given.name, "S" | "o" | "D")) {
        if let Some(value) = &given.value
            && (given.name == "S" || value.shown().to_ascii_lowercase().contains("command"))
        {
            let text = value.shown().split_once('=').map_or(value.shown(), |(_, text)| text);
            reader.text(&Word::Known(text.to_owned()), Dialect::Sh);
        }
    }
    if let [_, .., last] = parsed.operands.as_slice()
        && !last.shown().contains(':')
    {
        options::writes(&format!("`{}`", call.name), last, found, reader);
    }
    if matches!(call.name, "sftp" | "ftp") && !parsed.has(&["b"]) && call.may_ask() {
        found.talks(format!("`{}` asks for commands", call.name));
    }
}

fn netcat(call: &Call<'_>, found: &mut Found, reader: &mut Reader<'_>) {
    found.networks(format!("`{}` makes connections", call.name));
    found.mutates(format!("`{}` does what the other side says", call.name));
    let mut words = call.args.iter();
    while let Some(word) = words.next() {
        let upper = word.shown().to_ascii_uppercase();
        let exec = ["EXEC:", "SYSTEM:", "SHELL:"].iter().find(|kind| upper.starts_with(*kind));
        match exec {
            Some(kind) => {
                let text = word.shown().get(kind.len()..).unwrap_or("").to_owned();
                reader.text(&Word::Known(text), Dialect::Sh);
            }
            None => {
                if matches!(word.shown(), "-e" | "-c" | "--exec" | "--sh-exec")
                    && let Some(text) = words.next()
                {
                    reader.text(text, Dialect::Sh);
                }
            }
        }
    }
}

/// Asks or measures over the network; files it can write to are named by options.
fn tool(call: &Call<'_>, found: &mut Found, _: &mut Reader<'_>) {
    found.networks(format!("`{}` makes connections", call.name));
    let only_asks = matches!(
        call.name,
        "ping"
            | "ping6"
            | "fping"
            | "dig"
            | "drill"
            | "nslookup"
            | "host"
            | "traceroute"
            | "traceroute6"
            | "tracepath"
            | "whois"
            | "dog"
            | "doggo"
            | "kdig"
            | "mtr"
    );
    if !only_asks {
        found.mutates(format!("`{}` can write and change what it connects to", call.name));
    }
    if call.name == "nmap" && call.args.iter().any(|word| word.shown().starts_with("--script")) {
        found.mutates("`nmap --script` runs a script");
    }
    let asks = ["nslookup", "psql", "mysql", "redis-cli", "mongosh", "mongo", "mariadb", "smbclient"];
    if asks.contains(&call.name) && call.args.is_empty() && call.may_ask() {
        found.talks(format!("`{}` asks for commands", call.name));
    }
}

fn cloud(call: &Call<'_>, found: &mut Found, _: &mut Reader<'_>) {
    let first = call.first().unwrap_or("");
    if matches!(first, "version" | "help" | "--version" | "completion") {
        return;
    }
    if matches!(call.name, "terraform" | "tofu" | "packer")
        && matches!(first, "fmt" | "validate" | "show" | "output" | "graph")
    {
        let is_check = call.args.iter().any(|word| matches!(word.shown(), "-check" | "--check"));
        if matches!(first, "fmt") && !is_check {
            found.mutates(format!("`{} fmt` changes files", call.name));
        }
        if matches!(first, "show" | "output") {
            found.networks(format!("`{} {first}` may ask for a state that is kept elsewhere", call.name));
        }
        return;
    }
    found.networks(format!("`{}` talks to a service", call.name));
    found.mutates(format!("`{}` can change what the service has", call.name));
    if call.args.iter().any(|word| {
        matches!(word.shown(), "delete" | "destroy" | "rm" | "rb" | "terminate" | "purge" | "remove")
    }) {
        found.destroys(format!("`{}` deletes what the service has", call.name));
    }
}
