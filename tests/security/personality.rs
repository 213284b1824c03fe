//! Tried: making readable memory executable, and mapping page zero, for an easier exploit.
//! Stopped by: the filter allows only the usual values of personality(2).

use crate::attempt::{assert_all_gained, assert_nothing_gained, inside, natively};
use crate::env::TestEnv;

const CHANGE: &str = "
number = 135 if X86 else 92
call(number, 0xffffffff)
tried('executable', lambda: call(number, 0x0400000))
tried('page zero', lambda: call(number, 0x0100000))";
const NAMES: [&str; 2] = ["executable", "page zero"];

#[test]
fn unusual_personalities_are_refused() {
    let env = TestEnv::with_project();
    assert_all_gained(&natively(&env, CHANGE), &NAMES);
    assert_all_gained(&inside(&env, &["--seccomp", "off"], CHANGE), &NAMES);
    for options in [&[][..], &["--seccomp", "strict"]] {
        assert_nothing_gained(&inside(&env, options, CHANGE), &NAMES);
    }
}
