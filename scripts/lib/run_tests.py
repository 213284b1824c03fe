"""Runs test executables, one process per test, and reports the results.

Called by scripts/test, which builds the executables and documents the options. Each test runs in the same process
environment regardless of the caller: default signal dispositions, umask 022, default limits, a home and a temporary
directory of the user it runs as, and no environment variables of the caller.
"""

import argparse
import collections
import json
import os
import resource
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time

NOBODY = 65534
# Timeouts of a test, and of one in its long form.
TEST_SECONDS_MAX = 600
LONG_TEST_SECONDS_MAX = 3600
# The soft limit on open files.
FILES_SOFT = 1024
# The directory of copied executables. If it were `bin`, avfs would treat its parent directory as a toolchain, which
# other tests modify meanwhile.
PROGRAMS = "programs"
PATH = "/usr/local/bin:/usr/bin:/bin:/usr/local/sbin:/usr/sbin:/sbin"

Test = collections.namedtuple("Test", "suite executable name user")
Outcome = collections.namedtuple("Outcome", "test round seed status output seconds skips")


def arguments():
    parser = argparse.ArgumentParser(prog="scripts/test", add_help=False)
    parser.add_argument("--executable", action="append", default=[])
    parser.add_argument("--once", action="append", default=[])
    parser.add_argument("--timing-test", action="append", default=[])
    parser.add_argument("--skip-expected", action="append", default=[])
    parser.add_argument("--target", required=True)
    parser.add_argument("--repeat", type=int, default=1)
    parser.add_argument("--jobs", type=int, default=2 * os.cpu_count())
    parser.add_argument("--as", dest="user", choices=["root", "user"])
    parser.add_argument("--timing", action="store_true")
    parser.add_argument("--long", action="store_true")
    parser.add_argument("--slow-disk")
    parser.add_argument("--seed", type=int)
    parser.add_argument("filters", nargs="*")
    return parser.parse_args()


def suite_of(executable):
    """`vault-0123456789abcdef` is the suite `vault`."""
    return os.path.basename(executable).rsplit("-", 1)[0]


class Place:
    """Shared by the tests of one user: executables, sources, a home and a temporary directory."""

    def __init__(self, user, work, options):
        self.user = user
        self.drop = user == "user" and os.getuid() == 0
        self.root = os.path.join(work, user)
        self.home, self.tmp = os.path.join(self.root, "home"), os.path.join(self.root, "tmp")
        os.makedirs(self.home)
        os.makedirs(self.tmp)
        # Outside of /tmp, where every command of a run can write.
        cache = "/var/cache" if os.getuid() == 0 else os.path.expanduser("~/.cache")
        os.makedirs(cache, exist_ok=True)
        self.sessions = tempfile.mkdtemp(prefix="avfs-sessions-", dir=cache)
        source, binaries = os.getcwd(), os.path.join(options.target, "debug")
        if self.drop:
            # This user cannot read a checkout in the home of root.
            source, binaries = os.path.join(work, "source"), os.path.join(work, PROGRAMS)
        self.source, self.binaries = source, binaries
        self.environment = {
            "PATH": PATH,
            "HOME": self.home,
            "TMPDIR": self.tmp,
            "USER": "nobody" if self.drop else user,
            "LOGNAME": "nobody" if self.drop else user,
            "LC_ALL": "C",
            "TZ": "UTC",
            "AVFS_TEST_BIN": os.path.join(binaries, "avfs"),
            "AVFS_TEST_RUN": os.path.join(binaries, "avfs-run"),
            "AVFS_TEST_SRC": source,
            "AVFS_TEST_SESSIONS": self.sessions,
        }
        self.seconds_max = LONG_TEST_SECONDS_MAX if options.long else TEST_SECONDS_MAX
        if options.long:
            self.environment["AVFS_TEST_LONG"] = "1"
        if options.slow_disk:
            self.environment["LD_PRELOAD"] = options.slow_disk
            self.environment["AVFS_TEST_PRELOAD"] = options.slow_disk
        if self.drop:
            for directory in (self.root, self.home, self.tmp, self.sessions):
                os.chown(directory, NOBODY, NOBODY)

    def executable(self, test):
        return os.path.join(self.binaries, os.path.basename(test.executable)) if self.drop else test.executable


