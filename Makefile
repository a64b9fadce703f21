# What a contributor runs. Every target works on a fresh clone.

CARGO ?= cargo

.PHONY: all static dist dist-test wheel package test judges lint bench figures demo

# All but the Python module, which `wheel` makes.
all:
	$(CARGO) build --release --workspace --exclude seekless-python

# Programs that need no other file, for an initramfs: with musl where Rust and the C
# compiler have it, else with the C library of this system. Printed: their sizes, and
# where they are. ARCH=aarch64 makes it for that processor, with Debian's cross compiler.
HOST_ARCH := $(shell uname -m)
ARCH := $(HOST_ARCH)
static:
	@set -e; target=$(ARCH)-unknown-linux-musl; \
	if [ $(ARCH) != $(HOST_ARCH) ] || ! [ -d "$$(rustc --print target-libdir --target $$target)" ] || ! command -v musl-gcc >/dev/null; then \
	    target=$(ARCH)-unknown-linux-gnu; fi; \
	if [ $(ARCH) != $(HOST_ARCH) ]; then \
	    cross=$(ARCH)-linux-gnu-gcc; \
	    [ -d "$$(rustc --print target-libdir --target $$target)" ] || { echo "Rust's library is missing: rustup target add $$target" >&2; exit 1; }; \
	    command -v $$cross >/dev/null || { echo "$$cross is missing: apt-get install gcc-$$(echo $(ARCH) | tr _ -)-linux-gnu" >&2; exit 1; }; \
	    export CARGO_TARGET_$$(echo $$target | tr a-z- A-Z_)_LINKER=$$cross CC_$$(echo $$target | tr - _)=$$cross; fi; \
	RUSTFLAGS="-C target-feature=+crt-static" $(CARGO) build -p seekless-cli -p seekless-prefetch --profile static --target $$target; \
	for made in seekless-prefetch seekless; do \
	    made=$${CARGO_TARGET_DIR:-target}/$$target/static/$$made; \
	    if LC_ALL=C readelf -lW "$$made" | grep -q INTERP; then echo "$$made is not static" >&2; exit 1; fi; \
	    stat -c "%s bytes  %n" "$$made"; done

# What is given out, in target/dist: a static program, an archive with manual pages and
# completions, a Debian package. ARCHES="x86_64 aarch64" makes them for both processors.
# `dist-test` has lintian look at the packages and installs that of this machine in a clean
# Debian; it needs root.
dist:
	dist/make.sh

dist-test:
	dist/test.sh

# The wheel of the Python module, in target/dist. ARCHES="x86_64 aarch64" makes it for both
# processors.
wheel:
	dist/wheel.sh

# The sources of all crates as `cargo publish` would send them, each built from what is in its
# package.
package:
	$(CARGO) package --workspace

# Formatting, lints, and every test. The judges (e2fsck, the kernel's own mount,
# GNU tar and others) need packages and, to mount, root. As root a missing judge
# is a failure; else the tests that need it are left out, counted and named.
# Test programs are linted when they are compiled, and not optimised (.ci/rustc).
test: export LINTED = --lib --bins --examples --bench '*'
test: export RUSTC_WORKSPACE_WRAPPER = $(CURDIR)/.ci/rustc
test: export CLIPPY_ARGS = $(CLIPPY_DENY)
test:
	$(MAKE) --jobs=2 judges lint
	CARGO="$(CARGO)" .ci/tests

# As `cargo clippy -- -D warnings` calls the compiler: what it has just checked is not checked again
# for the documentation.
CLIPPY_DENY = -D__CLIPPY_HACKERY__warnings__CLIPPY_HACKERY__
CLIPPY = RUSTC_WORKSPACE_WRAPPER="$$(rustc --print sysroot)/bin/clippy-driver" CLIPPY_ARGS=$(CLIPPY_DENY)
LINTED ?= --all-targets
lint:
	.ci/markers
	.ci/measure --check
	$(CARGO) fmt --all --check
	$(CARGO) clippy --workspace $(LINTED) -- -D warnings
	$(CLIPPY) RUSTDOCFLAGS="-D warnings" $(CARGO) doc --workspace --no-deps

judges:
	.ci/judges

# Builds the peers and prints the tables on speed of docs/figures.md.
bench:
	bench/run.sh

# The tables and pictures of docs that the program alone determines, made by it and written
# into their pages. CHECK=1 only says which of them are stale; ONLY="scale ageing" for some.
figures: all
	bench/figures.py $(if $(CHECK),--check) $(ONLY)

demo:
	demo/run.sh
