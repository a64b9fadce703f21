"""Programs that are run, and why a volume or a judge ends."""

import os
import subprocess


class Wrong(Exception):
    """A judge objects."""


class Skip(Exception):
    """This shape cannot be made, or seekless refuses it by name."""


def call(*command, text=None, limit=60, env=None):
    """Runs a program; its exit code and its outputs."""
    done = subprocess.run(["timeout", "-s", "KILL", str(limit), *map(str, command)], input=text, capture_output=True, check=False,
                          env={**os.environ, **(env or {})})
    return done.returncode, done.stdout.decode(errors="replace"), done.stderr.decode(errors="replace")


def must(*command, **rest):
    code, out, err = call(*command, **rest)
    if code:
        raise Wrong(f"{' '.join(map(str, command))}: {code}\n{out[-3000:]}{err[-3000:]}")
    return out
