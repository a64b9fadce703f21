"""The program under test: $SEEKLESS, or target/release/seekless."""

import hashlib
import json
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


def score_is_promised(told, old, new, trace, chunk):
    """`score` of both images gives what `optimize --json` said of a trace."""
    for image, key in ((old, "before"), (new, "after")):
        text = json.dumps(json.loads(seekless("score", image, "--trace", trace, *chunk, "--json")[0]))
        for field in ("requests", "seeks", "bytes"):
            if field in told[key] and f'"{field}": {told[key][field]}' not in text:
                raise Wrong(f"score of {key} has no {field} {told[key][field]}: {text[:600]}")


def writes_again(command, new, what):
    """A command writes the same bytes once more, on one thread."""
    first = digest(new)
    seekless(*command, "--force", env={"RAYON_NUM_THREADS": "1"})
    if digest(new) != first:
        raise Wrong(f"{what}: other bytes the second time")


def digest(path):
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
