#!/usr/bin/env bash
# Large files that are read in small pieces, laid out for a disk, an SSD and a lazily fetched volume.
# Prints the tables of docs/figures.md. Root, for FUSE; python3 with its module sqlite3.
#
#   random   1,000 reads of 4 KiB at random in a file of 100 MB
#   sqlite   a query of a database of 150 MB by one index; another query, by another index, is read
#            on the same images
set -euo pipefail

here=$(cd "$(dirname "$0")/.." && pwd)
seekless=${SEEKLESS:-${CARGO_TARGET_DIR:-$here/target}/release/seekless}
dir=$(mktemp -d "${TMPDIR:-/var/tmp}/scattered.XXXXXX")
clean() { umount -l "$dir/at" 2>/dev/null || true; rm -rf "$dir"; }
trap clean EXIT
cd "$dir"
mkdir at

# A figure of a trace on an image: $1 is the expression of the JSON object.
figure() {
    "$seekless" score "$2" --trace "$3" --device sata-7200 --chunk 64K --chunk 512K --chunk 1M --json |
        python3 -c "import json, sys; score = json.load(sys.stdin); print($1)"
}

extents() { debugfs -R "stat $2" "$1" 2>/dev/null | grep -o '([0-9-]*):' | wc -l; }

# Rows of an image: its name $1, the image $2, the file $3, and the traces.
row() {
    local name=$1 image=$2 file=$3 trace
    shift 3
    printf '| %s | %s |' "$name" "$(extents "$image" "$file" | sed ':a; s/\B[0-9]\{3\}\b/,&/; ta')"
    for trace in "$@"; do
        printf ' %s |' "$(figure '"{:,}; {}".format(score["seeks"], ", ".join(f"{n:,}" for _, n in sorted(score["chunks"].items(), key=lambda it: int(it[0]))))' "$image" "$trace")"
    done
    printf ' %s |\n' "$(figure '"{:.2f}".format(score["devices"][0]["seconds"])' "$image" whole.trace)"
}

# Lays an image out for each kind of storage by the first trace, and prints the rows.
rows() {
    local file=$1 kind
    shift
    rm -f whole.trace
    printf '%s\n' "$file" >whole.list
    "$seekless" trace import --paths whole.list -o whole.trace >/dev/null
    row "as built" built.img "$file" "$@"
    for kind in disk ssd lazy; do
        "$seekless" optimize built.img --trace "$1" -o new.img --for "$kind" --force >/dev/null
        row "\`--for $kind\`" new.img "$file" "$@"
    done
}

random() {
    mkdir tree
    head -c 100000000 /dev/urandom >tree/file
    mke2fs -q -F -t ext4 -b 4096 -d tree built.img 256M
    python3 - >random.trace <<'PY'
import json, random
random.seed(1)
print(json.dumps({"seekless_trace": 1}))
for n in range(1000):
    offset = random.randrange(100_000_000 // 4096) * 4096
    print(json.dumps({"time": n * 1000, "op": "read", "path": "/file", "pid": 1, "offset": offset, "length": 4096}))
PY
    echo "| | extents | the trace: seeks; chunks of 64K, 512K, 1M | whole file, s on sata-7200 |"
    echo "|---|---|---|---|"
    rows /file random.trace
    rm -r tree
}

# Runs a query on the database in the image; records it.
query() {
    "$seekless" mount -f built.img at --record "$2" >/dev/null 2>&1 &
    local server=$!
    until mountpoint -q at; do sleep 0.05; done
    python3 -c "
import sqlite3
db = sqlite3.connect('file:at/db?mode=ro&immutable=1', uri=True)
print(db.execute('''$1''').fetchone()[0])" >/dev/null
    umount at
    wait "$server"
}

sqlite() {
    mkdir tree
    python3 - <<'PY'
import random, sqlite3
random.seed(1)
db = sqlite3.connect("tree/db")
db.execute("create table parts (id integer primary key, maker integer, place integer, note text)")
row = lambda n: (n, random.randrange(20_000), random.randrange(20_000), "%0180d" % random.getrandbits(600))
db.executemany("insert into parts values (?, ?, ?, ?)", map(row, range(750_000)))
db.execute("create index by_maker on parts (maker)")
db.execute("create index by_place on parts (place)")
db.commit()
PY
    "$seekless" build tree -o built.img --force >/dev/null
    query 'select sum(length(note)) from parts indexed by by_maker where maker between 500 and 540' one.trace
    query 'select sum(length(note)) from parts indexed by by_place where place between 500 and 540' two.trace
    echo "| | extents | the query: seeks; chunks of 64K, 512K, 1M | another query | whole file, s on sata-7200 |"
    echo "|---|---|---|---|---|"
    rows /db one.trace two.trace
}

random
echo
sqlite
