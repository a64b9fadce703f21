#!/usr/bin/env bash
# The seeks that `seekless optimize` promises for runs that were not recorded, beside the seeks that
# such runs make, for programs with several threads or processes. Each program is recorded
# RECORDINGS times from an image by mke2fs; the image is optimized by all of the recordings; then the
# program runs RUNS times from cold caches. Then it runs from a disk with the times of DEVICE, served
# by `seekless disk --realtime`, three times before and after: how long the disk is busy with as many
# requests in its queue as the program and the kernel send. Prints the table of docs/score.md. Root,
# for loop devices, overlayfs, FUSE and the recorder; python3, gcc, make; 12 GB in TMPDIR.
#
#   bench/ranges.sh [PROGRAM...]     (default: those of make, javac, rustc, cargo, go, cat that this
#                                     machine has; cargo fetches crates from the network)
#
#   SEEKLESS    the program [target/release/seekless]
#   BLOCKS      sizes of blocks ["4096 1024"]
#   RECORDINGS  of each program [4]
#   RUNS        cold runs of each [10]; 0: nothing but recordings
#   KEEP        a directory for the recordings, and base.img, of which they are [none]
#   DEVICE      the disk that the requests are timed on [sata-7200]
set -euo pipefail

here=$(cd "$(dirname "$0")/.." && pwd)
seekless=$(realpath "${SEEKLESS:-$here/target/release/seekless}")
device=${DEVICE:-sata-7200}
work=$(mktemp -d "${TMPDIR:-/var/tmp}/ranges.XXXXXX")
loop= server=
clean() {
    umount -R -l "$work/merged" 2>/dev/null || true
    umount -l "$work/over" 2>/dev/null || true
    umount -l "$work/mnt" 2>/dev/null || true
    [ -z "$loop" ] || losetup -d "$loop" 2>/dev/null || true
    umount -l "$work/d" 2>/dev/null || true
    [ -z "$server" ] || wait "$server" 2>/dev/null || true
    rm -rf "$work"
}
trap clean EXIT
cd "$work"
mkdir mnt over merged d

