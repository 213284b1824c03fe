//! The oracle with lines that everyday programs and scripts consist of. Each has the same exit status, the same output
//! and the same effects as outside.
//!
//! No line depends on the order of two writes within one tick of the clock of file times, or on the order of output
//! from concurrent processes: these differ between two executions outside, too.

use crate::env::TestEnv;
use crate::oracle::{Ends, Trial, WAYS, Way};
use crate::support::is_long;

/// Each line in a separate run on one fork.
fn ways() -> Vec<Way<'static>> {
    if is_long() { WAYS[6..].to_vec() } else { WAYS[6..8].to_vec() }
}

/// The tree that each line finds in its working directory.
fn tree(env: &TestEnv, dir: usize) {
    for (path, content) in [
        ("a", "one\ntwo\nthree\n"),
        ("b", "3\n1\n2\n"),
        ("closed", "read only\n"),
        ("d/a", "in d\n"),
        ("d/e/f", "deep\n"),
        ("g/h", "other\n"),
        ("run", "#!/bin/sh\necho ran \"$@\"\n"),
        ("Makefile", "out: a b\n\tcat a b > out\nclean:\n\trm -f out\nfails:\n\t@exit 3\n"),
    ] {
        env.put(&format!("{dir}/{path}"), content.as_bytes());
    }
    let at = env.project().join(dir.to_string());
    std::fs::create_dir(at.join("empty")).unwrap();
    std::os::unix::fs::symlink("d/a", at.join("to-a")).unwrap();
    let mode = |path: &str, mode| {
        std::fs::set_permissions(at.join(path), std::os::unix::fs::PermissionsExt::from_mode(mode)).unwrap();
    };
    mode("closed", 0o444);
    mode("run", 0o755);
}

/// Each line runs in its own directory.
#[track_caller]
fn agree_on(lines: &[&str]) {
    agree_except(&[], lines);
}

#[track_caller]
fn agree_except(of_the_host: &[&str], lines: &[&str]) {
    let fixture = |env: &TestEnv| {
        (0..lines.len()).for_each(|dir| tree(env, dir));
        std::fs::copy("/bin/cat", env.project().join("prog")).unwrap();
    };
    let lines: Vec<String> =
        lines.iter().enumerate().map(|(dir, line)| format!("cd {dir} || exit\n{line}")).collect();
    Trial { fixture: &fixture, lines: &lines, of_the_host, ends: Ends::Alike }.agrees(&ways());
}

#[test]
fn redirections() {
    agree_on(&[
        "echo one > new; echo two >> new; cat < new; cat new missing 2> err; cat err; : > a; wc -c < a",
        "exec 3> out; echo three >&3; exec 3>&-; exec 4<> b; read -r line <&4; echo $line; echo more >&4; cat b",
        "{ echo out; echo err >&2; } > both 2>&1; cat both; echo to stderr >&2",
        "set -C; (echo x > a); echo $?; echo y >| a; cat a",
        "cat <<E > h; cat <<'Q' >> h; cat h\n$((1 + 2)) $(cat b)\nE\n$HOME\nQ",
        "echo lost > missing/f; echo $?; cat < missing; echo $?; ls missing; echo x > d; echo $?; echo y > closed",
        "tee -a a b <<E\nmore\nE\necho x | tee closed new; echo $?",
        "exec 3< a; echo changed > a; cat <&3; exec 3>> b; mv b c; echo more >&3; cat c",
        "exec 3< a; rm a; cat <&3; exec 4> gone; rm gone; echo x >&4; cat /dev/fd/4; cat /proc/self/fd/3 | wc -l",
        "echo x | cat /dev/stdin; echo y | tee /dev/stderr /dev/fd/1; cat /dev/fd/3 3< a; echo z > /dev/stdout",
        "bash -c 'diff <(echo a) <(echo b); cat < <(echo in); cat <<< here; set -o pipefail; false | true'",
        "echo x > /dev/null; echo full > /dev/full; echo $?; head -c 5 /dev/zero | od -c; head -c 9 /dev/urandom | wc -c",
        "mkfifo p; cat p & echo through > p; wait; stat -c '%F %a' p; sh -c 'echo two > p' & read -r x < p; wait; echo $x",
    ]);
}

