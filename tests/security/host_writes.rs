//! Tried: writing to the host system.
//! Stopped by: all host files are mounted read-only; writable directories are private.

use crate::attempt::own_host_command;
use crate::env::TestEnv;

const LINE: &str = "for at in $PLACES; do \
    { [ -d $at ] && touch $at/x || { [ -f $at ] && true >> $at; }; } 2>/dev/null && echo wrote $at; done; \
    touch ~/home-is-writable /tmp/x /var/tmp/x /dev/shm/x && echo private";

#[test]
fn host_files_cannot_be_written() {
    let env = TestEnv::with_project();
    // Control: the same line writes, to directories that the test has mounted over those of the host.
    let own = "for at in /opt /tmp /var/tmp /dev/shm \"$HOME\"; do mkdir -p \"$at\"; mount -t tmpfs t \"$at\"; done; eval \"$LINE\"";
    let mut control = own_host_command(&env, own, "");
    let control = env.answer(control.env("LINE", LINE).env("PLACES", "/opt")).expect(0);
    assert_eq!(control.text(), "wrote /opt\nprivate\n");
    let line = format!(
        "PLACES='/ /usr /etc /opt /bin /proc/sys/kernel/hostname /dev /sys /dev/pts'; {LINE}; \
         touch /etc/x /usr/x 2>/dev/null && echo wrote; :"
    );
    assert_eq!(env.ok(&[], &line), "private\n");
    assert!(!env.at("home/home-is-writable").exists());
    let host = env.ok(&["--profile", "host"], "touch /etc/x /usr/x 2>/dev/null && echo wrote; echo end");
    assert_eq!(host, "end\n");
}
