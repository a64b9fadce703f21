"""Errors are exceptions with a kind, a path and a place; findings of checks are objects."""

import copy
import os
import pickle
import struct
import subprocess
import sys
from pathlib import Path

import pytest
import seekless as sk
from conftest import judge


def test_missing_files(path: Path, image: sk.Image) -> None:
    with pytest.raises(FileNotFoundError) as missing:
        image.read("/etc/nothing")
    error = missing.value
    assert isinstance(error, sk.NotFoundError) and isinstance(error, sk.Error)
    assert (error.kind, error.path, error.location) == ("system", str(path), None)
    assert str(error) == f"{path}: /etc/nothing: no such file or directory"
    assert error.errno == 2
    with pytest.raises(sk.NotFoundError):
        sk.open(path.with_name("nothing"))
    with pytest.raises(sk.HostError):
        image.list("/etc/passwd")


def test_kinds(tree: Path, path: Path, image: sk.Image, tmp_path: Path) -> None:
    with pytest.raises(FileExistsError) as exists:
        sk.build(tree, path)
    assert "force=True" in str(exists.value)
    assert isinstance(exists.value, sk.ExistsError)
    with pytest.raises(sk.UsageError) as usage:
        sk.open(tree)
    assert usage.value.kind == "usage" and usage.value.path == str(tree)
    assert isinstance(usage.value, ValueError)
    with pytest.raises(sk.NoSpaceError) as space:
        sk.build(tree, tmp_path / "x.img", size=1 << 20)
    assert space.value.kind == "no-space"
    with pytest.raises(sk.UnsupportedError):
        sk.build(tree, tmp_path / "x.img", format="fat")
    with pytest.raises(sk.UnsupportedError):
        image.open("/etc")
    with pytest.raises(sk.UnsupportedError):
        image.readlink("/etc/passwd")
    assert list(tmp_path.iterdir()) == []


def test_summaries_that_cannot_be_decoded() -> None:
    """A decoder of Parquet panics on it, which is an exception like others, without a message."""
    name = "cli/tests/summaries/undecodable.parquet"
    made = Path(__file__).resolve().parents[2] / name
    program = """
import sys, seekless
try:
    seekless.Trace.load(sys.argv[1])
except seekless.CorruptError as error:
    print(error)
"""
    done = subprocess.run([sys.executable, "-c", program, str(made)], capture_output=True, text=True)
    message = f"{made}: damaged summary: its data cannot be decoded\n"
    assert (done.stdout, done.stderr) == (message, "")


def test_images_that_are_none(path: Path, tmp_path: Path) -> None:
    other = tmp_path / "x.img"
    other.write_bytes(b"text" * 5000)
    with pytest.raises(sk.UnsupportedError) as unsupported:
        sk.open(other)
    assert unsupported.value.kind == "unsupported"
    other.write_bytes(b"")
    with pytest.raises(sk.Error):
        sk.open(other)

    # An incompatible feature that does not exist.
    contents = bytearray(path.read_bytes())
    at = 1024 + 0x60
    (features,) = struct.unpack_from("<I", contents, at)
    struct.pack_into("<I", contents, at, features | 1 << 30)
    other.write_bytes(contents)
    with pytest.raises(sk.UnsupportedError):
        sk.open(other, ignore_checksums=True)


