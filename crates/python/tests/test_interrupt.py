"""Work that is interrupted ends soon, and leaves nothing."""

import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest
import seekless as sk
from conftest import numbers


@pytest.fixture(scope="module")
def large(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A tree that takes a while to write."""
    root = tmp_path_factory.mktemp("large")
    piece = numbers(1, 4 << 20)
    for n in range(48):
        (root / str(n)).write_bytes(piece)
    return root


def test_a_signal_stops_a_build(large: Path, tmp_path: Path) -> None:
    (tmp_path / "there.img").write_text("kept")
    sent: list[float] = []

    def send(done: int, total: int) -> None:
        if not sent and done < total:
            sent.append(time.monotonic())
            os.kill(os.getpid(), signal.SIGINT)

    for name in ("new.img", "there.img"):
        sent.clear()
        with pytest.raises(KeyboardInterrupt):
            sk.build(large, tmp_path / name, force=True, reflink="never", progress=send)
        assert sent and time.monotonic() - sent[0] < 1
    assert os.listdir(tmp_path) == ["there.img"]
    assert (tmp_path / "there.img").read_text() == "kept"
    time.sleep(0.3)
    assert os.listdir(tmp_path) == ["there.img"]


def test_an_exception_in_a_callback_stops_the_work(large: Path, tmp_path: Path) -> None:
    def fail(done: int, total: int) -> None:
        raise LookupError("enough")

    with pytest.raises(LookupError, match="enough"):
        sk.build(large, tmp_path / "x.img", reflink="never", progress=fail)
    assert os.listdir(tmp_path) == []


def test_a_signal_ends_work_that_waits(tmp_path: Path) -> None:
    """The source is a pipe without a writer: the work itself cannot end."""
    os.mkfifo(tmp_path / "x.tar")
    program = f"""
import os, signal, threading, time
import seekless as sk
threading.Timer(0.5, lambda: os.kill(os.getpid(), signal.SIGINT)).start()
began = time.monotonic()
try:
    sk.build({str(tmp_path / "x.tar")!r}, {str(tmp_path / "x.img")!r})
except KeyboardInterrupt:
    print(time.monotonic() - began, flush=True)
    # The thread that waits goes with the process.
    os._exit(0)
"""
    said = subprocess.run([sys.executable, "-c", program], stdout=subprocess.PIPE, timeout=30)
    assert said.returncode == 0
    assert 0.5 <= float(said.stdout) < 1.5
    assert os.listdir(tmp_path) == ["x.tar"]


def test_a_conversion_is_stopped(
    tree: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    converter = tmp_path / "bin/qemu-img"
    converter.parent.mkdir()
    converter.write_text('#!/bin/sh\n[ "$1" = --version ] || exec sleep 20\n')
    converter.chmod(0o755)
    monkeypatch.setenv("PATH", f"{converter.parent}:{os.environ['PATH']}")
    sent: list[float] = []

    def send() -> None:
        sent.append(time.monotonic())
        os.kill(os.getpid(), signal.SIGINT)

    threading.Timer(0.5, send).start()
    with pytest.raises(KeyboardInterrupt):
        sk.build(tree, tmp_path / "x.qcow2")
    assert sent and time.monotonic() - sent[0] < 1
    assert os.listdir(tmp_path) == ["bin"]


def test_other_threads_run_meanwhile(large: Path, tmp_path: Path) -> None:
    turns = 0
    ends = threading.Event()

    def count() -> None:
        nonlocal turns
        while not ends.wait(0.002):
            turns += 1

    thread = threading.Thread(target=count)
    thread.start()
    began = time.monotonic()
    sk.build(large, tmp_path / "x.img", reflink="never")
    seconds = time.monotonic() - began
    ends.set()
    thread.join()
    # With the lock of the interpreter held it would be none.
    assert turns > seconds * 10


def test_a_signal_ends_a_summary(tmp_path: Path) -> None:
    """Nothing is written after it."""
    paths = (f"/{n % 100_000}/{n}" for n in range(300_000))
    sk.Trace.of_paths(paths).save(tmp_path / "x.trace")
    sent: list[float] = []

    def send() -> None:
        sent.append(time.monotonic())
        os.kill(os.getpid(), signal.SIGINT)

    timer = threading.Timer(0.05, send)
    with pytest.raises(KeyboardInterrupt):
        timer.start()
        sk.summarize(tmp_path / "x.trace", tmp_path / "sum.parquet")
    assert time.monotonic() - sent[0] < 1
    # The thread that is left behind ends, and gives nothing its name.
    time.sleep(3)
    assert os.listdir(tmp_path) == ["x.trace"]
