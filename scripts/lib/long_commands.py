"""Commands of documents that examples do not run: scripts of the repository, cargo, installations.

They take minutes, need the network or change the machine. Their names and options are checked instead. Every other
command must be run.
"""
import os
import re
import shlex

from sessions import ROOT

# The first words of commands that are not run, and the reason.
EXCLUDED = {
    "cargo build": "scripts/test builds the same",
    "cargo test": "scripts/test runs the same tests",
    "cargo deny check": "needs the network; a job of CI runs it",
    "docker build": "needs a container engine; scripts/test-packages runs the instructions of the recipe",
    "docker run": "needs a container engine",
    "sudo dnf install": "needs Fedora; scripts/test-packages installs the .rpm with rpm",
    "sudo sysctl": "changes the machine",
}
# The first words of commands that install avfs. scripts/test-packages finds them in README.md and runs them.
INSTALLATIONS = ["sudo apt install", "tar -xzf", "sudo install", "sudo cp -r", "cargo install"]


def short_form(command):
    """A shorter command that runs only the part of avfs, or `None`."""
    words = shlex.split(command, comments=True)
    if words[:2] == ["cargo", "run"] and "avfs-run" in words:
        return shlex.join(["avfs-run", *words[words.index("--") + 1:]])
    if is_script(words) and words[1:] == ["--help"]:
        return f"{ROOT / words[0]} --help"
    return None


def judge(command):
    """The reason why the command is not run, and its errors. `None` if it must be run."""
    words = shlex.split(command, comments=True)
    variables = [word.split("=")[0] for word in words if re.match(r"[A-Z_]+=", word)]
    words = words[len(variables):]
    if is_script(words):
        return "takes long; its options are checked", list(script_findings(words, variables))
    for start in INSTALLATIONS:
        if command.startswith(start):
            tested = start in (ROOT / "scripts/test-packages").read_text()
            return "scripts/test-packages runs it", [] if tested else ["scripts/test-packages does not run it"]
    for start, reason in EXCLUDED.items():
        if command.startswith(start):
            return reason, list(cargo_findings(words))
    return None


def is_script(words):
    return bool(words) and words[0].removeprefix("./").startswith("scripts/")


def script_findings(words, variables):
    script = ROOT / words[0]
    if not os.access(script, os.X_OK):
        yield f"{words[0]} is not an executable file"
        return
    # The comment or text at the head, which --help prints.
    usage = re.split(r"^(?:set -|import )", script.read_text(), maxsplit=1, flags=re.MULTILINE)[0]
    for name in [*variables, *(word for word in words if word.startswith("--") and word != "--help")]:
        if not re.search(rf"(?<![\w-]){name}(?![\w-])", usage):
            yield f"the usage of {words[0]} does not mention {name}"
    for word in words:
        place = ROOT / "tests" / word.replace("::", "/")
        if "::" in word and not place.is_dir() and not place.with_suffix(".rs").is_file():
            yield f"no such tests: {word}"


def cargo_findings(words):
    """Packages and tests that no manifest names."""
    manifests = [file.read_text() for file in [*ROOT.glob("*/Cargo.toml"), *ROOT.glob("src/*/Cargo.toml")]]
    known = {name for text in manifests for name in re.findall(r'^name = "(.+)"', text, re.MULTILINE)}
    for option, name in zip(words, words[1:]):
        if option in ("-p", "--test") and name not in known:
            yield f"{option} names no package or test: {name}"
