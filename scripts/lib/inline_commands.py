"""Checks the commands in the prose of documents: their verbs and options exist.

They have placeholders and are parts of sentences, so they are not run.
"""
import functools
import re
import subprocess

import long_commands
import sessions

# Options that --help does not list.
HIDDEN = {"--man", "--serve"}
COMMAND = re.compile(r"`((?:avfs|avfs-run|scripts/\w[\w-]*) [^`]*)`")
CODE = re.compile(r"^ *```.*?^ *```|^<!--.*?^-->", re.MULTILINE | re.DOTALL)


def findings(text):
    """Pairs of the number of a line and an error."""
    prose = CODE.sub(lambda block: "\n" * block[0].count("\n"), text)
    for match in COMMAND.finditer(prose):
        # Only the first command of a pipeline, without the sandboxed command after `--`.
        command = re.split(r" && | \| | -- ", match[1].replace("\\|", "|").replace("\n", " "))[0]
        line = prose.count("\n", 0, match.start())
        errors = errors_of(command.split()) if command.startswith("avfs") else script_errors(command)
        yield from ((line, f"{error}: {match[1]}") for error in errors)


def errors_of(words):
    verbs = words[:1]
    while words[0] == "avfs" and len(verbs) < len(words) and help_of(*verbs, words[len(verbs)]):
        verbs.append(words[len(verbs)])
    if verbs == ["avfs"] and re.match(r"[a-z]", words[1]):
        yield f"no such verb: {words[1]}"
    for word in words[len(verbs):]:
        option = re.match(r"\[?(--[a-z-]+)", word)
        if option and option[1] not in HIDDEN and not re.search(rf"{option[1]}(?![\w-])", help_of(*verbs)):
            yield f"{' '.join(verbs)} has no option {option[1]}"


def script_errors(command):
    return long_commands.judge(command)[1]


@functools.cache
def help_of(*words):
    """The help of a program or verb. Empty if it does not exist."""
    if not re.fullmatch(r"[a-z][a-z-]*", words[-1]):
        return ""
    asked = subprocess.run(
        [sessions.programs() / words[0], *words[1:], "--help"], capture_output=True, text=True, check=False)
    return asked.stdout if asked.returncode == 0 else ""
