"""Runs a command and counts what it reads from a block device, by the kernel's trace events:
requests, those that do not begin where the one before ended, bytes, and the numbers of the chunks
of 512K that they touch, as JSON. Needs root.

    block_requests.py /dev/loop0 COMMAND...
"""
import json, os, re, subprocess, sys

CHUNK = 512 << 10
device, *command = sys.argv[1:]
number = os.stat(device).st_rdev
number = os.major(number) << 20 | os.minor(number)
instance = f"/sys/kernel/tracing/instances/block-requests-{os.getpid()}"
os.mkdir(instance)


def put(name, text):
    with open(f"{instance}/{name}", "w") as file:
        file.write(text)


try:
    put("buffer_size_kb", "16384")
    put("events/block/block_rq_issue/filter", f"dev == {number}")
    put("events/block/block_rq_issue/enable", "1")
    subprocess.run(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    put("events/block/block_rq_issue/enable", "0")
    with open(f"{instance}/trace") as file:
        events = [line for line in file if "block_rq_issue:" in line]
finally:
    os.rmdir(instance)

requests, seeks, sectors, head, chunks = 0, 0, 0, None, set()
for line in events:
    found = re.search(r"block_rq_issue: \d+,\d+ (\w+) \d+ \(.*?\) (\d+) \+ (\d+) ", line)
    if "R" not in found[1]:
        continue
    start, length = int(found[2]), int(found[3])
    requests += 1
    seeks += head is not None and start != head
    sectors += length
    head = start + length
    chunks.update(range(start * 512 // CHUNK, (head * 512 - 1) // CHUNK + 1))
print(json.dumps({"requests": requests, "seeks": seeks, "bytes": sectors * 512, "chunks": sorted(chunks)}))
