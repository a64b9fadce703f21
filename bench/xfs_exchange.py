"""Sets the feature exchange (XFS_SB_FEAT_INCOMPAT_EXCHRANGE) in the superblock of an image of
XFS that is not mounted, where mkfs.xfs is older than 6.10: for measurements and tests only.
"""
import sys

FEATURES, CHECKSUM = slice(216, 220), slice(224, 228)


def crc32c(data):
    crc = 0xFFFFFFFF
    for byte in data:
        crc ^= byte
        for _ in range(8):
            crc = (crc >> 1) ^ (0x82F63B78 if crc & 1 else 0)
    return crc ^ 0xFFFFFFFF


with open(sys.argv[1], "r+b") as image:
    head = image.read(512)
    assert head[:4] == b"XFSB", "not XFS"
    image.seek(0)
    sector = bytearray(image.read(int.from_bytes(head[102:104], "big")))
    stored = int.from_bytes(sector[CHECKSUM], "little")
    sector[CHECKSUM] = bytes(4)
    assert crc32c(sector) == stored, "wrong checksum"
    features = int.from_bytes(sector[FEATURES], "big") | 1 << 6
    sector[FEATURES] = features.to_bytes(4, "big")
    sector[CHECKSUM] = crc32c(sector).to_bytes(4, "little")
    image.seek(0)
    image.write(sector)
