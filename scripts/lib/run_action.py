#!/usr/bin/env python3
"""Runs the steps of a composite action on this machine, as a GitHub runner does.

  run_action.py ACTION.YML WORKSPACE TEMP [INPUT=VALUE]...

Each `run:` step is executed with bash in WORKSPACE, with the variables and files of a runner in TEMP. Inputs that are
not given have their defaults. The outputs of the action are printed as NAME=VALUE, and each workflow command that would
take effect as workflow-command=NAME. Exit status: that of the first step that fails.
"""
import os
import pathlib
import re
import subprocess
import sys

import yaml

EXPRESSION = re.compile(r"\$\{\{\s*(.+?)\s*\}\}")
COMPARISON = re.compile(r"^(\S+)\s*(==|!=)\s*'([^']*)'$")


COMMAND = re.compile(r"^\s*::([^\s:]+)[^:]*::(.*)$|##\[([^\s\]]+)")


class Output:
    """The output of a step: printed, and searched for workflow commands."""

    def __init__(self):
        self.token = None

    def line(self, text):
        print(text, flush=True)
        found = COMMAND.search(text)
        name = found and (found[1] or found[3])
        if self.token is not None:
            if name == self.token:
                self.token = None
        elif name == "stop-commands":
            self.token = found[2]
        elif name:
            print(f"workflow-command={name}", flush=True)


class Runner:
    def __init__(self, action, workspace, temp, given):
        unknown = set(given) - set(action["inputs"])
        if unknown:
            sys.exit(f"unknown inputs: {', '.join(sorted(unknown))}")
        self.workspace, self.temp = workspace, temp
        self.values = {"github.action_ref": os.environ.get("ACTION_REF", "")}
        for name, details in action["inputs"].items():
            self.values[f"inputs.{name}"] = given.get(name, details.get("default", ""))
        self.path = os.environ["PATH"]

    def value(self, name):
        """Every expression is a name. An unknown name is an error; GitHub uses an empty string."""
        if re.match(r"steps\.[\w-]+\.outputs\.", name):
            return self.values.get(name, "")
        return self.values[name]

    def fill(self, text):
        return EXPRESSION.sub(lambda match: self.value(match[1]), text)

    def holds(self, condition):
        name, operator, text = COMPARISON.match(condition).groups()
        return (self.value(name) == text) == (operator == "==")

    def step(self, number, step):
        if "if" in step and not self.holds(step["if"]):
            return 0
        if step["shell"] != "bash":
            sys.exit(f"{step['name']}: only bash is supported")
        files = {name: self.temp / f"{name}-{number}" for name in ("GITHUB_OUTPUT", "GITHUB_PATH")}
        for file in files.values():
            file.touch()
        script = self.temp / f"step-{number}.sh"
        script.write_text(step["run"])
        environment = {
            "HOME": os.environ["HOME"], "PATH": self.path, "CI": "true", "RUNNER_TEMP": str(self.temp),
            "GITHUB_WORKSPACE": str(self.workspace), **{name: str(file) for name, file in files.items()},
            **{name: self.fill(value) for name, value in step.get("env", {}).items()},
        }
        running = subprocess.Popen(
            ["bash", "--noprofile", "--norc", "-eo", "pipefail", str(script)], env=environment,
            cwd=self.workspace / self.fill(step.get("working-directory", ".")),
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, errors="replace")
        output = Output()
        for line in running.stdout:
            output.line(line.rstrip("\n"))
        status = running.wait()
        if output.token is not None:
            sys.exit(f"{step['name']}: workflow commands stay disabled")
        for line in files["GITHUB_OUTPUT"].read_text().splitlines():
            name, value = line.split("=", 1)
            self.values[f"steps.{step['id']}.outputs.{name}"] = value
        for line in files["GITHUB_PATH"].read_text().splitlines():
            self.path = f"{line}:{self.path}"
        return status


def main():
    file, workspace, temp, *inputs = sys.argv[1:]
    action = yaml.safe_load(pathlib.Path(file).read_text())
    assert action["runs"]["using"] == "composite"
    runner = Runner(action, pathlib.Path(workspace), pathlib.Path(temp), dict(text.split("=", 1) for text in inputs))
    for number, step in enumerate(action["runs"]["steps"]):
        status = runner.step(number, step)
        if status:
            return status
    for name, details in action["outputs"].items():
        print(f"{name}={runner.fill(details['value'])}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
