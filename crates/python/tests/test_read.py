"""Images are read as the tree that they were made of, and as other programs read them."""

import io
import os
import re
import stat
import zipfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
import seekless as sk
from conftest import STRANGE, judge, numbers

KINDS = {stat.S_IFREG: "regular", stat.S_IFDIR: "directory", stat.S_IFLNK: "symlink"}


def of_tree(root: Path) -> dict[str, os.stat_result]:
    """The files below a directory, by their paths from there."""
    found = {}
    for directory, directories, files in os.walk(root):
        for name in directories + files:
            path = os.path.join(directory, name)
            found[os.path.relpath(path, root)] = os.lstat(path)
    return found


def test_all_files_are_there(tree: Path, image: sk.Image) -> None:
    wanted = of_tree(tree)
    entries = {entry.path: entry for entry in image.walk("/")}
    assert entries.pop("lost+found").metadata.is_dir()
    assert set(entries) == set(wanted)
    for path, entry in entries.items():
        found, there = entry.metadata, wanted[path]
        assert found.kind == KINDS[stat.S_IFMT(there.st_mode)], path
        assert found.mode == stat.S_IMODE(there.st_mode), path
        assert (found.uid, found.gid) == (there.st_uid, there.st_gid), path
        assert found.modified_ns == there.st_mtime_ns, path
        assert entry.name == os.path.basename(path)
        assert image.stat(path) == found
        if found.is_file():
            assert (found.size, found.links) == (there.st_size, there.st_nlink), path
            assert image.read(path) == (tree / path).read_bytes(), path
        elif found.is_symlink():
            assert image.readlink(path) == os.readlink(tree / path)
        else:
            names = set(image.list(path))
            assert names == set(os.listdir(tree / path)), path


def test_debugfs_reads_the_same(path: Path, image: sk.Image) -> None:
    said = judge("debugfs", "-R", "cat /deep/er/large", path)
    assert said.stdout == image.read("/deep/er/large")
    said = judge("debugfs", "-R", "stat /etc/secret", path)
    match = re.search(rb"Inode: (\d+) .*Mode:\s+(\d+)", said.stdout)
    assert match
    found = image.stat("/etc/secret")
    assert (found.inode, found.mode) == (int(match[1]), int(match[2], 8))


def test_walks_begin_anywhere(image: sk.Image) -> None:
    assert [entry.path for entry in image.walk("/deep")] == [
        "deep/again",
        "deep/er",
        "deep/er/large",
        "deep/link",
    ]
    assert list(image.walk("empty")) == []
    assert [it.path for it in image.walk()] == [it.path for it in image.walk(b"/")]
    walk = image.walk("deep/er")
    assert next(walk).path == "deep/er/large"
    with pytest.raises(StopIteration):
        next(walk)


def test_names_that_are_not_utf_8(image: sk.Image) -> None:
    name = os.fsdecode(STRANGE)
    assert name in image.list("/")
    assert image.read(STRANGE) == image.read(name) == image.read(Path(name)) == b"strange"
    assert image.exists(STRANGE)
    assert not image.exists("/nothing")
    assert not image.exists("/none/below")


def test_files_are_read_in_parts(image: sk.Image) -> None:
    wanted = numbers(1, 3_000_001)
    with image.open("/deep/er/large") as file:
        assert file.read(10) == wanted[:10]
        assert file.seek(-5, io.SEEK_END) == 2_999_996
        assert file.read() == wanted[-5:]
        assert file.read() == b""
        file.seek(1_000_000)
        assert file.seek(7, io.SEEK_CUR) == 1_000_007
        buffer = bytearray(300_000)
        assert file.readinto(buffer) == 300_000
        assert buffer == wanted[1_000_007:1_300_007]
        assert (file.readable(), file.writable(), file.seekable()) == (True, False, True)
        with pytest.raises(ValueError):
            file.seek(-1)
    with pytest.raises(ValueError):
        file.read()
    part = image.file("/deep/er/large")
    assert part.read_at(2_999_999, 1 << 40) == wanted[2_999_999:]
    assert part.read_at(1 << 60, 1) == b""
    with image.open("/etc/passwd") as file:
        assert list(io.TextIOWrapper(file)) == ["root:x:0:0::/:/bin/sh\n"]


