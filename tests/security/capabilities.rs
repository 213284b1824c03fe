//! Tried: gaining capabilities: as root inside, through an exec, through file capabilities.
//! Stopped by: every set is empty, including the bounding set, and no_new_privs is set.

use crate::attempt::own_host;
use crate::env::TestEnv;

#[test]
fn no_process_inside_has_capabilities() {
    let env = TestEnv::with_project();
    let look = "grep -E '^(Cap|NoNewPrivs|Uid)' /proc/self/status";
    let field = |status: &str, name: &str| {
        let line = status.lines().find(|line| line.starts_with(name)).unwrap_or_else(|| panic!("{status}"));
        line.split_whitespace().nth(1).unwrap().to_owned()
    };
    // Control: a user namespace alone grants all of them.
    let control = own_host(&env, look, "").expect(0).text();
    assert_ne!(field(&control, "CapEff:"), "0000000000000000");
    let status = env.ok(&[], look);
    for set in ["CapInh:", "CapPrm:", "CapEff:", "CapBnd:", "CapAmb:"] {
        assert_eq!(field(&status, set), "0000000000000000", "{set}");
    }
    assert_eq!(field(&status, "NoNewPrivs:"), "1");
    // The same user as outside.
    assert_eq!(field(&status, "Uid:"), rustix::process::geteuid().as_raw().to_string());
    // A child program does not regain any.
    let again = env.ok(&[], "sh -c 'sh -c \"grep ^CapEff /proc/self/status\"'");
    assert_eq!(again.trim(), "CapEff:\t0000000000000000");
}