#[test]
fn processes_and_exit_codes() {
    agree_on(&[
        "(exit 3) & wait $!; echo $?; for i in 1 2 3; do echo $i > bg$i & done; wait; cat bg1 bg2 bg3; exit 255",
        "trap 'echo bye; rm -f a' EXIT; echo hi; exit 7",
        "trap 'echo got; exit 5' TERM; kill -TERM $$; echo never",
        "kill -KILL $$",
        "trap '' INT; kill -INT $$; echo ignored; sh -c 'kill -INT $$'; echo $?; exec sh -c 'kill -USR1 $$'",
        "sh -c 'kill -SEGV $$'; echo $?; sh -c 'kill -TERM $$'; echo $?; kill -0 $$; echo $?; kill -0 4000000",
        "yes | head -n 3; bash -c 'yes | head -n 1; echo ${PIPESTATUS[*]}'; x=$(false); echo $?; ! true; echo $?",
        "nosuchcommand; echo $?; ./a; echo $?; ./missing; echo $?; ./run x 'y z'; printf '#!/nowhere\\n' > s; chmod +x s; ./s",
        "umask; umask 077; echo x > f; mkdir m; mkfifo p; stat -c '%a %n' f m p; umask 0; touch g1; stat -c %a g1",
        "seq 20 | xargs -P 4 -n 5 sh -c 'echo $0 $* > p$0'; cat p1 p6 p11 p16; echo a b | xargs -n 1 test -e; echo x | xargs false; echo $?",
        "setsid -w sh -c 'echo in; exit 4'; echo $?; nice -n 5 nice; timeout 60 sh -c 'exit 9'; echo $?; env -i /bin/sh -c 'echo $PATH'",
        "cd d/e; cd ..; pwd; echo $PWD $OLDPWD; cd -; pwd -P; cd ../../missing; cd ../../a; readlink /proc/self/cwd",
        "cat /proc/self/comm; tr '\\0' ' ' < /proc/self/cmdline; readlink /proc/self/fd/3 3< a; ls /proc/self/fd",
        "set -eu; false || echo caught; (set +e; false; echo on); echo $MISSING; echo never",
        "id -u; id -g; whoami; tty; test -t 0; echo $?; uname -sm; getconf PAGESIZE; nproc; umask -S; date +%Z",
        "ulimit -n; ulimit -c; ulimit -s; ulimit -f; ulimit -v; readlink /proc/self/fd/0",
        "flock lock sh -c 'flock -n lock echo again || echo busy'; flock -n lock echo free; flock -n d echo dir",
        "exec 9> lock; flock 9; (flock -n lock true; echo $?); exec 9>&-; flock -n lock true; echo $?",
        "mkfifo p q; ../prog < p > q & exec 3> p 4< q; echo go >&3; read -r x <&4; echo x > ../prog; echo $?; exec 3>&-; wait; echo x > ../prog; echo $?",
        "for s in HUP INT QUIT ILL ABRT FPE SEGV PIPE ALRM TERM USR1 USR2 BUS XCPU SYS; do sh -c \"kill -$s \\$\\$\"; echo $s $?; done 2>&1",
        "setsid -w sh -c 'kill -INT 0'; echo $?",
        "exec sh -c 'kill -ABRT $$'",
        "exec nosuchcommand",
        "exec ./a",
        "exec 1>&-; echo x; echo $? >&2",
        "exec 0<&-; cat; echo $?",
        "printf 'no newline'; exec 2>&-; echo lost >&2; echo $?; ls missing",
        "printf '#!/usr/bin/env -S sh -e\\necho s\\nfalse\\necho never\\n' > s; chmod +x s; ./s; echo $?; echo 'echo n' > n; chmod +x n; ./n; env ./n; echo $?",
        "bash -c 'set -m; (exit 4) & wait -n; echo $?; trap \"echo err \\$?\" ERR; false; mapfile -t l < a; echo ${#l[@]}; exec {fd}<a; cat <&$fd; coproc cat; echo hi >&${COPROC[1]}; read -r -u ${COPROC[0]} x; echo $x'",
        "ulimit -f 1; head -c 100000 /dev/zero > big; echo $?; stat -c %s big; ulimit -v 200000; python3 -c 'x = bytearray(10**9)'; echo $?",
        "nohup sh -c 'echo nohup' > out; cat out; env -u HOME sh -c 'echo ${HOME-unset}'; script -qec 'test -t 0 && echo tty; exit 3' /dev/null; echo $?",
    ]);
}

