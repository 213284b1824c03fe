//! A small private internet for attempts on the allow list: a public server, private servers, and a name server that
//! answers as an attempt requires.
//!
//! All of it is in network namespaces that the test makes: no packet leaves them, however far an attempt gets.

use std::collections::BTreeMap;

use crate::attempt::own_host_command;
use crate::env::{Answer, TestEnv};

/// An ordinary public address; it belongs to the laboratory, in a namespace beside the host.
pub const PUBLIC: &str = "93.184.216.34";

/// The private addresses are on the host itself; the public one is behind a pair of interfaces.
const SET_UP: &str = r#"set -e
ip link set lo up
ip addr add 169.254.169.254/32 dev lo
ip addr add 10.1.2.3/32 dev lo
printf 'nameserver 127.0.0.1\noptions timeout:30 attempts:1\n' > "$LAB/resolv.conf"
printf 'hosts: files dns\n' > "$LAB/nsswitch.conf"
printf '127.0.0.1 localhost\n' > "$LAB/hosts"
for name in resolv.conf nsswitch.conf hosts; do mount --bind "$LAB/$name" "$(realpath /etc/$name)"; done
unshare -n sleep 1000 & peer=$!
until [ "$(readlink /proc/$peer/ns/net)" != "$(readlink /proc/self/ns/net)" ]; do sleep 0.01; done
ip link add v0 type veth peer name v1
ip link set v1 netns $peer
ip addr add 93.184.216.1/24 dev v0
ip link set v0 up
nsenter -t $peer -n sh -c 'ip addr add 93.184.216.34/24 dev v1; ip link set v1 up; ip link set lo up'
mkfifo "$LAB/end-public" "$LAB/end-private"
nsenter -t $peer -n python3 -c "$SERVERS" "$LAB" public 93.184.216.34 & servers=$!
python3 -c "$SERVERS" "$LAB" private 127.0.0.1 169.254.169.254 10.1.2.3 ::1 & servers="$servers $!"
python3 -c "$NAMES" "$LAB" &
for name in public private names; do while [ ! -e "$LAB/ready-$name" ]; do sleep 0.01; done; done
set +e
"#;

/// Afterwards every connection that was made is in the file of hits.
const TAKE_DOWN: &str = r#"
for name in public private; do : > "$LAB/end-$name"; done
wait $servers
"#;

/// One server on port 80 of each address. It writes the data it receives as a line of a file before it answers; data
/// after the answer is another line. A server ends with the connection that sends `END`, which comes after all others.
const SERVERS: &str = r#"
import os, socket, sys, threading
lab, name, addresses = sys.argv[1], sys.argv[2], sys.argv[3:]
def write(line):
    with open(f'{lab}/hits', 'a') as hits: hits.write(line)
def serve(listener, address):
    while True:
        connection, _ = listener.accept()
        try: heard = connection.recv(65536)
        except OSError: heard = b''
        if heard == b'END': return
        write(f'{name} {address} {heard!r}\n')
        more = b''
        try:
            connection.sendall(b'HTTP/1.1 200 OK\r\nContent-Length: ' + str(len(name)).encode() + b'\r\nConnection: close\r\n\r\n' + name.encode())
            connection.shutdown(socket.SHUT_WR)
            while part := connection.recv(65536): more += part
        except OSError: pass
        connection.close()
        if more: write(f'{name} {address} {more!r}\n')
for address in addresses:
    listener = socket.socket(socket.AF_INET6 if ':' in address else socket.AF_INET)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    listener.bind((address, 80)); listener.listen(64)
    threading.Thread(target=serve, args=(listener, address)).start()
open(f'{lab}/ready-{name}', 'w').close()
open(f'{lab}/end-{name}').read()
for address in addresses: socket.create_connection((address, 80)).sendall(b'END')
"#;

/// Answers from a file of `NAME ANSWER ANSWER…`: each query gets the next answer; the last one repeats. An answer is
/// addresses joined by `+`.
const NAMES: &str = r#"
import socket, struct, sys
lab = sys.argv[1]
table = {}
for line in open(f'{lab}/names'):
    name, *answers = line.split()
    table[name] = answers
asked = {}
server = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
server.bind(('127.0.0.1', 53))
open(f'{lab}/ready-names', 'w').close()
while True:
    query, client = server.recvfrom(4096)
    labels, at = [], 12
    while query[at]:
        labels.append(query[at + 1:at + 1 + query[at]].decode()); at += 1 + query[at]
    question = query[12:at + 5]
    kind = struct.unpack('>H', query[at + 1:at + 3])[0]
    name = '.'.join(labels).lower()
    answers = table.get(name, [])
    # Queries for A and AAAA are counted separately: a lookup sends both.
    turn = asked[name, kind] = asked.get((name, kind), -1) + 1
    chosen = answers[min(turn, len(answers) - 1)].split('+') if answers else []
    records = b''
    count = 0
    for address in chosen:
        six = ':' in address
        if kind != (28 if six else 1): continue
        data = socket.inet_pton(socket.AF_INET6 if six else socket.AF_INET, address)
        records += b'\xc0\x0c' + struct.pack('>HHIH', kind, 1, 0, len(data)) + data
        count += 1
    code = 0x8180 if answers else 0x8183
    server.sendto(query[:2] + struct.pack('>HHHHH', code, 1, count, 0, 0) + question + records, client)
"#;

/// Prefix of the programs of attempts: talks to the proxy directly.
pub const CLIENT: &str = r#"
import socket
def raw(data):
    proxy = os.environ['HTTP_PROXY'].split('//')[1].rstrip('/').rsplit(':', 1)
    s = socket.create_connection((proxy[0], int(proxy[1])))
    answer = b''
    try:
        s.sendall(data)
        while part := s.recv(65536): answer += part
    except OSError: pass
    s.close()
    return answer
def connect(place): return raw(f'CONNECT {place} HTTP/1.1\r\nHost: {place}\r\n\r\nGET / HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n'.encode())
def fetch(address): return raw(f'GET {address} HTTP/1.1\r\nHost: x\r\n\r\n'.encode())
def said(name, answer):
    status = answer.split(b'\r\n')[0].decode(errors='replace').split(' ')[1:2]
    print(name, 'private' if answer.endswith(b'private') else 'public' if answer.endswith(b'public') else ''.join(status) or 'closed', flush=True)
"#;

/// The result of an attempt in the laboratory.
pub struct Seen {
    pub answer: Answer,
    /// Lines that the servers received, by server.
    pub hits: BTreeMap<String, Vec<String>>,
}

impl Seen {
    pub fn hits(&self, server: &str) -> usize {
        self.hits.get(server).map_or(0, Vec::len)
    }
}

/// Runs a script in the laboratory; `names` is the table of the name server. `$RUN` and `$P` as in `own_host`.
#[track_caller]
pub fn in_lab(env: &TestEnv, names: &str, script: &str, text: &str) -> Seen {
    let lab = tempfile::Builder::new().prefix("lab-").tempdir_in(env.at("")).unwrap().keep();
    std::fs::write(lab.join("names"), names).unwrap();
    let mut command =
        own_host_command(env, &format!("{SET_UP}{script}{TAKE_DOWN}"), &format!("{CLIENT}{text}"));
    command.env("LAB", &lab).env("SERVERS", SERVERS).env("NAMES", NAMES);
    let answer = env.answer(&mut command);
    let mut hits: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for line in std::fs::read_to_string(lab.join("hits")).unwrap_or_default().lines() {
        let (server, rest) = line.split_once(' ').unwrap();
        hits.entry(server.to_owned()).or_default().push(rest.to_owned());
    }
    Seen { answer, hits }
}
