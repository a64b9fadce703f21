"""The examples of the documentation run."""

import logging
import os
import re
from pathlib import Path

import pytest
from conftest import archive, container

ROOT = Path(__file__).resolve().parents[3]


def examples(path: Path) -> list[str]:
    text = path.read_text()
    if path.suffix == ".rs":
        text = "\n".join(
            line.removeprefix("//! ").removeprefix("//!") for line in text.splitlines()
        )
    return re.findall(r"```python\n(.*?)```", text, re.DOTALL)


@pytest.mark.parametrize("name", ["docs/python.md", "crates/python/src/lib.rs"])
def test_examples_run(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found = examples(ROOT / name)
    assert found
    (tmp_path / "rootfs/etc").mkdir(parents=True)
    (tmp_path / "rootfs/etc/passwd").write_text("root:x:0:0::/:/bin/sh\n")
    (tmp_path / "rootfs/etc/hosts").write_text("127.0.0.1 localhost\n")
    layers = [archive({"etc/passwd": b"root"}), archive({"etc/hosts": b""})]
    (tmp_path / "container.tar").write_bytes(container(layers))
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(logging, "raiseExceptions", True)
    # The examples of a page build on each other.
    names: dict[str, object] = {"__name__": "example"}
    for example in found:
        exec(compile(example, os.fspath(ROOT / name), "exec"), names)
