"""Random traces."""

import base64
import json


def trace(rng, paths, to):
    """A trace of random accesses: times, processes, ranges, names that are missing."""
    lines, at = [json.dumps({"seekless_trace": 1, "recorder": "seed"})], 0
    chosen = rng.sample(paths, min(len(paths), rng.choice([1, 10, 50, 400])))
    for path in chosen:
        for _ in range(rng.choice([1, 1, 2, 4])):
            at += rng.randrange(200000)
            ops = ["read", "read", "open", "stat", "lookup", "readdir", "readlink", "exec", "mmap", "fault"]
            event = {"time": at, "op": rng.choice(ops)}
            if rng.random() < .5:
                event["pid"] = rng.randrange(1, 5)
            if rng.random() < .05:
                path = path + b"/missing"
                event["missing"] = True
            try:
                event["path"] = path.decode()
            except UnicodeDecodeError:
                event["path_b64"] = base64.b64encode(path).decode()
            if event["op"] in ("read", "fault", "mmap") and rng.random() < .5:
                event["offset"] = rng.choice([0, 1, 4096, 100000, 1 << 32, 1 << 50])
                event["length"] = rng.choice([0, 1, 4096, 100000, 1 << 40])
                if rng.random() < .3:
                    event["fetched"] = True
            lines.append(json.dumps(event))
    to.write_text("\n".join(lines) + "\n")
