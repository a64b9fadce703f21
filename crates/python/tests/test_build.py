"""Images that are made: the same each time, in order, and as asked for."""

import hashlib
import json
import logging
import re
import uuid
from pathlib import Path
from typing import Any

import pytest
import seekless as sk
from conftest import archive, container, judge, numbers


def digest(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def in_order(path: Path) -> bool:
    return judge("e2fsck", "-fn", path).returncode == 0


@pytest.fixture(scope="module")
def many(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A tree with many files."""
    root = tmp_path_factory.mktemp("many")
    for n in range(300):
        (root / f"{n:03}").write_bytes(numbers(n, 30_000))
    return root


def test_the_same_source_gives_the_same_bytes(tree: Path, tmp_path: Path) -> None:
    made = [sk.build(tree, tmp_path / name, label="x") for name in ("a", "b")]
    assert made[0] == made[1]
    assert digest(tmp_path / "a") == digest(tmp_path / "b")
    assert made[0].size == (tmp_path / "a").stat().st_size
    assert made[0].to_dict()["files"] == made[0].files
    assert in_order(tmp_path / "a")


def test_options_arrive(tree: Path, tmp_path: Path) -> None:
    path = tmp_path / "x.img"
    own = uuid.UUID("01234567-89ab-cdef-0123-456789abcdef")
    built = sk.build(
        [tree],
        path,
        format="ext3",
        size=32 << 20,
        label="some",
        uuid=own,
        block_size=1024,
        features="^resize_inode",
        source_date_epoch=10**8,
        exclude=["/deep", "none"],
        owner=(7, 8),
    )
    assert (built.size, built.uuid) == (32 << 20, str(own))
    said = judge("dumpe2fs", "-h", path).stdout.decode()
    for key, value in (("volume name", "some"), ("UUID", str(own)), ("Block size", "1024")):
        assert re.search(rf"{key}:\s+{value}", said), key
    assert in_order(path)
    image = sk.open(path)
    assert not image.exists("deep") and not image.exists("none")
    passwd = image.stat("etc/passwd")
    assert (passwd.uid, passwd.gid, passwd.modified_ns) == (7, 8, 10**17)
    assert sk.build(tree, path, uuid=str(own), force=True).uuid == str(own)


def test_sources_are_laid_over_each_other(tree: Path, tmp_path: Path) -> None:
    (tmp_path / "over/etc").mkdir(parents=True)
    (tmp_path / "over/etc/passwd").write_text("other")
    (tmp_path / "ignored").write_text("secret\n")
    sk.build(
        (tree, str(tmp_path / "over")), tmp_path / "x.img", exclude_from=tmp_path / "ignored"
    )
    image = sk.open(tmp_path / "x.img")
    assert image.read("etc/passwd") == b"other"
    assert image.list("etc") == ["passwd"]


def test_progress_goes_forward(many: Path, tmp_path: Path) -> None:
    calls: list[tuple[int, int]] = []
    built = sk.build(many, tmp_path / "x.img", progress=lambda *it: calls.append(it))
    assert calls and calls == sorted(calls)
    assert calls[-1] == (built.size, built.size)


def test_what_a_trace_reads_lies_first(many: Path, tmp_path: Path) -> None:
    plain, laid, again = (tmp_path / name for name in ("plain", "laid", "again"))
    trace = sk.Trace.of_paths(["/007", "/280", "/130", "/131"])
    trace.save(tmp_path / "x.trace")
    sk.build(many, plain)
    sk.build(many, laid, trace=tmp_path / "x.trace", storage="lazy", chunk=65536)
    optimized = sk.optimize(plain, again, trace=[trace], chunk=65536)
    assert in_order(laid) and in_order(again)
    before = sk.score(plain, trace, chunk=65536)
    assert sk.score(laid, trace).seeks < before.seeks
    gain = optimized.traces[0]
    assert gain.before.seeks == before.seeks
    assert gain.after.seeks == sk.score(again, trace).seeks < before.seeks
    assert gain.after.chunks[65536] < gain.before.chunks[65536]
    assert optimized.other_runs == []
    assert sk.compare(plain, sk.open(again)) == []


def test_images_like_older_ones(many: Path, tmp_path: Path) -> None:
    old, listed = tmp_path / "old", tmp_path / "list"
    sk.build(many, old)
    assert sk.layout_list(old, listed).size == listed.stat().st_size
    (tmp_path / "more").mkdir()
    (tmp_path / "more/added").write_text("text")
    for name, like in (("image", old), ("by-list", listed)):
        sk.build([many, tmp_path / "more"], tmp_path / name, like=like)
        assert in_order(tmp_path / name)
    assert digest(tmp_path / "image") == digest(tmp_path / "by-list")
    first, second = sk.sharing([old, tmp_path / "image"], chunk=4096)
    assert first.new == first.chunks and second.new < second.chunks // 10
    found = sk.compare(old, tmp_path / "image")
    assert [(it.path, it.change) for it in found] == [("added", "added")]


def test_warnings_go_to_the_logger(tree: Path, tmp_path: Path, caplog: Any) -> None:
    with caplog.at_level(logging.WARNING, "seekless"):
        sk.build(tree / "deep", tmp_path / "x.fat", format="fat", drop="all")
    records = [it for it in caplog.records if it.name == "seekless"]
    assert any("symlink" in it.getMessage() for it in records), records


def test_traces(tmp_path: Path) -> None:
    first = sk.Trace.of_paths(["/a", b"/caf\xe9", Path("/b")])
    first.save(tmp_path / "x.trace")
    loaded = sk.Trace.load(tmp_path / "x.trace")
    assert len(loaded) == 6
    assert loaded.paths() == first.paths()
    assert loaded.paths()[::2] == ["/a", "/caf\udce9", "/b"]
    merged = sk.Trace.merge(first, [tmp_path / "x.trace"])
    assert len(merged) == 12
    assert sorted(merged.paths()) == sorted(first.paths() * 2)
    with pytest.raises(sk.HostError):
        sk.Trace.load(tmp_path / "nothing")


def test_wrong_arguments(tree: Path, tmp_path: Path) -> None:
    path = tmp_path / "x.img"
    wrong: list[dict[str, Any]] = [
        {"format": "zfs"},
        {"storage": "tape"},
        {"freed": "keep"},
        {"drop": "some"},
        {"chunk": 0},
        {"format": "ufs2", "block_size": 4096},
    ]
    for options in wrong:
        with pytest.raises(sk.UsageError):
            sk.build(tree, path, **options)
    with pytest.raises(TypeError):
        sk.build(7, path)  # type: ignore[arg-type]
    with pytest.raises(ValueError):
        sk.build(tree, path, uuid="no")
    assert not list(tmp_path.iterdir())


def test_each_layer_becomes_an_image(tmp_path: Path) -> None:
    archives = [archive({"a": b"lower", "b": b"stays"}), archive({".wh.a": b"", "c": b"upper"})]
    (tmp_path / "image").write_bytes(container(archives))
    out = tmp_path / "layers"
    trace = sk.Trace.of_paths(["/b"])
    layers = sk.build_layers(tmp_path / "image", out, trace=trace, reuse=True)
    assert [one.diff_id[7:] for one in layers] == [hashlib.sha256(a).hexdigest() for a in archives]
    listed = json.loads((out / "layers.json").read_text())
    assert [one["file"] for one in listed["layers"]] == [one.file for one in layers]
    assert all(in_order(out / one.file) for one in layers)
    lower, upper = (sk.open(out / one.file) for one in layers)
    assert (lower.read("/a"), lower.read("/b"), upper.read("/c")) == (b"lower", b"stays", b"upper")
    assert upper.stat("/a").kind == "char-device"
    assert not upper.exists("/.wh.a")

    for one in layers:
        found = hashlib.sha256((out / one.file).read_bytes()).hexdigest()
        assert (one.sha256, one.reused) == (f"sha256:{found}", False)
    again = sk.build_layers(tmp_path / "image", out, trace=trace, reuse=True)
    assert [one.reused for one in again] == [True, True]
    plain = sk.build_layers(tmp_path / "image", out, reuse=True, label="new")
    assert [one.reused for one in plain] == [False, False]
    assert sk.open(out / plain[0].file).volume.label == "new"

    (tmp_path / "upper.tar").write_bytes(archives[1])
    sk.build(tmp_path / "upper.tar", tmp_path / "upper.img", whiteouts="overlay")
    assert sk.open(tmp_path / "upper.img").stat("/a").kind == "char-device"
    with pytest.raises(sk.UsageError, match="not the archive of one layer"):
        sk.build(tmp_path / "image", tmp_path / "x", whiteouts="overlay")
    kept = sk.build_layers(tmp_path / "image", tmp_path / "kept", whiteouts="keep")
    assert [(one.sha256, one.reused) for one in kept] == [(None, False)] * 2
    assert sk.open(tmp_path / "kept" / kept[1].file).exists("/.wh.a")
    with pytest.raises(sk.UsageError, match="whiteouts='?\"?aufs"):
        sk.build_layers(tmp_path / "image", tmp_path / "x", whiteouts="aufs")  # type: ignore
    with pytest.raises(sk.UsageError):
        sk.build_layers(tmp_path / "image", tmp_path / "x", format="fat")
    with pytest.raises(sk.ExistsError):
        sk.build_layers(tmp_path / "image", out)
    assert not (tmp_path / "x").exists()


def test_files_have_the_format_that_is_asked_for(tree: Path, tmp_path: Path) -> None:
    sk.build(tree, tmp_path / "raw", label="x")
    raw = (tmp_path / "raw").read_bytes()
    formats = {"vhd": b"conectix", "simg": bytes.fromhex("3aff26ed"), "qcow2": b"QFI\xfb"}
    for word, magic in formats.items():
        path = tmp_path / word
        built = sk.build(tree, path, label="x", output_format=word)  # type: ignore[arg-type]
        assert built.size == len(raw)
        contents = path.read_bytes()
        assert contents.startswith(magic) or word == "vhd" and contents[-512:].startswith(magic)
        assert sk.compare(tmp_path / "raw", path) == []
    # The end of the name is not asked then.
    sk.build(tree, tmp_path / "x.simg", label="x", output_format="raw")
    assert (tmp_path / "x.simg").read_bytes() == raw
    with pytest.raises(sk.UsageError, match="output_format"):
        sk.build(tree, tmp_path / "x", output_format="zip")  # type: ignore[arg-type]


def test_disks_have_the_partitions_that_are_defined(tree: Path, tmp_path: Path) -> None:
    defined = tmp_path / "repart.d"
    defined.mkdir()
    (defined / "10-esp.conf").write_text("[Partition]\nType=esp\nSizeMinBytes=8M\n")
    root = "[Partition]\nType=root\nLabel=system\nCopyFiles=/etc:/conf\nVerity=data\n"
    (defined / "20-root.conf").write_text(root + "VerityMatchKey=root\n")
    tree_of = "[Partition]\nType=root-verity\nVerity=hash\nVerityMatchKey=root\n"
    (defined / "30-verity.conf").write_text(tree_of + "SizeMinBytes=1M\n")
    path = tmp_path / "disk.vhd"
    trace = sk.Trace.of_paths(["/etc/passwd"])
    disk = sk.build_disk(
        tree, path, defined, architecture="arm64", size=64 << 20, output_format="raw", trace=trace
    )
    assert disk.size == path.stat().st_size == 64 << 20
    kinds = [(it.kind, it.format) for it in disk.partitions]
    assert kinds == [("esp", None), ("root-arm64", "ext4"), ("root-arm64-verity", None)]
    table = json.loads(judge("sfdisk", "--json", path).stdout)["partitiontable"]["partitions"]
    for one, found in zip(disk.partitions, table):
        place = (found["start"] * 512, found["size"] * 512, found["name"], found["uuid"].lower())
        assert (one.start, one.size, one.name, one.uuid) == place
    root_part, hashes = disk.partitions[1:]
    image = sk.open(path, partition="system")
    assert image.read("/conf/passwd") == (tree / "etc/passwd").read_bytes()
    assert image.volume.label == root_part.name == "system" and root_part.files > 2
    assert hashes.root_hash is not None
    verify = ["--hash-offset=0", hashes.root_hash]
    (tmp_path / "data").write_bytes(path.read_bytes()[root_part.start :][: root_part.size])
    (tmp_path / "hashes").write_bytes(path.read_bytes()[hashes.start :][: hashes.size])
    done = judge("veritysetup", "verify", tmp_path / "data", tmp_path / "hashes", *verify)
    assert done.returncode == 0, done.stderr
    assert disk.to_dict()["partitions"][1]["name"] == "system"
    with pytest.raises(sk.UsageError):
        sk.build_disk(tree, tmp_path / "x", defined, size=(64 << 20) + 512)
    with pytest.raises(sk.NoSpaceError):
        sk.build_disk(tree, tmp_path / "x", defined, size=1 << 20)
    (defined / "20-root.conf").write_text("[Partition]\nFormat=btrfs\n")
    with pytest.raises(sk.UnsupportedError, match="20-root.conf"):
        sk.build_disk(tree, tmp_path / "x", defined)
    with pytest.raises(sk.UsageError, match="pdp11"):
        sk.build_disk(tree, tmp_path / "x", defined, architecture="pdp11")  # type: ignore
    assert not (tmp_path / "x").exists()
