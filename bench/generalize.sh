#!/usr/bin/env bash
# Programs that run with another input than the one that was recorded. Each program is recorded once
# with each of two inputs, from an image by mke2fs; the image is optimized by the first recording,
# and, to compare, by the second; the program then runs from cold caches with the second input on
# all three. Its requests are counted at the block layer. Prints the table of docs/score.md. Root, for
# loop devices, overlayfs and the recorder; mmdebstrap, go, rustc, cargo; 20 GB in TMPDIR; the system
# and the crates come from the network.
#
#   bench/generalize.sh [PROGRAM...]   (default: perl ruby cargo office javac redis go sqlite)
#
#   SEEKLESS  the program [target/release/seekless]
#   SYSTEM    a tar of the Debian system that this makes [made]
#   MIRROR    where its packages come from [http://deb.debian.org/debian]
#   BLOCKS    sizes of blocks ["4096"]
#   RUNS      cold runs of each [3]
#   OPTIONS   of optimize [none]
set -euo pipefail

here=$(cd "$(dirname "$0")/.." && pwd)
seekless=$(realpath "${SEEKLESS:-$here/target/release/seekless}")
work=$(mktemp -d "${TMPDIR:-/var/tmp}/generalize.XXXXXX")
clean() {
    umount -R -l "$work/merged" 2>/dev/null || true
    umount -l "$work/over" 2>/dev/null || true
    umount -l "$work/mnt" 2>/dev/null || true
    rm -rf "$work"
}
trap clean EXIT
cd "$work"
mkdir mnt over merged tree
programs=("$@")
[ $# -gt 0 ] || programs=(perl ruby cargo office javac redis go sqlite)

system=${SYSTEM:-$work/system.tar}
[ -e "$system" ] || mmdebstrap --quiet --variant=minbase --include="perl,perl-doc,ruby,redis-server,sqlite3,gcc,\
libc6-dev,default-jdk-headless,libreoffice-calc-nogui,libreoffice-writer-nogui" \
    bookworm "$system" "${MIRROR:-http://deb.debian.org/debian}"
tar -C tree -xpf "$system" --exclude='./dev/*'
mkdir -p tree/usr/local tree/rust tree/work/{perl,ruby,office,java,redis,sqlite,go1,go2,cargo1/src,cargo2/src}
cp -a "$(go env GOROOT)" tree/usr/local/go
cp -a "$(rustc --print sysroot)"/{bin,lib} tree/rust/

# Go: two programs that have few packages in common.
for n in 1 2; do printf 'module hello\ngo 1.20\n' >tree/work/go$n/go.mod; done
cat >tree/work/go1/main.go <<'GO'
package main

import (
	"encoding/json"
	"fmt"
	"net/http"
)

func main() { b, _ := json.Marshal(1); fmt.Println(string(b), http.StatusOK) }
GO
cat >tree/work/go2/main.go <<'GO'
package main

import (
	"archive/zip"
	"database/sql"
	"go/parser"
	"image/png"
	"os"
	"text/template"
)

func main() {
	template.Must(template.New("").Parse("")).Execute(os.Stdout, png.BestSpeed)
	parser.ParseExpr("1")
	zip.NewWriter(os.Stdout).Close()
	sql.Drivers()
}
GO

# Rust: two programs with other crates.
for n in 1 2; do printf '[package]\nname = "hello"\nedition = "2021"\n[dependencies]\n' >tree/work/cargo$n/Cargo.toml; done
printf 'serde = { version = "1", features = ["derive"] }\nserde_json = "1"\nanyhow = "1"\n' >>tree/work/cargo1/Cargo.toml
echo 'fn main() { println!("{}", serde_json::json!({ "a": 1 })); }' >tree/work/cargo1/src/main.rs
printf 'regex = "1"\nrustix = "1"\nsmallvec = "1"\nhashbrown = "0.15"\n' >>tree/work/cargo2/Cargo.toml
echo 'fn main() { println!("{}", regex::Regex::new("a+").unwrap().is_match("aa")); }' >tree/work/cargo2/src/main.rs
for n in 1 2; do (cd tree/work/cargo$n && CARGO_HOME=$work/tree/work/home cargo fetch -q); done

# Java, with other packages of the JDK.
for n in $(seq 20); do
    printf 'import java.net.*; import java.time.*; import java.util.stream.*;\npublic class A%s { Object o() throws Exception {
 return IntStream.range(0, %s).boxed().collect(Collectors.toList()) + " " + Instant.EPOCH + new URI("http://a/").toURL(); } }\n' \
        "$n" "$n" >"tree/work/java/A$n.java"
    printf 'import java.sql.*; import java.util.concurrent.*; import javax.xml.parsers.*; import java.nio.file.*;
