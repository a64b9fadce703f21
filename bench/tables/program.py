"""The program: what it prints, and experiments of its lab."""

import functools
import json
import os
import subprocess
import tempfile
import tomllib
from pathlib import Path

from .page import ROOT

SEEKLESS = os.environ.get("SEEKLESS", str(ROOT / "target/release/seekless"))
MIB = 1 << 20


def said(*args, fails=False):
    """What the program prints. With `fails`, exit code 1 is an answer too."""
    done = subprocess.run([SEEKLESS, "-q", *args], stdout=subprocess.PIPE, stdin=subprocess.DEVNULL)
    if not (fails and done.returncode == 1):
        done.check_returncode()
    return done.stdout


def seekless(*args, fails=False):
    """The same as JSON."""
    text = said(*args, "--json", fails=fails)
    return json.loads(text) if text.strip() else None


def options(only):
    return [part for cell in only for part in ("--only", cell)]


@functools.cache
def experiment(name, *only):
    """The results of an experiment, or of some of its cells."""
    return seekless("lab", "run", name, *options(only))


@functools.cache
def published(name):
    """The published figures of an experiment, by workload, system, discipline and phase."""
    described = tomllib.loads(said("lab", "show", name).decode())
    keys = ["workload", "system", "discipline", "phase"]
    return {tuple(one.get(key) for key in keys): one for one in described["published"]}


@functools.cache
def phases_of(name, *only):
    """Each phase that ran, by workload, system, discipline, policy and phase."""
    found = {}
    with tempfile.TemporaryDirectory(prefix=f"{name}-") as output:
        seekless("lab", "run", name, "-o", output, *options(only))
        for path in Path(output).glob("run-*.json"):
            run = json.loads(path.read_text())
            key = (run["workload"], run["system"], run["discipline"], run["policy"])
            for phase in run["phases"]:
                found[*key, phase["phase"]] = phase
    return found


def runs_of(name, *only):
    """The seconds of each phase, by workload, system, discipline, policy and phase."""
    return {key: phase["seconds"] for key, phase in phases_of(name, *only).items()}


def score(value):
    return f"{value:.3f}"


def seconds(value):
    """Seconds with three digits."""
    return f"{value:.2f}" if value < 10 else f"{value:.1f}" if value < 100 else f"{value:.0f}"


def percent(part, whole):
    return f"{part / whole * 100:.0f}%"
