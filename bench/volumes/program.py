"""The program under test: $SEEKLESS, or target/release/seekless."""

import hashlib
import os
from pathlib import Path

from .run import Skip, Wrong, call

SEEKLESS = os.environ.get("SEEKLESS", str(Path(__file__).resolve().parents[2] / "target/release/seekless"))


def seekless(*arguments, env=None, codes=(0,)):
    code, out, err = call(SEEKLESS, *arguments, env=env)
    command = "seekless " + " ".join(map(str, arguments))
    if "panicked" in err or code < 0 or code in (101, 124, 134, 137):
        raise Wrong(f"{command}: {code}\n{err[-3000:]}")
    if code == 4 or (code == 2 and "needs inodes of" in err):
        raise Skip(f"refused: {err.strip().splitlines()[-1][-160:]}")
    if code == 5 and 5 not in codes:
        raise Skip(f"no room: {err.strip()[-160:]}")
    if code not in codes:
        raise Wrong(f"{command}: {code}\n{out[-1500:]}{err[-3000:]}")
    return out, err


def digest(path):
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