#[test]
fn files_are_written_and_listed() {
    agree_on(&[
        "find . -type f | sort; find . -name a -exec sed -i s/n/N/ {} +; find d -type f -print0 | xargs -0 cat",
        "find . -newer a | sort; find . -perm 755 -type f; find . -empty; find . -size +1k; find g -depth -delete; ls",
        "sed -i.bak s/one/ONE/ a; cat a.bak; sed -i 1d a b d/a; cat a b; sed -i s/in/out/ to-a; readlink to-a; cat d/a",
        "sed -i --follow-symlinks s/in/out/ to-a; readlink to-a; cat d/a; sed -i s/read/write/ closed; stat -c %a closed",
        "sort -o a a; cat a; sort -n -o b b; cat b; sort -u a b -o c; split -l 1 b part-; ls; cat part-a? | paste -s",
        "dd if=b of=a bs=1 seek=2 count=2 conv=notrunc status=none; cat a; dd if=a of=c bs=2 skip=1 2>&1 | head -n 2",
        "truncate -s 100 a; truncate -s -1 b; truncate -s 0 d/a; truncate -s 1M holes; stat -c '%s %n' a b d/a holes; truncate -c -s 1 no",
        "fallocate -l 4096 f; stat -c %s f; fallocate -p -o 0 -l 4096 f; cmp -n 4096 f /dev/zero; fallocate -l 100 a; wc -c a",
        "stat -c '%A %U %G %F %h %n' * | sort; ls -lA --time-style=+%Y | sed 1d; ls -laR d | wc -l; wc a b",
        "[ a -nt b ]; echo $?; [ a -ot b ]; echo $?; ln a h; echo n > n; ln n m; [ n -ef m ]; echo $?; for x in s x w L d p; do test -$x to-a; echo $?; done",
        "t=$(mktemp -p .); stat -c '%a %s' $t; mv $t made; t=$(mktemp -d); stat -c %a $t; echo x > $t/f; cp $t/f .; rm -r $t",
        "perl -pi -e 's/one/1/' a; cat a; perl -i.orig -ne 'print if /2/' b; cat b b.orig; awk '{ print > ($1 \".out\") }' a; ls",
        "for i in $(seq 300); do echo $i > f$i; done; for f in f*; do mv $f x$f; done; ls | wc -l; find . -name 'xf*' -exec rm {} \\;; ls",
        "p=.; for i in $(seq 120); do p=$p/dir$i; done; mkdir -p $p; echo deep > $p/f; cp -a dir1 copy; rm -r dir1; find copy -depth -delete; ls",
        "mv a A; touch -- -x; mv -- -x ./-y; touch \"$(printf 'new\\nline')\" 'a space' \"$(printf 'caf\\303\\251 \\377')\"; ls -b; rm ./-y",
        "exec 4< d; ls /proc/self/fd/4; exec 3<> a; head -c 4 <&3; echo X >&3; cat a; cat a > a; wc -c a; cat b >> b; wc -c b",
        "cp --sparse=always b e; cp --preserve=all d/a g/x; cp --attributes-only a at; cp --backup=numbered a b; cp -t g a b; cp -i a b; cp --remove-destination b closed; ls -R; stat -c '%a %s %n' e at closed",
        "perl -e 'rename \"b\", \"b2\"; mkdir \"m\", 0700; symlink \"x\", \"y\"; print -s \"a\", -l \"y\"; utime 5, 6, \"a\"; print((stat \"a\")[8, 9]); opendir D, \".\"; print sort readdir D; truncate \"a\", 3; exec \"false\"'",
        "sha256sum a b d/a > sums; sha256sum -c sums; echo x >> a; sha256sum -c sums; cksum b; cmp a b; diff a b",
        "cp a c; echo four >> c; diff -u --label a --label b a c > p; cat p; patch a < p; patch -R a < p; patch a < missing",
    ]);
}

