//! Tried: running a program that has no file, so that no mount flags apply to it.
//! Stopped by: it runs, and gains nothing: dropped privileges stay dropped across every exec.

use crate::attempt::{inside, own_host};
use crate::env::TestEnv;

const RUN: &str = "
fd = os.memfd_create('hidden', 0)
os.write(fd, open('/bin/grep', 'rb').read())
os.fchmod(fd, 0o6755)
os.execve(fd, ['grep', '-E', '^(CapEff|NoNewPrivs)', '/proc/self/status'], os.environ)";

#[test]
fn program_in_a_memfd_is_confined() {
    let env = TestEnv::with_project();
    let control = own_host(&env, "python3 -c \"$P\"", RUN).expect(0).text();
    assert!(
        !control.contains("CapEff:\t0000000000000000") && control.contains("NoNewPrivs:\t0"),
        "{control}"
    );
    let confined = inside(&env, &[], RUN).expect(0).text();
    assert_eq!(confined, "CapEff:\t0000000000000000\nNoNewPrivs:\t1\n");
}
