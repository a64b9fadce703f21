# What a contributor runs. Every target works on a fresh clone.

CARGO ?= cargo

.PHONY: all test judges lint bench demo

all:
	$(CARGO) build --release

# Formatting, lints, and every test. The judges (e2fsck, the kernel's own mount,
# GNU tar and others) need packages and, to mount, root. As root a missing judge
# is a failure; else the tests that need it are left out, counted and named.
test: judges lint
	CARGO="$(CARGO)" .ci/tests

lint:
	.ci/markers
	$(CARGO) fmt --all --check
	$(CARGO) clippy --workspace --all-targets -- -D warnings
	RUSTDOCFLAGS="-D warnings" $(CARGO) doc --workspace --no-deps

judges:
	.ci/judges

# Builds the peers and prints the table of docs/performance.md.
bench:
	bench/run.sh

demo:
	demo/run.sh