#[test]
fn names_and_modes_are_changed() {
    agree_on(&[
        "ln a hard; ln -s a soft; ln -sf b soft; ln -sr d/a rel; ln a b; ln -f a b; ln d dir; stat -c '%h %n' a b hard; readlink soft rel",
        "cp -a d copy; cp -p a pa; cp -r d d2; cp -l a hl; cp -s a sl; cp --parents d/e/f g; cp d x; cp -n a b; cp -f a closed; cp b closed; cat closed",
        "cp -a . ../all; cp -a to-a t2; cp -L to-a t3; cp a a; cp a b g; cp a b missing; ls g; mv ../all .",
        "mv a renamed; mv -n b renamed; mv renamed d; mv d/e empty; mv -T g/h b; mv empty d; mv d d/below; mv missing x; find . | sort",
        "mv -T d empty; ls empty; mv -T empty g; mv g a; mv a g; ls g; mv -b b run; ls; mv g/h g/../h; rmdir g",
        "mkdir -p x/y/z; mkdir -m 700 m; mkdir a; mkdir x/y; rmdir d; rmdir -p x/y/z; rm d; rm -r d; rm -f missing; rm missing; rm -d empty",
        "chmod 600 a; chmod -x run; ./run; chmod u=rwx,g=rx,o= run; ./run; chmod -R go-w .; chmod +t empty; chmod 2755 g; mkdir g/in; stat -c '%a %n' * g/in",
        "chmod 000 a; cat a; chmod 555 d; touch d/new; rm d/a; mv d/a x; chmod 755 d; chmod 666 a; chmod 4755 run; stat -c %A run; echo x >> run; stat -c %A run",
        "install -m 640 a made; install -d p/q; install -D b r/s/t; install -b a b; stat -c '%a %n' made p/q r/s/t b b~; install a missing/x",
        "touch -d '2020-01-02 03:04:05.6' a new d; touch -r a b; touch -a -d @5 g/h; touch -m -d @6 run; touch -c no; touch -h -d @7 to-a; stat -c '%X %Y %n' a b d g/h to-a; stat -c %Y run",
        "cd d; rm -r ../d; pwd; ls; touch x; cd ..; echo $?; ls -d d",
        "ln -s loop loop; cat loop; stat -L loop; cd loop; ln -s . self; ls self/self/a; ln -s missing dangling; echo x > dangling; cat missing; readlink -e no; ln -P to-a of-link; stat -c '%F %h' of-link",
        "unlink a; unlink d; rm -rf .; echo $?; rm -i b < /dev/null; rm -v b; shred -u -n 1 g/h; ls; ln closed l2; rm -f closed; cat l2; stat -c '%a %h' l2",
        "mkdir ro; chmod 555 ro; touch ro/x; mv a ro; ln b ro/b; cp a ro/; chmod 311 d; ls d; cat d/a; chmod 644 d; ls d; cat d/a; chmod 755 d; chmod 0 g; rm -rf g; chmod 755 g; chmod u-w .; touch n; rm a; chmod u+w .",
        "umask 027; mkdir -p x/y; mkdir -p -m 711 z/w; cp -r d dd; cp run i; touch t; stat -c '%a %n' x x/y z z/w dd dd/a i t; chmod g+s d; mkdir d/s; touch d/f; chmod -R u+rwX,go-rwx d; stat -c '%a %n' d d/s d/f; chmod --reference=a b; umask -S u=rwx; umask",
        "chown $(id -u):$(id -g) a; echo $?; chgrp $(id -g) b; chown -h $(id -u) to-a; echo $?; tar cf t.tar --owner=12345 --group=23456 a d; mkdir o; tar xf t.tar -C o --no-same-owner; ls o; rm t.tar",
        "tar cf t.tar a d to-a; tar tvf t.tar; rm -r a d; tar xf t.tar; cat d/a; tar xOf t.tar a; tar xf t.tar missing; tar czf - d | tar xzf - -C g; rm t.tar",
        "gzip -n a; ls; gzip -dc a.gz; gunzip a.gz; gzip -t a",
        "rsync -a --delete d/ g/; rsync -a a b h/; ls g h; rsync -aH --remove-source-files h/ i/; find h i | sort",
        "python3 -c \"import os, shutil\nfor call in (lambda: os.rename('d', 'g'), lambda: os.rename('d', 'empty'), lambda: os.rename('a', 'g'), lambda: os.rename('g', 'a'), lambda: os.replace('a', 'b'), lambda: os.link('b', 'l'), lambda: os.rmdir('g'), lambda: os.unlink('g'), lambda: os.truncate('closed', 1), lambda: os.symlink('x', 'b'), lambda: shutil.move('g', 'moved'), lambda: shutil.copytree('moved', 'c'), lambda: shutil.rmtree('moved'), lambda: os.removedirs('c')):\n    try: call(); print('done')\n    except OSError as e: print(e)\"",
    ]);
}