public class B%s { Object o(Connection c) throws Exception { ExecutorService e = Executors.newFixedThreadPool(%s);
 Files.walk(Path.of("/")).count(); DocumentBuilderFactory.newInstance(); return c.prepareStatement("" + e); } }\n' \
        "$n" "$n" >"tree/work/java/B$n.java"
done

# Texts and tables for LibreOffice; commands for redis, and a data set that it loads; a database of
# 190 MB with two indexes, whose rows lie in the order of neither.
python3 - tree/work <<'PY'
import os, random, sqlite3, sys
work = sys.argv[1]
random.seed(1)
words = ["".join(random.choices("abcdefghijklmnopqrstuvwxyz", k=random.randint(2, 9))) for _ in range(3000)]
with open(f"{work}/office/a.txt", "w") as out:
    for _ in range(400):
        out.write(" ".join(random.choices(words, k=60)) + "\n")
with open(f"{work}/office/b.csv", "w") as out:
    for n in range(2000):
        out.write(",".join([str(n)] + [str(random.random()) for _ in range(8)] + random.choices(words, k=3)) + "\n")
with open(f"{work}/redis/a", "w") as out:
    for n in range(2000):
        out.write(f"SET {random.choice(words)}{n} {random.random()}\nINCR counter\n")
with open(f"{work}/redis/b", "w") as out:
    for n in range(2000):
        out.write(f"ZADD board {random.random()} {random.choice(words)}\nLPUSH list {n}\n")
    out.write("EVAL 'return redis.call(\"ZCARD\", KEYS[1])' 1 board\nLRANGE list 0 10\nSAVE\n")
base = sqlite3.connect(f"{work}/sqlite/data.db")
base.execute("create table rows (id integer primary key, a integer, b integer, text text)")
base.executemany("insert into rows (a, b, text) values (?, ?, ?)",
                 ((random.randrange(10**6), random.randrange(10**6), " ".join(random.choices(words, k=20)))
                  for _ in range(1_000_000)))