has() { command -v "$1" >/dev/null; }
programs=("$@")
if [ ${#programs[@]} = 0 ]; then
    programs=(make cat)
    ! has javac || programs+=(javac)
    ! has rustc || programs+=(rustc)
    ! has cargo || programs+=(cargo)
    ! has go || programs+=(go)
fi

# This machine's compilers with their libraries and headers, and something to compile.
triple=$(gcc -print-multiarch)
mkdir -p tree/{usr/lib/"$triple",usr/local,tmp,proc,dev,etc,work/{c,go,java,cargo/src}}
cp -a /usr/bin /usr/sbin /usr/include /usr/lib64 tree/usr/ 2>/dev/null || true
for part in lib/gcc libexec/gcc lib/jvm; do
    [ ! -e "/usr/$part" ] || { mkdir -p "tree/usr/$(dirname $part)" && cp -a "/usr/$part" "tree/usr/$part"; }
done
find "/usr/lib/$triple" -maxdepth 1 ! -type d -exec cp -a {} "tree/usr/lib/$triple/" \;
cp -a /etc/alternatives /etc/java-* /etc/passwd /etc/group /etc/ld.so.cache tree/etc/ 2>/dev/null || true
ln -s usr/bin usr/lib usr/lib64 usr/sbin tree/
! has go || cp -a "$(go env GOROOT)" tree/usr/local/go
if has rustc; then
    mkdir tree/rust
    cp -a "$(rustc --print sysroot)"/{bin,lib} tree/rust/
fi
python3 - tree/work <<'PY'
import os, random, sys
random.seed(1)
headers = """stdio stdlib string math unistd sys/socket netinet/in pthread signal time sys/stat sys/mman dirent fcntl
ctype locale wchar search regex glob ftw poll sys/epoll sys/uio sys/wait termios syslog setjmp fenv complex inttypes
netdb arpa/inet pwd grp semaphore spawn sched""".split()
for n in range(60):
    lines = "".join(f"#include <{name}.h>\n" for name in random.sample(headers, 8))
    with open(f"{sys.argv[1]}/c/f{n}.c", "w") as file:
        file.write(f"{lines}int f{n}(int x) {{ return x * {n}; }}\n")
for n in range(30):
    with open(f"{sys.argv[1]}/java/C{n}.java", "w") as file:
        file.write("import java.net.*; import java.time.*; import java.util.*; import java.util.stream.*;\n"
                   f"public class C{n} {{ public static void main(String[] a) throws Exception {{"
                   f" List<Integer> l = IntStream.range(0, {n}).boxed().collect(Collectors.toList());"
                   " System.out.println(l + \" \" + Instant.EPOCH + new URI(\"http://a/\").toURL()); } }\n")
PY
echo 'int main(void) { return 0; }' >tree/work/c/main.c
cat >tree/work/c/Makefile <<'MAKE'
/tmp/program: $(addprefix /tmp/,$(patsubst %.c,%.o,$(wildcard *.c)))
	gcc -o $@ $^
/tmp/%.o: %.c
	gcc -O1 -c -o $@ $<
MAKE
printf 'module hello\ngo 1.20\n' >tree/work/go/go.mod
cat >tree/work/go/main.go <<'GO'
package main

import (
	"encoding/json"
	"fmt"
	"net/http"
)

func main() { b, _ := json.Marshal(1); fmt.Println(string(b), http.StatusOK) }
GO
printf '[package]\nname = "hello"\nedition = "2021"\n[dependencies]\nserde = { version = "1", features = ["derive"] }\n%s\n' \
    'serde_json = "1"
rustix = "1"
anyhow = "1"' >tree/work/cargo/Cargo.toml
echo 'fn main() { println!("{}", serde_json::json!({ "a": 1 })); }' >tree/work/cargo/src/main.rs
case " ${programs[*]} " in
*" cargo "*) (cd tree/work/cargo && CARGO_HOME=$work/tree/work/home cargo fetch -q) ;;
esac
cat >tree/start <<'SH'
#!/bin/sh
export PATH=/usr/local/go/bin:/rust/bin:/usr/bin:/bin HOME=/tmp TMPDIR=/tmp
cd "/work/$2" 2>/dev/null || cd /work
case $1 in
make) exec make -s -j4 /tmp/program ;;
cat) find /usr/include -name '*.h' -print0 | xargs -0 -P4 -n 50 cat >/dev/null ;;
javac) exec javac -d /tmp/classes ./*.java ;;
rustc) echo 'fn main() {}' >/tmp/a.rs && exec rustc -O /tmp/a.rs -o /tmp/a ;;
cargo) CARGO_HOME=/work/home exec cargo build --offline -q --target-dir /tmp/target ;;
go) GOROOT=/usr/local/go GOCACHE=/tmp/cache GOFLAGS=-mod=mod GOTELEMETRY=off exec go build -o /tmp/hello . ;;
esac
SH
chmod +x tree/start

folder_of() { case $1 in make) echo c ;; javac) echo java ;; *) echo "$1" ;; esac; }

# overlay: what `mnt` has, as `merged`, under an overlay: as `--verify-program --chroot` does it.
overlay() {
    mount -t tmpfs none over
    mkdir over/upper over/work
    mount -t overlay -o lowerdir=mnt,upperdir=over/upper,workdir=over/work none merged
    for part in proc dev; do mount --rbind --make-rslave /$part merged/$part; done
}

no_overlay() {
    umount -R merged
    umount over
    umount mnt
}

# record IMAGE TRACE PROGRAM
record() {
    mount -o loop,ro,noatime "$1" mnt
    overlay
    "$seekless" record --mount mnt -o "$2" -- chroot merged /start "$3" "$(folder_of "$3")" >/dev/null 2>record.log ||
        { cat record.log >&2; exit 1; }
    no_overlay
}

# busy IMAGE PROGRAM: for how many milliseconds the disk is busy while the program runs.
busy() {
    "$seekless" disk "$1" d --realtime --model "$device" >/dev/null &
    server=$!
    until [ -e d/disk ]; do sleep 0.02; done
    loop=$(losetup --find --show --direct-io=on --read-only d/disk)
    # That of most block devices; the kernel sets another one for a loop device on FUSE.
    echo 128 >"/sys/block/${loop#/dev/}/queue/read_ahead_kb"
    mount -o ro,noload,noatime "$loop" mnt
    overlay
    echo 3 >/proc/sys/vm/drop_caches
    echo 'phase program' >d/control
    chroot merged /start "$2" "$(folder_of "$2")" >/dev/null 2>busy.log || { cat busy.log >&2; exit 1; }
    python3 -c '
import json
print(next(phase["busy_ms"] for phase in json.load(open("d/stats.json"))["phases"] if phase["name"] == "program"))'
    no_overlay
    losetup -d "$loop"
    loop=
    # The kernel detaches the loop device a moment later.
    until umount d 2>/dev/null; do sleep 0.1; done
    wait "$server"
    server=
}

# counted IMAGE TRACE PROGRAM RUNS RESULT: exit code 1 is a prediction that does not hold.
counted() {
    "$seekless" score "$1" --trace "$2" --verify-program --chroot --runs "$4" --json --device "$device" \
        -- /start "$3" "$(folder_of "$3")" >"$5" 2>"$5.err" || [ $? = 1 ] || { cat "$5.err" >&2; exit 1; }
}

echo '| program | blocks | own order | promised | counted | runs inside | device time, of as built | with a queue |'
echo '|---|---|---|---|---|---|---|---|'
for block in ${BLOCKS:-4096 1024}; do
    size=$(du -sm tree | cut -f1)
    mke2fs -q -F -t ext4 -b "$block" -d tree base.img $((size * 3 / 2 + 500))M >/dev/null
    e2fsck -fyD base.img >/dev/null 2>&1 || [ $? = 1 ]
    for program in "${programs[@]}"; do
        traces=()
        for n in $(seq "${RECORDINGS:-4}"); do
            record base.img "$n.trace" "$program"
            traces+=(--trace "$n.trace")
        done
        if [ -n "${KEEP:-}" ]; then
            mkdir -p "$KEEP/$program"
            [ -e "$KEEP/base.img" ] || cp --sparse=always base.img "$KEEP/base.img"
            cp -- [0-9]*.trace "$KEEP/$program/"
        fi
        [ "${RUNS:-10}" != 0 ] || continue
        "$seekless" optimize base.img "${traces[@]}" -o new.img --force --json >gain.json
        counted base.img 1.trace "$program" 3 base.json
        counted new.img 1.trace "$program" "${RUNS:-10}" new.json
        for image in base new; do
            for _ in 1 2 3; do busy $image.img "$program"; done >$image.busy
        done
        python3 - "$program" "$block" "$device" <<'PY'
import json, statistics, sys
program, block, device = sys.argv[1:]
gain, base, new = (json.load(open(f"{name}.json")) for name in ("gain", "base", "new"))
least, most = gain["held_out"][0]["expected_seeks"]
own = [trace["after"]["seeks"] for trace in gain["traces"]]
runs = sorted(run["seeks"] for run in new["runs"])
inside = sum(least <= run <= most for run in runs)
time = [one["program"][f"ms_on_{device}"]["median"] for one in (base, new)]
busy = [statistics.median(map(float, open(f"{name}.busy"))) for name in ("base", "new")]
print(f"| {program} | {int(block) >> 10}K | {min(own):,} | {least:,} to {most:,} | {runs[0]:,} to {runs[-1]:,} "
      f"| {inside} of {len(runs)} | {time[1] / time[0]:.2f} | {busy[1] / busy[0]:.2f} |", flush=True)
PY
    done
done
