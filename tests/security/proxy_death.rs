//! Tried: a way out without the proxy: it is overloaded with connections, or the supervisor that runs it is killed.
//! Stopped by: the proxy is the only way out; when the supervisor dies, everything inside dies.

use crate::env::TestEnv;
use crate::lab::in_lab;

const NAMES: &str = "public.test 93.184.216.34";

/// More connections than the proxy serves at once, held open in the middle of a request; then direct connections, and
/// a valid request.
const DROWN: &str = "
held = []
proxy = os.environ['HTTP_PROXY'].split('//')[1].rstrip('/').rsplit(':', 1)
for n in range(400):
    s = socket.create_connection((proxy[0], int(proxy[1]))); s.sendall(b'CONNECT pub'); held.append(s)
print('held', len(held))
for place in ('93.184.216.34', '93.184.216.1', '10.1.2.3'):
    tried('beside ' + place, lambda: socket.create_connection((place, 80)))
for s in held: s.close()
said('afterwards', connect('public.test:80'))";

#[test]
fn overloaded_proxy_opens_no_other_way_out() {
    let env = TestEnv::with_project();
    let script = |start: &str| format!("{start} python3 -c \"$P\"; :");
    let direct = "tried('beside', lambda: socket.create_connection(('93.184.216.34', 80)))";
    let control = in_lab(&env, NAMES, &script("env"), direct);
    assert_eq!(control.answer.text(), "beside gained\n", "{:?}", control.answer);
    let seen = in_lab(&env, NAMES, &script("\"$RUN\" -q --net allow=public.test --"), DROWN);
    let text = seen.answer.text();
    assert!(text.starts_with("held 400\n"), "{:?}", seen.answer);
    assert_eq!(text.matches(" ENETUNREACH\n").count(), 3, "{:?}", seen.answer);
    assert!(text.ends_with("afterwards public\n"), "{:?}", seen.answer);
}

/// Repeatedly appends to a file outside whether it reached the server. Holds a pipe open as long as it lives.
const GO_ON: &str = "
pipe = open(sys.argv[1] + '/pipe', 'w')
while True:
    try: answer = connect('public.test:80')
    except OSError: answer = b''
    with open(sys.argv[1] + '/log', 'a') as log: log.write('reached\\n' if answer.endswith(b'public') else 'not\\n')";

#[test]
fn command_dies_with_its_supervisor() {
    let env = TestEnv::with_project();
    // The pipe reaches its end when no process inside is left.
    let script = "mkdir $LAB/s; mkfifo $LAB/s/pipe; cat $LAB/s/pipe & reader=$!
        \"$RUN\" -q --rw $LAB/s --net allow=public.test -- python3 -c \"$P\" $LAB/s & run=$!
        until grep -q reached $LAB/s/log 2>/dev/null; do sleep 0.05; done
        kill -9 $run; wait $run 2>/dev/null; wait $reader && echo ended; :";
    let seen = in_lab(&env, NAMES, script, GO_ON);
    // Control: before the kill it reached the server.
    assert!(seen.hits("public") > 0);
    assert_eq!(seen.answer.text(), "ended\n", "{:?}", seen.answer);
}
