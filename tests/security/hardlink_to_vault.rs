//! Tried: a hard link to the vault, or to a host file, in the workspace, to write to it there.
//! Stopped by: the vault is hidden; everything else is on another mount, and hard links cannot cross mounts.

use crate::attempt::{assert_all_gained, assert_nothing_gained, inside, natively};
use crate::env::TestEnv;

#[test]
fn host_files_cannot_be_hard_linked() {
    let env = TestEnv::with_project();
    let other = env.at("other");
    std::fs::write(&other, "precious").unwrap();
    let link = format!(
        "os.mkdir('links')
tried('vault', lambda: os.link('.avfs/vault.db', 'links/vault'))
tried('vault by path', lambda: os.link('{}', 'links/path'))
tried('file', lambda: os.link('{}', 'links/file'))
import shutil; shutil.rmtree('links')",
        env.vault_file().display(),
        other.display()
    );
    let names = ["vault", "vault by path", "file"];
    assert_all_gained(&natively(&env, &link), &names);
    for options in [&[][..], &["--backend", "copy"], &["--profile", "host"], &["--fork", "f"]] {
        assert_nothing_gained(&inside(&env, options, &link), &names);
    }
    // The system files that the workspace sees are on another mount too.
    let system = "tried('link', lambda: os.link('/etc/passwd', 'passwd'))";
    assert_nothing_gained(&inside(&env, &[], system), &["link"]);
    env.assert_sound();
}
