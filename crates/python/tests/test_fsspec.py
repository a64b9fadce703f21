"""Images as file systems of fsspec."""

import os
import pickle
from pathlib import Path
from typing import Any

import fsspec
import pytest
import seekless as sk
from conftest import numbers


@pytest.fixture()
def fs(path: Path) -> Any:
    return fsspec.filesystem("seekless", fo=str(path))


def test_urls_are_chained(path: Path) -> None:
    for protocol in ("ext4", "seekless", "ufs", "fat"):
        with fsspec.open(f"{protocol}://etc/passwd::file://{path}") as file:
            assert file.read().startswith(b"root")
    with fsspec.open(f"ext4:///etc/passwd::{path}", "rt") as file:
        assert file.read().startswith("root")
    fs, name = fsspec.url_to_fs(f"ext4://deep/er::file://{path}")
    assert name == "deep/er"
    assert fs.ls(name, detail=False) == ["deep/er/large"]
    files = fsspec.open_files(f"ext4://etc/*::file://{path}")
    assert [it.path for it in files] == ["etc/passwd", "etc/secret"]


def test_images_in_other_file_systems(path: Path) -> None:
    memory = fsspec.filesystem("memory")
    memory.pipe("/disk.img", path.read_bytes())
    with fsspec.open("ext4://etc/passwd::memory://disk.img") as file:
        assert file.read().startswith(b"root")
    with path.open("rb") as opened:
        assert fsspec.filesystem("ext4", fo=opened).cat("etc/passwd").startswith(b"root")


def test_listings(tree: Path, fs: Any) -> None:
    wanted = {
        os.path.relpath(os.path.join(directory, name), tree)
        for directory, _, names in os.walk(tree)
        for name in names
    }
    assert set(fs.find("")) == wanted
    walked = {
        os.path.join(directory, name) for directory, _, names in fs.walk("") for name in names
    }
    assert {it.lstrip("/") for it in walked} == wanted
    assert fs.ls("/etc", detail=False) == ["etc/passwd", "etc/secret"]
    assert fs.ls("etc/passwd", detail=False) == ["etc/passwd"]
    info = fs.info("/etc/passwd")
    there = (tree / "etc/passwd").stat()
    assert (info["name"], info["type"], info["size"]) == ("etc/passwd", "file", there.st_size)
    assert (info["uid"], info["mode"], info["mtime_ns"]) == (there.st_uid, 0o644, there.st_mtime_ns)
    assert fs.modified("/etc/passwd").timestamp() == pytest.approx(there.st_mtime)
    assert fs.info("")["type"] == "directory"
    assert fs.info("deep/link")["destination"] == "er/large"
    assert fs.isdir("deep") and fs.isfile("none") and not fs.exists("deep/nothing")
    assert fs.du("deep/er") == 3_000_001
    assert fs.glob("deep/**/large") == ["deep/er/large"]
    with pytest.raises(FileNotFoundError):
        fs.ls("nothing")


def test_ranges(fs: Any, tmp_path: Path) -> None:
    wanted = numbers(1, 3_000_001)
    assert fs.cat_file("deep/er/large", 5, 105) == wanted[5:105]
    assert fs.cat_file("deep/er/large", -7, -2) == wanted[-7:-2]
    assert fs.cat_file("deep/er/large") == wanted
    assert fs.cat_ranges(["deep/er/large"] * 2, [0, 10], [3, 20]) == [wanted[:3], wanted[10:20]]
    with fs.open("deep/er/large") as file:
        file.seek(1_000_000)
        assert file.read(10) == wanted[1_000_000:1_000_010]
    assert fs.head("deep/er/large", 9) == wanted[:9]
    fs.get("deep/er", str(tmp_path / "copy"), recursive=True)
    assert (tmp_path / "copy/large").read_bytes() == wanted


def test_nothing_is_written(fs: Any, path: Path) -> None:
    before = path.read_bytes()
    with pytest.raises(OSError):
        fs.open("etc/passwd", "wb")
    with pytest.raises(NotImplementedError):
        fs.rm("etc/passwd")
    with pytest.raises(ValueError):
        fsspec.filesystem("ext4", fo=str(path), mode="w")
    assert path.read_bytes() == before


def test_file_systems_are_sent_to_other_processes(fs: Any) -> None:
    again = pickle.loads(pickle.dumps(fs))
    assert again.cat("etc/secret") == b"s"


def test_parameters_of_open(path: Path, tmp_path: Path) -> None:
    shifted = tmp_path / "x.img"
    shifted.write_bytes(bytes(1 << 20) + path.read_bytes())
    fs = fsspec.filesystem("ext4", fo=shifted, offset=1 << 20)
    assert fs.cat("etc/secret") == b"s"
    with pytest.raises(sk.UnsupportedError, match="no partition table"):
        fsspec.filesystem("ext4", fo=str(shifted), partition="root")


def test_files_have_what_those_of_other_file_systems_have(fs: Any) -> None:
    with fs.open("etc/passwd") as file:
        assert file.size == fs.info("etc/passwd")["size"]
    assert fs.read_block("etc/passwd", 0, 4) == b"root"
    for wrong in (fs.open, fs.cat_file):
        with pytest.raises(IsADirectoryError):
            wrong("etc")
        with pytest.raises(NotADirectoryError):
            wrong("etc/passwd/x")
    mapper = fs.get_mapper("")
    assert mapper.get("etc") is None and mapper.get("etc/passwd/x") is None
    for name in ("mkdir", "makedirs", "rmdir"):
        with pytest.raises(OSError, match="[Rr]ead-only"):
            getattr(fs, name)("new")
    with pytest.raises(ValueError, match="fo"):
        fsspec.filesystem("ext4")