#[test]
fn system_calls() {
    let exchange = "import ctypes, errno, os
libc = ctypes.CDLL(None, use_errno=True)
def rename(a, b, flags):
    failed = libc.renameat2(-100, a.encode(), -100, b.encode(), flags)
    print(a, b, flags, failed, errno.errorcode[ctypes.get_errno()] if failed else '')
for names in (('a', 'b', 1), ('a', 'b', 2), ('a', 'd', 2), ('d', 'x', 1), ('x', 'no', 2), ('g', 'empty', 2), ('to-a', 'closed', 2), ('b', 'b', 2)):
    rename(*names)
for path, dirs, files in sorted(os.walk('.')): print(path, sorted(dirs), sorted(files))";
    let watch = "import ctypes, os, struct
libc = ctypes.CDLL(None)
fd = libc.inotify_init1(os.O_NONBLOCK)
for path in ('.', 'a', 'd'): libc.inotify_add_watch(fd, path.encode(), 0xfff)
def events():
    try: got = os.read(fd, 65536)
    except BlockingIOError: return print('none')
    while got:
        watched, mask, cookie, length = struct.unpack_from('iIII', got)
        print(watched, hex(mask), got[16:16 + length].rstrip(bytes(1))); got = got[16 + length:]
events(); open('a', 'a').write('x'); events(); os.rename('b', 'c'); events(); os.unlink('c'); events()
open('d/n', 'w').close(); events(); os.chmod('a', 0o600); os.rename('d/n', 'n'); events(); os.unlink('a'); events()";
    let files = "import fcntl, mmap, os
f = open('a', 'r+b'); g = open('a', 'rb'); m = mmap.mmap(f.fileno(), 0)
m[0:3] = b'MMM'; print(g.read()); f.write(b'W'); f.flush(); print(m[:3])
os.ftruncate(f.fileno(), 5); print(os.stat('a').st_size, os.fstat(g.fileno()).st_size)
old = os.open('b', os.O_RDONLY); fcntl.flock(old, fcntl.LOCK_EX | fcntl.LOCK_NB)
new = os.open('b', os.O_RDWR)
try: fcntl.flock(new, fcntl.LOCK_EX | fcntl.LOCK_NB)
except OSError as error: print(error)
fcntl.lockf(new, fcntl.LOCK_EX | fcntl.LOCK_NB); os.lseek(new, 0, 2); os.write(new, b'more'); print(os.read(old, 100))
print(os.fstat(old).st_ino == os.stat('b').st_ino); os.fchmod(old, 0o640); os.fsync(old)
d = os.open('d', os.O_RDONLY); os.mkdir('x', dir_fd=d); os.rename('a', 'y', dst_dir_fd=d); print(sorted(os.listdir(d))); os.fsync(d)";
    let errors = "import os
def tried(call):
    try: print(call())
    except OSError as error: print(error)
for flags in (os.O_DIRECT, os.O_NOATIME, os.O_WRONLY | os.O_SYNC, os.O_CREAT | os.O_EXCL, os.O_DIRECTORY): tried(lambda: os.close(os.open('a', flags)))
for names in (('.', 'z'), ('d', 'd'), ('d', 'd/e/x'), ('d/e/f', 'd'), ('a', 'q/'), ('d', 'nd/'), ('nd', 'd')): tried(lambda: os.rename(*names))
for path in ('a/', 'n' * 256, '', 'closed/x', 'missing/x'): tried(lambda: open(path))
for path in ('a', '.', 'd/..', 'empty/', 'g'): tried(lambda: os.rmdir(path))
for name, value in (('user.k', b'v'), ('user.big', b'v' * 70000), ('trusted.k', b'v'), ('other', b'v')): tried(lambda: os.setxattr('b', name, value))
tried(lambda: os.setxattr('closed', 'user.k', b'v')); tried(lambda: os.setxattr('b', 'user.k', b'w', os.XATTR_CREATE)); tried(lambda: os.listxattr('b'))
tried(lambda: os.mknod('made', 0o100640)); tried(lambda: os.mknod('null', 0o020644, os.makedev(1, 3))); tried(lambda: os.link('to-a', 'l', follow_symlinks=False))
tried(lambda: os.utime('a', ns=(123456789012345678, 987654321098765432))); tried(lambda: os.utime('b', (-5, -5))); tried(lambda: os.stat('b').st_mtime)
tried(lambda: os.truncate('a', 2**40)); tried(lambda: os.lseek(os.open('a', 0), 9000, os.SEEK_DATA)); os.truncate('a', 10); tried(lambda: os.chroot('.'))";
    let others = "import multiprocessing, os, pty, signal, socket, subprocess
s = socket.socket(socket.AF_UNIX); s.bind('sock'); s.listen(); c = socket.socket(socket.AF_UNIX); c.connect('sock'); c.send(b'unix'); print(s.accept()[0].recv(9)); os.unlink('sock')
a, b = socket.socketpair(); socket.send_fds(a, [b'x'], [os.open('a', 0)]); print(os.read(socket.recv_fds(b, 1, 1)[1][0], 3))
t = socket.socket(); t.bind(('127.0.0.1', 0)); t.listen(); c = socket.create_connection(t.getsockname()); c.send(b'tcp'); print(t.accept()[0].recv(9))
print(subprocess.run(['sh', '-c', 'kill -9 $$']).returncode, subprocess.run('exit 300', shell=True).returncode)
with multiprocessing.Pool(3) as pool: print(pool.map(abs, [-1, 2, -3]))
pid, fd = pty.fork()
if pid == 0: os.execlp('sh', 'sh', '-c', 'test -t 0 && echo tty')
print(os.read(fd, 99), os.waitpid(pid, 0)[1])
signal.signal(signal.SIGALRM, lambda *_: print('alarm')); signal.setitimer(signal.ITIMER_REAL, 0.001); signal.pause()
r, w = os.pipe(); print(os.splice(os.open('a', 0), w, 5), os.read(r, 9), os.pidfd_open(os.getpid()) > 0, os.eventfd_read(os.eventfd(3)))
m = os.memfd_create('m'); os.write(m, b'memory'); print(os.pread(m, 9, 0), os.getpriority(0, 0), os.sched_getaffinity(0), os.getgroups())";
    let lines = [exchange, watch, files, errors, others]
        .map(|script| format!("cat > t.py <<'E'\n{script}\nE\npython3 t.py"));
    agree_on(&lines.each_ref().map(String::as_str));
}

