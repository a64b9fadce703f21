#!/usr/bin/env python3
"""The tables of bench/programs.sh, from its results in a directory: files
PROGRAM.BLOCKSIZE.LAYOUT.json of `seekless score --verify-program`."""
import json
import os
import statistics
import sys

NAMES = {"imports": "python imports", "log": "`git log -p`", "compile": "`gcc -O2`, linked",
         "find": "`find`, `xargs wc`", "parallel": "`xargs -P4 cat`",
         "postgres": "PostgreSQL started, asked, stopped", "install": "`apt-get install hello`"}
LAYOUTS = ["mke2fs", "cp", "optimized", "again"]

found = {}
for name in os.listdir(sys.argv[1]):
    if not name.endswith(".json"):
        continue
    program, block, layout = name.removesuffix(".json").split(".")
    with open(os.path.join(sys.argv[1], name)) as file:
        found[program, int(block), layout] = json.load(file)

rows = [(program, block, layout) for program in NAMES for block in sorted({b for _, b, _ in found}, reverse=True)
        for layout in LAYOUTS if (program, block, layout) in found]


def spread(one, key, scale=1):
    low, mid, high = (one["program"][key][of] / scale for of in ("min", "median", "max"))
    number = "{:,.1f}" if scale > 1 else "{:,.0f}"
    text = number.format(mid)
    return text if low == high else f"{text} ({number.format(low)} to {number.format(high)})"


def cell(one, predicted, key, scale=1):
    number = "{:,.1f}" if scale > 1 else "{:,.0f}"
    return f"{number.format(predicted / scale)}, {spread(one, key, scale)}"


print("| program | blocks | image | requests: score, program | seeks | MB | chunks of 512K |")
print("|---|---|---|---|---|---|---|")
for key in rows:
    program, block, layout = key
    if layout == "again":
        continue
    one = found[key]
    score = one["predicted"]
    print(f"| {NAMES[program]} | {block >> 10}K | {layout} | {cell(one, score['requests'], 'requests')} "
          f"| {cell(one, score['seeks'], 'seeks')} | {cell(one, score['bytes'], 'bytes', 1e6)} "
          f"| {cell(one, score['chunks']['524288'], 'chunks_524288')} |")

print("\n| blocks | figure | as built | optimized | recorded and optimized again |\n|---|---|---|---|---|")
for program, block, layout in rows:
    if layout != "mke2fs" or (program, block, "again") not in found:
        continue
    three = [found[program, block, which] for which in ("mke2fs", "optimized", "again")]
    distance = [statistics.median(run["seek_distance_bytes"] for run in one["runs"]) for one in three]
    floor = min(-(-run["bytes"] // 524288) for one in three for run in one["runs"])
    shown = lambda key: " | ".join(spread(one, key) for one in three)
    print(f"| {block >> 10}K | {NAMES[program]}: seeks | {shown('seeks')} |")
    print(f"| | summed distance, GB | {' | '.join(f'{d / 1e9:,.1f}' for d in distance)} |")
    print(f"| | chunks of 512K (floor {floor}) | {shown('chunks_524288')} |")
devices = sorted(key for key in one["program"] if key.startswith("ms_on_"))
if devices:
    columns = [f"{name.removeprefix('ms_on_')}: as built | optimized | ratio" for name in devices]
    print(f"\n| blocks | seconds | {' | '.join(columns)} |\n|---|---|{'---|---|---|' * len(devices)}")
for program, block, layout in rows:
    if layout != "mke2fs" or not devices or (program, block, "optimized") not in found:
        continue
    pairs = [[found[program, block, which]["program"][name]["median"] / 1e3 for which in ("mke2fs", "optimized")]
             for name in devices]
    cells = [f"{before:.2f} | {after:.2f} | {after / before:.2f}" for before, after in pairs]
    print(f"| {block >> 10}K | {NAMES[program]} | {' | '.join(cells)} |")
print(f"\nLinux {one['kernel_release']}, read_ahead_kb {one['read_ahead_kb']}")
