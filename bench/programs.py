#!/usr/bin/env python3
"""Runs a program from cold caches on a mounted image and counts the reads that the
block layer issues for it.

    programs.py IMAGE RUNS COMMAND

{} in COMMAND stands for the mount point. Prints a line a run: requests, seeks
(requests that do not begin where the one before ended), megabytes, chunks of
512 KiB, summed distance of the seeks. Needs root."""
import os
import re
import subprocess
import sys
import tempfile

image, runs, command = sys.argv[1], int(sys.argv[2]), sys.argv[3]
CHUNK = 512 << 10
LINE = re.compile(r"block_rq_issue: \S+ (\S+) \d+ \(.*?\) (\d+) \+ (\d+)")

work = tempfile.mkdtemp()
mount, tracefs = work + "/mnt", work + "/tracefs"
os.mkdir(mount)
os.mkdir(tracefs)
subprocess.check_call(["mount", "-t", "tracefs", "none", tracefs])
instance = f"{tracefs}/instances/programs-{os.getpid()}"
os.mkdir(instance)
device = subprocess.check_output(
    ["losetup", "--find", "--show", "--read-only", "--direct-io=on", image], text=True).strip()


def put(path, value):
    with open(path, "w") as file:
        file.write(value)


try:
    put(f"/sys/block/{os.path.basename(device)}/queue/read_ahead_kb", "128")
    number = os.stat(device).st_rdev
    kernels = os.major(number) << 20 | os.minor(number)
    put(instance + "/buffer_size_kb", "32768")
    put(instance + "/events/block/block_rq_issue/filter", f"dev == {kernels}")
    put(instance + "/events/block/block_rq_issue/enable", "1")
    for _ in range(runs):
        subprocess.check_call(["mount", "-o", "ro,noatime", device, mount])
        os.sync()
        put("/proc/sys/vm/drop_caches", "3")
        put(instance + "/trace", "")
        put(instance + "/tracing_on", "1")
        subprocess.run(command.replace("{}", mount), shell=True,
                       stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        put(instance + "/tracing_on", "0")
        end, requests, seeks, size, distance, chunks = None, 0, 0, 0, 0, set()
        with open(instance + "/trace") as trace:
            for line in trace:
                found = LINE.search(line)
                if not found or "R" not in found[1]:
                    continue
                start, length = int(found[2]) * 512, int(found[3]) * 512
                requests += 1
                size += length
                if end is not None and start != end:
                    seeks += 1
                    distance += abs(start - end)
                end = start + length
                chunks.update(range(start // CHUNK, (end - 1) // CHUNK + 1))
        print(f"requests {requests}  seeks {seeks}  {size / 1e6:.1f} MB  "
              f"chunks {len(chunks)}  distance {distance / 1e9:.2f} GB", flush=True)
        subprocess.check_call(["umount", mount])
finally:
    subprocess.run(["umount", mount], stderr=subprocess.DEVNULL)
    subprocess.run(["losetup", "-d", device])
    put(instance + "/events/enable", "0")
    os.rmdir(instance)
    subprocess.run(["umount", tracefs])
    for path in (mount, tracefs, work):
        os.rmdir(path)
