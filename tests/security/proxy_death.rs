//! Tried: a way out once the proxy is gone: it is drowned in connections, or the supervisor that runs it is killed.
//! Stopped by: the proxy is the only way; with the supervisor everything inside dies.

use crate::env::TestEnv;
use crate::lab::in_lab;

const NAMES: &str = "public.test 93.184.216.34";

/// Many at once, held open and left in the middle; then one that is right, and ways beside the proxy.
const DROWN: &str = "
held = []
proxy = os.environ['HTTP_PROXY'].split('//')[1].rstrip('/').rsplit(':', 1)
for n in range(400):
    try:
        s = socket.create_connection((proxy[0], int(proxy[1])), 1); s.sendall(b'CONNECT pub'); held.append(s)
    except OSError: break
for place in ('93.184.216.34', '93.184.216.1', '10.1.2.3'):
    tried('beside ' + place, lambda: socket.create_connection((place, 80), 2))
for s in held: s.close()
for _ in range(50):
    answer = connect('public.test:80')
    if answer.endswith(b'public'): break
    time.sleep(0.1)
said('afterwards', answer)";

#[test]
fn a_proxy_that_is_drowned_opens_nothing() {
    let env = TestEnv::with_project();
    let script = |start: &str| format!("{start} python3 -c \"$P\"; :");
    let direct = "tried('beside', lambda: socket.create_connection(('93.184.216.34', 80), 5))";
    let control = in_lab(&env, NAMES, &script("env"), direct);
    assert_eq!(control.answer.text(), "beside gained\n", "{:?}", control.answer);
    let seen = in_lab(&env, NAMES, &script("\"$RUN\" -q --net allow=public.test --"), DROWN);
    let text = seen.answer.text();
    assert_eq!(text.matches(" ENETUNREACH\n").count(), 3, "{:?}", seen.answer);
    assert!(text.ends_with("afterwards public\n"), "{:?}", seen.answer);
}

/// Tells what it reaches, again and again, to a file outside.
const GO_ON: &str = "
open(sys.argv[1] + '/begun', 'w').close()
while True:
    try: answer = connect('public.test:80')
    except OSError: answer = b''
    with open(sys.argv[1] + '/log', 'a') as log: log.write('reached\\n' if answer.endswith(b'public') else 'not\\n')";

#[test]
fn without_its_supervisor_nothing_goes_on() {
    let env = TestEnv::with_project();
    let script = "mkdir $LAB/s; \"$RUN\" -q --rw $LAB/s --net allow=public.test -- python3 -c \"$P\" $LAB/s & run=$!
        until grep -q reached $LAB/s/log 2>/dev/null; do sleep 0.05; done
        kill -9 $run; wait $run 2>/dev/null; sleep 0.5; a=$(wc -c < $LAB/s/log); sleep 1; b=$(wc -c < $LAB/s/log)
        [ $a = $b ] && echo ended || echo went on; :";
    let seen = in_lab(&env, NAMES, script, GO_ON);
    // Control: until then it reached the server.
    assert!(seen.hits("public") > 0);
    assert_eq!(seen.answer.text(), "ended\n", "{:?}", seen.answer);
}
