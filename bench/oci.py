#!/usr/bin/env python3
"""An OCI layout of a tar's contents in three layers, each compressed by gzip.

    bench/oci.py TREE.tar LAYOUT

A directory is in the first layer that has something of it, as registries' images have it.
"""
import gzip, hashlib, json, os, sys, tarfile

archive, layout = sys.argv[1:]
blobs = os.path.join(layout, "blobs", "sha256")
os.makedirs(blobs)


class Digest:
    """A file that counts and digests what is written to it."""

    def __init__(self, file):
        self.file, self.sum, self.size = file, hashlib.sha256(), 0

    def write(self, data):
        self.sum.update(data)
        self.size += len(data)
        return self.file.write(data)

    def flush(self):
        self.file.flush()


def blob(media, data):
    digest = hashlib.sha256(data).hexdigest()
    with open(os.path.join(blobs, digest), "wb") as out:
        out.write(data)
    return {"mediaType": media, "digest": f"sha256:{digest}", "size": len(data)}


kind = "application/vnd.oci.image."
layers, plain_sums = [], []
source = tarfile.open(archive)
members = source.getmembers()
third = sum(member.size for member in members) / 3
at = 0
for number in range(3):
    path = os.path.join(blobs, "layer")
    with open(path, "wb") as file:
        packed = Digest(file)
        with gzip.GzipFile(fileobj=packed, mode="wb", compresslevel=6, mtime=0) as squeezed:
            plain = Digest(squeezed)
            layer = tarfile.open(fileobj=plain, mode="w|", format=tarfile.PAX_FORMAT)
            size = 0
            while at < len(members) and (size < third or number == 2):
                member = members[at]
                layer.addfile(member, source.extractfile(member) if member.isreg() else None)
                size += member.size
                at += 1
            layer.close()
    os.rename(path, os.path.join(blobs, packed.sum.hexdigest()))
    layers.append({"mediaType": kind + "layer.v1.tar+gzip", "digest": f"sha256:{packed.sum.hexdigest()}", "size": packed.size})
    plain_sums.append(f"sha256:{plain.sum.hexdigest()}")
machine = {"x86_64": "amd64", "aarch64": "arm64"}.get(os.uname().machine, os.uname().machine)
config = {"architecture": machine, "os": "linux", "config": {}, "rootfs": {"type": "layers", "diff_ids": plain_sums}}
config = blob(kind + "config.v1+json", json.dumps(config).encode())
manifest = {"schemaVersion": 2, "mediaType": kind + "manifest.v1+json", "config": config, "layers": layers}
manifest = blob(kind + "manifest.v1+json", json.dumps(manifest).encode())
manifest["annotations"] = {"org.opencontainers.image.ref.name": "latest"}
with open(os.path.join(layout, "index.json"), "w") as out:
    json.dump({"schemaVersion": 2, "manifests": [manifest]}, out)
with open(os.path.join(layout, "oci-layout"), "w") as out:
    json.dump({"imageLayoutVersion": "1.0.0"}, out)