#[test]
fn tools_of_developers() {
    let who = "export GIT_AUTHOR_NAME=a GIT_AUTHOR_EMAIL=a@b GIT_COMMITTER_NAME=a GIT_COMMITTER_EMAIL=a@b \
               GIT_AUTHOR_DATE='1700000000 +0000' GIT_COMMITTER_DATE='1700000000 +0000' GIT_CONFIG_NOSYSTEM=1 \
               GIT_CONFIG_GLOBAL=/dev/null";
    let git = [
        "git init -b main; git add .; git commit -m first; git status; echo x >> a; git diff; git commit -am two; git log --oneline",
        "git init -q -b main; git add a d; git commit -qm one; git checkout -b side; rm -r d; echo s > a; git commit -am side; git checkout main; git merge side; git status --short",
        "git init -q -b main; git add .; git commit -qm one; echo 1 > a; git stash; git stash pop; git mv b c; git rm -q d/a; git status --short; git reset --hard; git clean -fd",
        "git init -q -b main; git add .; git commit -qm one; git worktree add ../w -b w; echo w > ../w/a; git -C ../w commit -am w; git rebase w; git tag t; git describe; git worktree remove ../w; git gc -q",
        "git init -q --bare bare.git; git init -q -b main; git add a; git commit -qm one; git push bare.git main; git clone bare.git c; cat c/a",
    ]
    .map(|line| format!("{who}; {line}"));
    let python = "import fcntl, mmap, os, sqlite3, tempfile
with open('a', 'r+b') as f:
    m = mmap.mmap(f.fileno(), 0); m[0:3] = b'ONE'; m.flush(); m.close(); print(f.read())
    fcntl.lockf(f, fcntl.LOCK_EX | fcntl.LOCK_NB); fcntl.flock(f, fcntl.LOCK_EX)
with open('b') as f, open('s', 'wb') as to: print(os.sendfile(to.fileno(), f.fileno(), 0, 3))
c = sqlite3.connect('db'); c.executescript('pragma journal_mode = wal; create table t(a); insert into t values (1);'); c.close()
with tempfile.TemporaryDirectory(dir='.') as d: open(d + '/x', 'w').close()
with tempfile.TemporaryFile(dir='.') as f: print(f.write(b'x'))
fd = os.open('.', os.O_TMPFILE | os.O_RDWR); os.write(fd, b'linked'); os.link(f'/proc/self/fd/{fd}', 'named'); print(open('named').read())
print(sorted(e.name for e in os.scandir('.') if e.is_file()), os.access('closed', os.W_OK), os.stat('a').st_nlink)
print(os.statvfs('.').f_namemax, os.pathconf('.', 'PC_NAME_MAX'), os.path.realpath('to-a')[-3:])";
    let others = [
        "make; make; cat out; make clean; make fails; make missing; make -n".to_owned(),
        "make -s; touch -d @5 out; make -n; make -q; echo $?; make -j 4 -B; make; make -C d".to_owned(),
        format!("python3 -c \"{python}\""),
        "printf 'int main(void) { return 42; }' > m.c; cc -o m m.c; ./m; echo $?; echo 'int x' > e.c; cc -c e.c; ar rc l.a a b; ar t l.a".to_owned(),
        "python3 -m zipfile -c z.zip a d; python3 -m zipfile -l z.zip | sed 1d; python3 -m zipfile -e z.zip u; find u | sort; rm z.zip".to_owned(),
        "printf '{\"k\": [1, 2]}' > j; jq -c .k j; jq . j > j.new && mv j.new j; cat j; jq x j; echo $?".to_owned(),
    ];
    let lines: Vec<&str> = git.iter().chain(&others).map(String::as_str).collect();
    let indexes: Vec<String> =
        (0..git.len()).flat_map(|dir| [format!("{dir}/.git/index"), format!("{dir}/c/.git/index")]).collect();
    let of_the_host: Vec<&str> = indexes.iter().map(String::as_str).collect();
    agree_except(&of_the_host, &lines);
}
