#!/bin/bash
# The torture test of soft updates (FreeBSD, sys/ufs/ffs/README: doit, doit1, doit2, doit3) on a
# mounted file system of any kind, at least until it is interrupted or the rounds are done:
#
#   bench/torture.sh DIR [andrew] [etc] [find]
#
# DIR     a directory on the file system; a subdirectory `torture` is made in it, and removed
# andrew  the Andrew benchmark, ROUNDS times (doit1)
# etc     /etc copied and removed, ROUNDS times, with pauses of up to 60 s between (doit2)
# find    find from the file system's top, ROUNDS / 2 times, with pauses of up to 100 s (doit3)
# With none of the names all three run at the same time (doit).
#
#   ROUNDS  [1000]
#   PAUSES  factor of all pauses, 0 for none [1]
#   ETC     the directory to copy [/etc]
#   SEED    of the pauses [1]
#
# Prints the time, and the reads and writes of the block device where the file system has one. The
# README has no source for the benchmark: 70 files of C of 200 KB in 20 directories are generated,
# as in the lab's experiment `softdep`, and compiled by `cc`.
set -euo pipefail
dir=${1:?usage: bench/torture.sh DIR [andrew] [etc] [find]}
shift
tests=("$@")
[ ${#tests[@]} -gt 0 ] || tests=(andrew etc find)
for test in "${tests[@]}"; do
    case $test in andrew | etc | find) ;; *) echo "unknown test '$test'" >&2; exit 2 ;; esac
done
rounds=${ROUNDS:-1000}
etc=${ETC:-/etc}
seed=${SEED:-1}
cc=$(command -v cc || command -v gcc || true)
case " ${tests[*]} " in
    *" andrew "*) [ -n "$cc" ] || { echo "andrew needs a C compiler (cc)" >&2; exit 2; } ;;
esac
work=$dir/torture
mkdir "$work"
pids=()
# Everything that was started ends, and what it made is removed.
finish() {
    for pid in "${pids[@]}"; do kill -- "-$pid" 2>/dev/null || true; done
    wait
    rm -rf "$work"
}
trap finish EXIT
trap 'exit 130' INT TERM
top=$(stat -c %m "$dir")
device=/sys/dev/block/$(mountpoint -d "$top")/stat

# Seconds up to the given number, by chance.
pause() {
    local span
    span=$(awk -v most="$1" -v by="${PAUSES:-1}" -v chance="$RANDOM" \
        'BEGIN { printf "%.3f", most * by * chance / 32767 }')
    sleep "$span"
}

# 20 directories with 70 files, whose sum is 200 KB.
source_tree() {
    python3 - "$1" "$seed" <<'PYTHON'
import os, random, sys
top, chance = sys.argv[1], random.Random(int(sys.argv[2]))
sizes = [chance.lognormvariate(8.0, 1.0) for _ in range(70)]
for number, size in enumerate(sizes):
    folder = os.path.join(top, f"dir{number % 20:02}")
    os.makedirs(folder, exist_ok=True)
    text, line = "", 0
    while len(text) < size * 200_000 / sum(sizes):
        text += f"int f{number}_{line}(int a) {{ return a * {line + 1} + {number}; }}\n"
        line += 1
    with open(os.path.join(folder, f"file{number:02}.c"), "w") as file:
        file.write(text)
PYTHON
}

# The five phases: directories, copies, inodes, contents, compilation.
andrew() {
    local round file
    for ((round = 0; round < rounds; round++)); do
        (cd "$work/source" && find . -type d) | (mkdir "$work/copy" && cd "$work/copy" && xargs mkdir -p)
        (cd "$work/source" && find . -type f -exec cp {} "$work/copy/{}" \;)
        find "$work/copy" -exec ls -ld {} + > /dev/null
        find "$work/copy" -type f -exec wc {} \; > /dev/null
        while IFS= read -r file; do "$cc" -c -o "${file%.c}.o" "$file"; done < <(find "$work/copy" -name '*.c')
        rm -r "$work/copy"
    done
}

copies() {
    local round
    for ((round = 0; round < rounds; round++)); do
        cp -r "$etc" "$work/etc" 2>/dev/null || true
        pause 60
        rm -rf "$work/etc"
        pause 60
    done
}

finds() {
    local round
    for ((round = 0; round < (rounds + 1) / 2; round++)); do
        # Others remove files meanwhile.
        find "$top" -xdev > /dev/null 2>&1 || true
        pause 100
    done
}

case " ${tests[*]} " in *" andrew "*) source_tree "$work/source" ;; esac
sync -f "$dir"
before=$([ -r "$device" ] && awk '{ print $1, $5 }' "$device" || echo "- -")
began=$(date +%s.%N)
failed=0
# A test, with pauses of its own.
begin() {
    RANDOM=$1
    case $2 in andrew) andrew ;; etc) copies ;; find) finds ;; esac
}
set -m
for test in "${tests[@]}"; do
    begin $((seed + ${#pids[@]})) "$test" &
    pids+=($!)
done
set +m
for pid in "${pids[@]}"; do wait "$pid" || failed=1; done
pids=()
sync -f "$dir"
ended=$(date +%s.%N)
after=$([ -r "$device" ] && awk '{ print $1, $5 }' "$device" || echo "- -")
echo "$before $after $began $ended" | awk -v tests="${tests[*]}" '{
    printf "%s: %.1f s", tests, $6 - $5
    if ($1 != "-") printf ", %d reads, %d writes", $3 - $1, $4 - $2
    print ""
}'
exit $failed