base.execute("create index by_a on rows (a)")
base.execute("create index by_b on rows (b)")
base.commit()
PY
cat >tree/work/perl/a.pl <<'PL'
use strict; use JSON::PP; use File::Find; use Data::Dumper; use POSIX; use Time::Local; use Encode;
my $n = 0; find(sub { $n++ }, "/usr/share/perl5"); print encode("UTF-8", Dumper(JSON::PP->new->encode([$n, floor(1.5)])));
PL
cat >tree/work/ruby/a.rb <<'RB'
require "json"; require "yaml"; require "set"; require "erb"; require "optparse"
puts YAML.dump(JSON.parse('{"a": [1, 2]}')), ERB.new("<%= 1 %>").result, Dir["/usr/lib/ruby/**/*.rb"].size
RB
cat >tree/work/ruby/b.rb <<'RB'
require "csv"; require "net/http"; require "openssl"; require "rexml/document"; require "digest"; require "logger"
puts CSV.parse("a,b"), Digest::SHA256.hexdigest("a"), REXML::Document.new("<a/>"), URI("http://a/")
RB
# The second inputs of perl are programs of Perl itself.
cat >tree/start <<'SH'
#!/bin/sh
export PATH=/usr/local/go/bin:/rust/bin:/usr/sbin:/usr/bin:/bin HOME=/tmp TMPDIR=/tmp LC_ALL=C.UTF-8
cd /work
case $1 in
perl1) exec perl perl/a.pl ;;
perl2) pod2man /usr/lib/*/perl-base/POSIX.pod >/tmp/out 2>/dev/null || pod2man "$(command -v pod2man)" >/tmp/out
    perldoc -T -f sprintf >/tmp/text; exec perl -MText::Wrap -MMIME::Base64 -MDigest::SHA=sha1_hex -MStorable \
    -e 'print sha1_hex(encode_base64(wrap("", "", "a b c")))' ;;
ruby1) exec ruby ruby/a.rb ;;
ruby2) exec ruby ruby/b.rb ;;
cargo*) cd "$1" && CARGO_HOME=/work/home exec cargo build --offline -q --target-dir /tmp/target ;;
office1) exec soffice --headless --convert-to pdf --outdir /tmp office/a.txt ;;
office2) exec soffice --headless --convert-to xlsx --outdir /tmp office/b.csv ;;
javac1) exec javac -d /tmp/classes java/A*.java ;;
javac2) exec javac -d /tmp/classes java/B*.java ;;
redis*) input=$([ "$1" = redis1 ] && echo a || echo b)
    redis-server --dir /tmp --port 0 --unixsocket /tmp/redis --daemonize yes >/dev/null
    while ! redis-cli -s /tmp/redis ping >/dev/null 2>&1; do sleep 0.05; done
    redis-cli -s /tmp/redis <"redis/$input" >/tmp/answers
    redis-cli -s /tmp/redis shutdown nosave ;;
go*) cd "$1" && GOROOT=/usr/local/go GOCACHE=/tmp/cache GOFLAGS=-mod=mod GOTELEMETRY=off exec go build -o /tmp/hello . ;;
sqlite1) exec sqlite3 -readonly sqlite/data.db 'select max(text) from (select text from rows where a < 3000 order by a)' ;;
sqlite2) exec sqlite3 -readonly sqlite/data.db 'select max(text) from (select text from rows where b between 500000 and 503000 order by b)' ;;
esac
SH
chmod +x tree/start

# record IMAGE TRACE RUN: as `--verify-program --chroot` runs it, under an overlay.
record() {
    mount -o loop,ro,noatime "$1" mnt
    mount -t tmpfs none over
    mkdir over/upper over/work
    mount -t overlay -o lowerdir=mnt,upperdir=over/upper,workdir=over/work none merged
    for part in proc dev; do mount --rbind --make-rslave /$part merged/$part; done
    "$seekless" record --mount mnt -o "$2" -- chroot merged /start "$3" >/dev/null 2>record.log ||
        { cat record.log >&2; exit 1; }
    umount -R merged
    umount over
    umount mnt
}

# counted IMAGE TRACE RUN RESULT: exit code 1 is a prediction that does not hold.
counted() {
    "$seekless" score "$1" --trace "$2" --verify-program --chroot --runs "${RUNS:-3}" --json \
        -- /start "$3" >"$4" 2>"$4.err" || [ $? = 1 ] || { cat "$4.err" >&2; exit 1; }
}

echo '| program | blocks | requests: as built, laid out by the other input | seeks | seek distance, MB | chunks of 512K: as built, other input, own | of the gain kept |'
echo '|---|---|---|---|---|---|---|'
for block in ${BLOCKS:-4096}; do
    size=$(du -sm tree | cut -f1)
    mke2fs -q -F -t ext4 -b "$block" -d tree base.img $((size * 3 / 2 + 500))M >/dev/null
    e2fsck -fyD base.img >/dev/null 2>&1 || [ $? = 1 ]
    for program in "${programs[@]}"; do
        for n in 1 2; do
            record base.img $n.trace "$program$n"
            # shellcheck disable=SC2086
            "$seekless" optimize base.img --trace $n.trace ${OPTIONS:-} -o by$n.img --force -q >/dev/null
        done
        counted base.img 2.trace "${program}2" base.json
        counted by1.img 2.trace "${program}2" other.json
        counted by2.img 2.trace "${program}2" own.json
        [ -z "${RESULTS:-}" ] || cp 1.trace "$RESULTS/${program}1.trace"
        [ -z "${RESULTS:-}" ] || cp 2.trace "$RESULTS/${program}2.trace"
        python3 - "$program" "$block" <<'PY'
import json, statistics, sys
program, block = sys.argv[1:]
base, other, own = (json.load(open(f"{name}.json")) for name in ("base", "other", "own"))
median = lambda one, key: statistics.median(run[key] for run in one["runs"])
requests, seeks, distance = (
    [median(one, key) for one in (base, other, own)] for key in ("requests", "seeks", "seek_distance_bytes"))
chunks = [one["program"]["chunks_524288"]["median"] for one in (base, other, own)]
pair = lambda two, scale=1: f"{two[0] / scale:,.0f}, {two[1] / scale:,.0f} ({two[1] / two[0]:.2f})"
gain = chunks[0] - chunks[2]
kept = f"{(chunks[0] - chunks[1]) / gain:.0%}" if gain > 0 else "no gain"
print(f"| {program} | {int(block) >> 10}K | {pair(requests)} | {pair(seeks)} | {pair(distance, 1e6)} "
      f"| {', '.join(f'{c:,.0f}' for c in chunks)} | {kept} |", flush=True)
PY
    done
done