def test_damaged_images(path: Path, tmp_path: Path) -> None:
    contents = path.read_bytes()
    other = tmp_path / "x.img"
    other.write_bytes(contents[: len(contents) // 2])
    with pytest.raises(sk.CorruptError) as truncated:
        sk.open(other).read("/deep/er/large")
    assert truncated.value.kind == "corrupt"

    said = judge("debugfs", "-R", "imap /etc/passwd", path).stdout.decode()
    block, offset = said.split("located at block ")[1].split(", offset ")
    at = int(block) * 4096 + int(offset, 16)
    damaged = bytearray(contents)
    damaged[at + 4] ^= 1
    other.write_bytes(damaged)
    image = sk.open(other)
    with pytest.raises(sk.CorruptError) as corrupt:
        image.read("/etc/passwd")
    error = corrupt.value
    assert error.path == str(other)
    assert error.location is not None
    assert error.location.structure == "inode"
    assert error.location.inode == sk.open(path).stat("/etc/passwd").inode
    assert image.read("/etc/secret") == b"s"
    assert sk.open(other, ignore_checksums=True).exists("/etc/passwd")


def test_checks_and_repairs(path: Path, tmp_path: Path) -> None:
    assert sk.check(path).is_clean()
    damaged = bytearray(path.read_bytes())
    # The count of free blocks.
    damaged[1024 + 0x0C] ^= 1
    other = tmp_path / "x.img"
    other.write_bytes(damaged)
    checked = sk.check(other)
    assert (checked.outcome, checked.more, checked.is_clean()) == ("left", 0, False)
    assert other.read_bytes() == damaged
    for finding in checked.findings:
        assert finding.code and finding.message and not finding.repaired
        assert finding.class_ in ("expected", "unexpected")
        assert finding.place.structure
    assert checked.to_dict()["findings"][0]["code"] == checked.findings[0].code
    [(old, new)] = [finding.values for finding in checked.findings if finding.values]
    assert old == new ^ 1
    assert judge("e2fsck", "-fn", other).returncode != 0
    repaired = sk.check(other, repair=True)
    assert repaired.outcome == "corrected"
    assert all(finding.repaired for finding in repaired.findings)
    assert judge("e2fsck", "-fn", other).returncode == 0
    with pytest.raises(sk.UsageError):
        sk.check(other, preen=True, repair=True)


def test_a_journal_on_another_device(tree: Path, tmp_path: Path) -> None:
    """What waits in it is written by a repair that has it."""
    volume, journal, block = (tmp_path / name for name in ("volume.img", "journal.img", "block"))
    uuid = "11111111-2222-3333-4444-66666666abce"
    judge("mke2fs", "-q", "-O", "journal_dev", "-b", "1024", "-U", uuid, journal, "2M")
    judge("mke2fs", "-q", "-t", "ext4", "-O", "^has_journal", "-b", "1024", volume, "4M")
    block.write_bytes(bytes([7]) * 1024)
    changes = tmp_path / "changes"
    changes.write_text(
        f"feature has_journal\nssv journal_uuid {uuid}\njo -f {journal}\njw -b 3000 {block}\njc\n"
        "feature needs_recovery\n"
    )
    judge("debugfs", "-w", "-f", changes, volume)
    before = volume.read_bytes(), journal.read_bytes()
    with pytest.raises(sk.UnsupportedError, match=uuid):
        sk.check(volume, preen=True)
    sk.build(tree, tmp_path / "x.ufs", format="ufs2", size=32 << 20)
    with pytest.raises(sk.UsageError):
        sk.check(tmp_path / "x.ufs", journal=journal)
    sk.check(volume, journal=journal)
    assert (volume.read_bytes(), journal.read_bytes()) == before
    assert sk.check(volume, journal=journal, repair=True).outcome == "corrected"
    assert volume.read_bytes()[3000 << 10 : 3001 << 10] == block.read_bytes()
    assert sk.check(volume, journal=journal).is_clean()
    assert judge("e2fsck", "-fn", "-j", journal, volume).returncode == 0


def test_a_length_is_not_believed(path: Path, tmp_path: Path) -> None:
    other = tmp_path / "x.img"
    other.write_bytes(path.read_bytes())
    judge("debugfs", "-w", "-R", "sif /etc/passwd size 0xf0000000000", other)
    image = sk.open(other)
    with pytest.raises(sk.UnsupportedError):
        image.read("/etc/passwd")
    with pytest.raises(MemoryError), image.open("/etc/passwd") as file:
        file.read()
    with image.open("/etc/passwd") as file:
        assert file.read(4) == b"root"


def test_snapshots_and_growth(tree: Path, tmp_path: Path) -> None:
    path = tmp_path / "x.ufs"
    sk.build(tree, path, format="ufs2", size=32 << 20)
    planned = sk.grow(path, size=64 << 20, dry_run=True)
    assert path.stat().st_size == 32 << 20
    assert sk.grow(path, size=64 << 20) == planned
    assert (planned.bytes_before, planned.bytes) == (32 << 20, 64 << 20)
    snapshots = sk.Snapshots(path)
    inode = snapshots.take("daily")
    snapshots.take("/weekly")
    assert [(it.inode, it.path) for it in snapshots.list()][0] == (inode, "/.snap/daily")
    assert sk.open(f"{path}@daily").read("/etc/passwd").startswith(b"root")
    assert snapshots.remove("daily") == 1
    assert snapshots.remove_all() == 1
    assert snapshots.list() == []
    assert sk.check(path).is_clean()
    sk.build(tree, tmp_path / "x.img")
    with pytest.raises(sk.UnsupportedError):
        sk.Snapshots(tmp_path / "x.img").list()


def test_quotas(tree: Path, tmp_path: Path) -> None:
    path = tmp_path / "x.ufs"
    sk.build(tree, path, format="ufs2", size=32 << 20)
    with pytest.raises(sk.UnsupportedError):
        sk.Quotas(path).report()
    quotas = sk.Quotas(path, kinds=["user", "group"])
    before = quotas.check()
    assert before.outcome == "left" and not before.compared
    assert [kind for kind, _ in before.unusable] == ["user", "group"]
    assert quotas.check(correct=True).outcome == "corrected"
    assert quotas.check().is_clean()
    assert quotas.set("user", "root", space_soft=1 << 20, space_hard=1 << 30) == 0
    assert quotas.set("group", 100, inodes_hard=10) == 100
    quotas.set_grace("user", space=86_400)
    users, groups = quotas.report()
    assert (users.kind, groups.kind) == ("user", "group")
    assert (users.grace.space, users.grace.inodes) == (86_400, 7 * 86_400)
    root = next(owner for owner in users.owners if owner.id == 0)
    assert root.name == "root"
    assert (root.space.soft, root.space.hard) == (1 << 20, 1 << 30)
    assert root.inodes.used > 0 and root.inodes.expires is None
    assert any(owner.id == 100 and owner.inodes.hard == 10 for owner in groups.owners)
    assert users.to_dict()["owners"][0]["name"] == "root"
    assert sk.check(path).is_clean()
    with pytest.raises(sk.UsageError):
        quotas.set("user", "nobody at all", space_hard=1)
    with pytest.raises(sk.UsageError):
        sk.Quotas(path, kinds=["everybody"])  # type: ignore[list-item]
    # Usage that was not counted again.
    data = bytearray(path.read_bytes())
    at = data.index(b"QUOTA64\0") + 64 + 47  # the low byte of dqb_curinodes of id 0
    data[at] ^= 1
    path.write_bytes(bytes(data))
    (found,) = quotas.check().differences
    assert found.id == 0 and found.recorded.inodes ^ 1 == found.counted.inodes


def test_errors_are_sent_between_processes(path: Path, image: sk.Image, tmp_path: Path) -> None:
    place = sk.Place("inode", group=1, inode=12)
    assert pickle.loads(pickle.dumps(place)) == place == copy.deepcopy(place)
    with pytest.raises(sk.NotFoundError) as missing:
        image.read("/etc/nothing")
    damaged = tmp_path / "damaged.img"
    damaged.write_bytes(path.read_bytes()[:100_000])
    with pytest.raises(sk.CorruptError) as corrupt:
        sk.open(damaged)
    assert corrupt.value.location is not None
    for error in (missing.value, corrupt.value):
        for again in (pickle.loads(pickle.dumps(error)), copy.copy(error)):
            assert type(again) is type(error) and str(again) == str(error)
            assert (again.kind, again.path) == (error.kind, error.path)
            assert again.location == error.location
    again = pickle.loads(pickle.dumps(missing.value))
    assert (again.errno, again.strerror) == (2, os.strerror(2))


def test_a_part_of_a_path_that_is_no_directory(image: sk.Image) -> None:
    with pytest.raises(NotADirectoryError) as wrong:
        image.read("/etc/passwd/x")
    assert isinstance(wrong.value, sk.NotDirectoryError) and wrong.value.errno == 20


def test_arguments_that_contradict_each_other(path: Path, tmp_path: Path) -> None:
    with pytest.raises(sk.UsageError, match="one of them"):
        sk.open(path, partition="root", offset=0)
    there = tmp_path / "there.img"
    there.write_bytes(path.read_bytes())
    with pytest.raises(sk.UsageError, match="no source"):
        sk.build([], there, force=True)
    assert there.read_bytes() == path.read_bytes()
    (tmp_path / "tree").mkdir()
    with pytest.raises(sk.UsageError, match="zero byte"):
        sk.build(tmp_path / "tree", tmp_path / "x.img", label="a\0b")
    with pytest.raises(sk.UsageError) as inside:
        sk.build(tmp_path, there, force=True)
    assert inside.value.path == str(there)


def test_paths_of_all_kinds(path: Path) -> None:
    class Bytes:
        def __fspath__(self) -> bytes:
            return os.fsencode(path)

    assert sk.open(Bytes()).volume.format == sk.open(path).volume.format  # type: ignore[arg-type]
    assert set(sk.Trace.of_paths("/bin/sh").paths()) == {"/bin/sh"}