def set_surroundings():
    """Sets the process attributes that tests inherit to the same values for every caller of the suite."""
    for number in signal.valid_signals() - {signal.SIGKILL, signal.SIGSTOP}:
        if signal.getsignal(number) == signal.SIG_IGN and number != signal.SIGPIPE:
            # exec resets a handled signal to its default disposition. Python itself restores SIGPIPE.
            signal.signal(number, lambda *_: None)
    signal.pthread_sigmask(signal.SIG_SETMASK, ())
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    soft = FILES_SOFT if hard == resource.RLIM_INFINITY else min(FILES_SOFT, hard)
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    resource.setrlimit(resource.RLIMIT_CORE, (0, resource.getrlimit(resource.RLIMIT_CORE)[1]))


def copy_for_nobody(work, options):
    """Copies the executables and the sources to a directory that every user can read."""
    binaries, source = os.path.join(work, PROGRAMS), os.path.join(work, "source")
    os.makedirs(binaries)
    programs = [os.path.join(options.target, "debug", name) for name in ("avfs", "avfs-run")]
    for program in options.executable + programs:
        shutil.copy(program, binaries)
    skipped = shutil.ignore_patterns("target", ".git", ".avfs")
    shutil.copytree(os.getcwd(), source, symlinks=True, ignore=skipped)
    subprocess.run(["chmod", "-R", "a+rX", work], check=True)


def names_in(executable):
    listed = subprocess.run([executable, "--list", "--format", "terse"], stdout=subprocess.PIPE, check=True, text=True)
    return [line[: -len(": test")] for line in listed.stdout.splitlines() if line.endswith(": test")]


def begins_with_any(name, beginnings):
    return any(name.startswith(beginning) for beginning in beginnings)


def select(options, users):
    """The requested tests, once for each user that they depend on."""
    tests = []
    for executable in options.executable:
        suite = suite_of(executable)
        for name in names_in(executable):
            full = f"{suite}::{name}"
            if options.filters and not any(part in full for part in options.filters):
                continue
            if options.timing and not begins_with_any(full, options.timing_test):
                continue
            # A test that does not depend on the user runs as the last user, which has fewer privileges.
            of_users = users[-1:] if begins_with_any(full, options.once) else users
            tests += [Test(suite, executable, name, user) for user in of_users]
    return tests


class Times:
    """The durations of the previous run: the longest tests start first, so that no slot waits for one at the end."""

    def __init__(self, target):
        self.path = os.path.join(target, "test-times.json")
        try:
            with open(self.path) as file:
                self.known = json.load(file)
        except (OSError, ValueError):
            self.known = {}

    @staticmethod
    def key(test):
        return f"{test.user} {test.suite}::{test.name}"

    def order(self, tests):
        return sorted(tests, key=lambda test: -self.known.get(self.key(test), 1.0))

    def save(self, outcomes):
        for outcome in outcomes:
            self.known[self.key(outcome.test)] = round(outcome.seconds, 3)
        with open(self.path, "w") as file:
            json.dump(self.known, file, indent=0, sort_keys=True)


def end(child):
    """Kills a test and everything left in its process group."""
    try:
        os.killpg(child.pid, signal.SIGKILL)
    except ProcessLookupError:
        pass
    child.wait()


def run_one(test, place, seed, round_number, running):
    """Runs one test in a new session."""
    skips = tempfile.NamedTemporaryFile(dir=place.root, prefix="skips-", mode="r")
    os.chmod(skips.name, 0o666)
    output = tempfile.TemporaryFile()
    environment = dict(place.environment, AVFS_TEST_SKIPS=skips.name, PROPTEST_RNG_SEED=str(seed))
    words = [place.executable(test), "--exact", test.name, "--nocapture", "--test-threads=1"]
    directory = os.path.join(place.source, "runner") if test.suite in ("e2e", "security", "avfs_run") else place.source
    unprivileged = dict(user=NOBODY, group=NOBODY, extra_groups=[]) if place.drop else {}
    begun = time.monotonic()
    child = subprocess.Popen(
        words,
        cwd=directory,
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=output,
        stderr=subprocess.STDOUT,
        start_new_session=True,
        umask=0o022,
        **unprivileged,
    )
    running.add(child)
    try:
        status = child.wait(place.seconds_max)
    except subprocess.TimeoutExpired:
        status = f"killed after {place.seconds_max} s"
    running.discard(child)
    end(child)
    seconds = time.monotonic() - begun
    output.seek(0)
    text = output.read().decode(errors="replace")
    if status == 0 and "test result: ok. 1 passed" not in text:
        status = "not run"
    return Outcome(test, round_number, seed, status, text, seconds, skips.read().splitlines())


