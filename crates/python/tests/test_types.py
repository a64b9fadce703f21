"""The types are those of the module, and the package and these tests agree with them."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
import seekless as sk

HERE = Path(__file__).parent
CONFIGURATION = str(HERE.parent / "pyproject.toml")


def run(*args: str) -> None:
    where = str(Path(sk.__file__).parent.parent)
    environment = {**os.environ, "MYPYPATH": where, "MYPY_CACHE_DIR": os.devnull}
    done = subprocess.run(
        [sys.executable, "-m", *args], stdout=subprocess.PIPE, env=environment, cwd=where
    )
    assert done.returncode == 0, done.stdout.decode()


def test_the_stubs_are_those_of_the_module() -> None:
    pytest.importorskip("mypy")
    run("mypy.stubtest", "--mypy-config-file", CONFIGURATION, "seekless._seekless")


def test_mypy_finds_nothing() -> None:
    pytest.importorskip("mypy")
    names = ["seekless", *map(str, HERE.glob("*.py"))]
    run("mypy", "--config-file", CONFIGURATION, names[0], *names[1:])
