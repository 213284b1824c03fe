"""Runs shell sessions with the real avfs and avfs-run, for the pictures and examples of documents.

A session is a list of command lines that share one shell, in an empty directory `demo` with its own home. Every
command reads from /dev/null; its output and its exit status are recorded separately.
"""
import os
import pathlib
import re
import shlex
import shutil
import subprocess
import tempfile

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent

# Text that differs between recordings: ids, times, durations, sizes. Longer patterns first.
NORMALISED = [
    (re.compile(r"\b(?:[0-9a-f]{64}|[0-9a-f]{32})\b"), "<digest>"),
    (re.compile(r"\b\d{4}-\d\d-\d\d[T ]\d\d:\d\d(:\d\d)?(\.\d+)?(Z|[+-]\d\d:\d\d)?"), "<time>"),
    (re.compile(r"\b[0-9a-f]{10}(?:[0-9a-f]{2})?\b"), "<id>"),
    (re.compile(r"\bindex [0-9a-f]+\.\.[0-9a-f]+"), "index <id>..<id>"),
    (re.compile(r"(?: *\b\d+(?:\.\d+)? (?:ms|s|min|h)\b)+"), " <duration>"),
    (re.compile(r" *\b\d+(\.\d+)? [KMG]iB\b"), " <size>"),
]


def normalised(line):
    for pattern, word in NORMALISED:
        line = pattern.sub(word, line)
    return line.rstrip()


def programs():
    """The directory of avfs and avfs-run: $AVFS_BIN, else the newest build."""
    target = pathlib.Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target"))
    builds = [target / kind for kind in ("release", "debug", "dist")]
    places = [pathlib.Path(os.environ["AVFS_BIN"]).resolve()] if "AVFS_BIN" in os.environ else builds
    found = [place for place in places if (place / "avfs").is_file() and (place / "avfs-run").is_file()]
    if not found:
        raise SystemExit("no avfs and avfs-run: build them (cargo build --release), or set AVFS_BIN to their directory")
    return max(found, key=lambda place: (place / "avfs-run").stat().st_mtime)


def scratch():
    """A new directory, by default in the cache directory. Not in /tmp, which every command of a run can write."""
    cache = os.environ.get("AVFS_TEST_SESSIONS") or os.environ.get("XDG_CACHE_HOME") or pathlib.Path.home() / ".cache"
    cache = pathlib.Path(cache).resolve()
    if any(cache.is_relative_to(place) for place in ("/tmp", "/var/tmp", "/dev/shm")):
        raise SystemExit(f"{cache} is temporary: set AVFS_TEST_SESSIONS to another directory")
    cache.mkdir(parents=True, exist_ok=True)
    return pathlib.Path(tempfile.mkdtemp(prefix="avfs-session-", dir=cache))


def run(commands):
    """Runs the command lines in one shell. Returns a list of (exit status, output)."""
    base = scratch()
    try:
        home, demo, out = base / "home", base / "demo", base / "out"
        for place in (home, demo, out):
            place.mkdir()
        lines = ["set +e", f"cd {shlex.quote(str(demo))}"]
        for number, command in enumerate(commands):
            # In braces, so that cd, export and variables affect later commands. The status is always written.
            lines.append(f"{{ {command}\n}} </dev/null >{out}/{number} 2>&1; echo $? >{out}/{number}.status")
        script = base / "session.sh"
        script.write_text("\n".join(lines) + "\n")
        environment = {
            "PATH": f"{programs()}:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
            "HOME": str(home), "USER": "me", "LOGNAME": "me", "SHELL": "/bin/sh",
            "LANG": "C.UTF-8", "LC_ALL": "C.UTF-8", "TZ": "UTC", "TERM": "dumb", "NO_COLOR": "1", "COLUMNS": "100",
            "GIT_CONFIG_NOSYSTEM": "1",
        }
        subprocess.run(["bash", str(script)], env=environment, check=False, timeout=600)
        return [(status(out, number), text(out, number, demo, home)) for number in range(len(commands))]
    finally:
        shutil.rmtree(base, ignore_errors=True)


def status(out, number):
    file = out / f"{number}.status"
    return int(file.read_text()) if file.exists() else None


def text(out, number, demo, home):
    file = out / str(number)
    printed = file.read_text(errors="replace") if file.exists() else ""
    return printed.replace(str(demo), "/home/me/demo").replace(str(home), "/home/me")
