#!/usr/bin/env python3
"""A tree and a trace of its reads, of any number of events, for measurements of memory and time.

    bench/large_trace.py tree DIR           writes the tree
    bench/large_trace.py trace N [SEED]     writes a trace of N events to standard output

The tree has 20,000 files of 1 to 64 KiB in 500 directories, 100 of 1 MiB, and two of 32 MiB. Eight
processes run at a time; each looks up, opens and reads a dozen files, and ends. Half of these are
the same for most processes, as are libraries. Files are read in pieces of 32 KiB, the two large ones
in pieces of 16 KiB at random. The same N and SEED give the same trace.
"""

import heapq
import os
import random
import sys

FILES, MEDIUM, LARGE = 20_000, 100, 2
PIECE, PAGE_OF_DATABASE = 32 << 10, 16 << 10


def files():
    chance = random.Random(1)
    for number in range(FILES):
        yield f"/d{number % 500:03}/f{number:05}", chance.randrange(1 << 10, 64 << 10)
    for number in range(MEDIUM):
        yield f"/lib/m{number:03}", 1 << 20
    for number in range(LARGE):
        yield f"/db/large{number}", 32 << 20


def tree(root):
    chance = random.Random(2)
    for path, size in files():
        path = root + path
        os.makedirs(os.path.dirname(path), exist_ok=True)
        with open(path, "wb") as file:
            file.write(chance.randbytes(size))


def process(chance, pid, known):
    """The lines of a process, behind their times."""
    who = f'"pid":{pid},"comm":"p{pid % 20}"'
    lines = []
    for number in range(12):
        if number % 2:
            at = int(len(known) * chance.random() ** 12)
        else:
            at = chance.randrange(len(known))
        path, size = known[at]
        lines.append(f'{who},"op":"lookup","path":"{path}"}}\n')
        lines.append(f'{who},"op":"open","path":"{path}"}}\n')
        if size > 1 << 20:
            pieces = [(chance.randrange(size // PAGE_OF_DATABASE) * PAGE_OF_DATABASE, PAGE_OF_DATABASE) for _ in range(16)]
        else:
            pieces = [(offset, min(PIECE, size - offset)) for offset in range(0, size, PIECE)]
        for offset, length in pieces:
            lines.append(f'{who},"op":"read","path":"{path}","offset":{offset},"length":{length}}}\n')
    return iter(lines)


def trace(events, seed):
    chance = random.Random(seed)
    known = list(files())
    out = sys.stdout
    out.write('{"seekless_trace":1,"recorder":"bench"}\n')
    running = [(slot * 1000, slot, process(chance, 100 + slot, known)) for slot in range(8)]
    heapq.heapify(running)
    next_pid = 100 + len(running)
    while events:
        time, slot, lines = running[0]
        line = next(lines, None)
        if line is None:
            lines, next_pid = process(chance, next_pid, known), next_pid + 1
            line = next(lines)
        out.write(f'{{"time":{time},{line}')
        events -= 1
        heapq.heapreplace(running, (time + chance.randrange(2000, 20000), slot, lines))


if __name__ == "__main__":
    match sys.argv[1:]:
        case ["tree", root]:
            tree(root)
        case ["trace", events, *seed]:
            trace(int(events), int(seed[0]) if seed else 1)
        case _:
            sys.exit(__doc__)