def test_other_libraries_take_the_files(tmp_path: Path) -> None:
    (tmp_path / "tree").mkdir()
    with zipfile.ZipFile(tmp_path / "tree/all.zip", "w") as archive:
        archive.writestr("a/b", "text")
    sk.build(tmp_path / "tree", tmp_path / "x.img", format="ufs2")
    with zipfile.ZipFile(sk.open(tmp_path / "x.img").open("all.zip")) as archive:
        assert archive.read("a/b") == b"text"


def test_threads_read_side_by_side(image: sk.Image) -> None:
    wanted = numbers(1, 3_000_001)
    file = image.file("/deep/er/large")

    def part(at: int) -> bool:
        same = file.read_at(at, 70_001) == wanted[at : at + 70_001]
        return same and image.read("/deep/again").startswith(b"root") and len(list(image.walk())) > 9

    with ThreadPoolExecutor(8) as pool:
        assert all(pool.map(part, range(0, 3_000_000, 50_021)))


def test_extended_attributes(tmp_path: Path) -> None:
    (tmp_path / "tree").mkdir()
    (tmp_path / "tree/file").write_text("text")
    try:
        os.setxattr(tmp_path / "tree/file", "user.note", b"\0\xff")
    except OSError as error:
        pytest.skip(str(error))
    sk.build(tmp_path / "tree", tmp_path / "x.img")
    image = sk.open(tmp_path / "x.img")
    assert image.xattrs("file") == {"user.note": b"\0\xff"}
    assert image.xattrs("/") == {}
    said = judge("debugfs", "-R", "ea_get -V /file user.note", tmp_path / "x.img")
    assert said.stdout.startswith(b"\0\xff")


def test_ufs_and_fat_as_others_read_them(tree: Path, tmp_path: Path) -> None:
    ffs = pytest.importorskip("dissect.ffs.ffs")
    wanted = numbers(1, 3_000_001)
    sk.build(tree, tmp_path / "x.ufs", format="ufs1", label="some", exclude=STRANGE.decode("latin1"))
    image = sk.open(tmp_path / "x.ufs")
    assert (image.volume.format, image.volume.label) == ("ufs1", "some")
    assert image.read("deep/er/large") == wanted
    with open(tmp_path / "x.ufs", "rb") as file:
        assert ffs.FFS(file).get("deep/er/large").open().read() == wanted

    sk.build(tree / "deep", tmp_path / "x.fat", format="fat", drop="all")
    image = sk.open(tmp_path / "x.fat")
    assert image.volume.format.startswith("fat")
    assert image.read("er/large") == wanted
    said = judge("mtype", "-i", tmp_path / "x.fat", "::/er/large")
    assert said.stdout == wanted


def test_partitions(path: Path, tmp_path: Path) -> None:
    disk = tmp_path / "disk.img"
    contents = path.read_bytes()
    sectors = len(contents) // 512
    with open(disk, "wb") as file:
        file.seek(1 << 20)
        file.write(contents)
        file.truncate((2 << 20) + len(contents))
    script = tmp_path / "script"
    script.write_text(f'label: gpt\nstart=2048, size={sectors}, name="system"\n')
    assert judge("sfdisk", "-q", disk, stdin=script.read_bytes()).returncode == 0
    for image in (
        sk.open(disk, partition="1"),
        sk.open(disk, partition="system"),
        sk.open(disk, partition="root"),
        sk.open(disk, offset=1 << 20),
    ):
        assert image.read("/etc/passwd").startswith(b"root")
    with pytest.raises(sk.UsageError):
        sk.open(disk, partition="nothing")