def repeat_command(outcome, options):
    words = ["scripts/test", "--as", outcome.test.user, "--seed", str(outcome.seed)]
    words += ["--long"] if options.long else []
    return shlex.join(words + [f"{outcome.test.suite}::{outcome.test.name}"])


class Progress:
    """Prints failures as they happen, and the progress from time to time."""

    def __init__(self, total, options):
        self.total, self.options = total, options
        self.done = self.failed = 0
        self.lock = threading.Lock()
        self.begun = self.shown = time.monotonic()

    def add(self, outcome):
        with self.lock:
            self.done += 1
            if outcome.status != 0:
                self.failed += 1
                self.show_failure(outcome)
            now = time.monotonic()
            if now - self.shown >= 15 or self.done == self.total:
                self.shown = now
                print(f"  {self.done} of {self.total} run, {self.failed} failed, {now - self.begun:.0f} s", flush=True)

    def show_failure(self, outcome):
        test = outcome.test
        print(f"\nFAILED as {test.user}: {test.suite}::{test.name} (status {outcome.status})")
        print(outcome.output.rstrip())
        print(f"repeat with: {repeat_command(outcome, self.options)}\n", flush=True)


def run_all(work_items, places, options):
    """Runs all tests, `--jobs` at a time."""
    progress = Progress(len(work_items), options)
    waiting, outcomes, running = collections.deque(work_items), [], set()

    def slot():
        while True:
            try:
                test, seed, round_number = waiting.popleft()
            except IndexError:
                return
            outcome = run_one(test, places[test.user], seed, round_number, running)
            outcomes.append(outcome)
            progress.add(outcome)

    slots = [threading.Thread(target=slot) for _ in range(options.jobs)]
    for thread in slots:
        thread.start()
    try:
        for thread in slots:
            thread.join()
    except KeyboardInterrupt:
        waiting.clear()
        for child in list(running):
            end(child)
        raise
    return outcomes


def report_skips(outcomes, options):
    """Lists the skipped tests with their reasons; returns the number of all and of unexpected skips."""
    expected = {tuple(entry.split("\t")) for entry in options.skip_expected}
    seen = {}
    for outcome in outcomes:
        for line in outcome.skips:
            name, reason = line.split("\t", 1)
            seen[outcome.test.user, name, reason] = (outcome.test.user, reason) in expected
    for (user, name, reason), is_expected in sorted(seen.items()):
        print(f"skipped as {user} ({'expected' if is_expected else 'UNEXPECTED'}): {name}: {reason}")
    return len(seen), sum(not is_expected for is_expected in seen.values())


def main():
    options = arguments()
    set_surroundings()
    users = ["root", "user"] if os.getuid() == 0 else ["user"]
    if options.user:
        users = [user for user in users if user == options.user]
    if not users:
        sys.exit("only root can run the tests as root")
    tests = select(options, users)
    if not tests:
        sys.exit(f"no test matches {' '.join(options.filters)}")
    work = tempfile.mkdtemp(prefix="avfs-tests-")
    os.chmod(work, 0o755)
    places = {}
    try:
        if os.getuid() == 0 and "user" in users:
            copy_for_nobody(work, options)
        places.update((user, Place(user, work, options)) for user in users)
        times = Times(options.target)
        seed = options.seed if options.seed is not None else 1
        items = [
            (test, seed + round_number, round_number)
            for round_number in range(options.repeat)
            for test in times.order(tests)
        ]
        begun = time.monotonic()
        outcomes = run_all(items, places, options)
        times.save(outcomes)
    finally:
        for directory in (work, *(place.sessions for place in places.values())):
            subprocess.run(["chmod", "-R", "u+rwx", directory], stderr=subprocess.DEVNULL)
            shutil.rmtree(directory, ignore_errors=True)
    failures = [outcome for outcome in outcomes if outcome.status != 0]
    slowest = sorted(outcomes, key=lambda outcome: -outcome.seconds)[:10]
    print("slowest: " + ", ".join(f"{o.test.suite}::{o.test.name} {o.seconds:.1f} s as {o.test.user}" for o in slowest))
    skipped, unexpected = report_skips(outcomes, options)
    for outcome in sorted(failures, key=lambda outcome: (outcome.test, outcome.round)):
        print(f"failed: {repeat_command(outcome, options)}")
    print(f"took {time.monotonic() - begun:.0f} s")
    print(f"{len(outcomes) - len(failures)} passed, {len(failures)} failed, {skipped} skipped")
    sys.exit(1 if failures or unexpected else 0)


try:
    main()
except KeyboardInterrupt:
    sys.exit(130)
