"""docs/map.png: the reads of a compiler before and after `seekless optimize`, as seekless map draws
them. bench/map has the trace and the lengths of the toolchain's files; where reads fall depends on
nothing else.

The picture is a screenshot, which differs between versions of Chromium. So it has the digest of the
page of which it was taken, and that of its own pixels, in a comment: these are compared."""

import hashlib
import lzma
import os
import subprocess
import zlib

from .page import ROOT, Picture, figure
from .program import MIB, said

DATA = ROOT / "bench/map"
SIGNATURE = b"\x89PNG\r\n\x1a\n"
KEYWORD = b"Comment\0"


def tree(folder):
    """Files with the toolchain's paths and lengths. Their bytes do not matter, but holes would."""
    filled = b"\xff" * MIB
    for line in (DATA / "files").read_text().splitlines():
        length, path = line.split(" ", 1)
        path = folder / path
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("wb") as file:
            for at in range(0, int(length), MIB):
                file.write(filled[: int(length) - at])


def drawn(scratch):
    """The page of the map."""
    tree(scratch / "tree")
    (scratch / "rustc.trace").write_bytes(lzma.decompress((DATA / "rustc.trace.xz").read_bytes()))
    # The page names the images and the trace.
    os.chdir(scratch)
    uuid = "6b3a1cf0-52d1-4e0c-9a3e-0d7c5a9e41b2"
    said("build", "tree", "-o", "before.img", "--uuid", uuid)
    said("optimize", "before.img", "--trace", "rustc.trace", "-o", "after.img")
    said("map", "before.img", "after.img", "--trace", "rustc.trace", "--html", "map.html")
    for image in ["before.img", "after.img"]:
        os.remove(image)
    subprocess.run(["rm", "-r", "tree"], check=True)
    return scratch / "map.html"


def chunks(picture):
    """The chunks of a PNG file: length, kind, data, sum."""
    at = len(SIGNATURE)
    while at < len(picture):
        end = at + 12 + int.from_bytes(picture[at : at + 4], "big")
        yield picture[at:end]
        at = end


def is_comment(chunk):
    return chunk[4:8] == b"tEXt" and chunk[8:].startswith(KEYWORD)


def comment(page, picture):
    """A chunk with the digests of the page, and of all other chunks."""
    others = b"".join(chunk for chunk in chunks(picture) if not is_comment(chunk))
    text = f"page {hashlib.sha256(page).hexdigest()} chunks {hashlib.sha256(others).hexdigest()}"
    data = b"tEXt" + KEYWORD + text.encode()
    return (len(data) - 4).to_bytes(4, "big") + data + zlib.crc32(data).to_bytes(4, "big")


def with_comment(page, picture):
    first, *others = (chunk for chunk in chunks(picture) if not is_comment(chunk))
    return b"".join([SIGNATURE, first, comment(page, picture), *others])


@figure("map", Picture("map.png"))
def map_of_reads(report, picture):
    page = drawn(report.scratch)
    held = picture.path.read_bytes()
    made = with_comment(page.read_bytes(), held)
    if made != held and not report.check:
        screenshot = report.scratch / "map.png"
        environment = {**os.environ, "OUT": str(page.parent)}
        subprocess.run([ROOT / "demo/picture.sh", screenshot], check=True, env=environment, stdout=subprocess.DEVNULL)
        made = with_comment(page.read_bytes(), screenshot.read_bytes())
    report.picture(picture, made)
