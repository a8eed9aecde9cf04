# The two commands of the README are `make demo` and `make test`; `make help` lists the rest.
.DEFAULT_GOAL := help
PREFIX ?= /usr/local
sysconfdir ?= /etc
libdir ?= $(PREFIX)/lib
unitdir ?= $(sysconfdir)/systemd/system
# Where files are staged is no business of the builds of dependencies, which use make too: without these two lines
# `make install DESTDIR=...` would install a dependency's library there, and cargo would never find it again.
MAKEOVERRIDES :=
unexport DESTDIR PREFIX libdir sysconfdir unitdir built
BUILT := $(or $(CARGO_TARGET_DIR),target)
# The command and the libraries of `linerate run`.
PACKAGES := --package linerate --package linerate-pcap --package linerate-sockets
# What `linerate lab` starts: a workspace of its own, built like the other one.
LAB := --config Cargo.toml --manifest-path lab/Cargo.toml --target-dir $(BUILT)
C_PACKAGES := --package linerate-segment-c --package linerate-udp-c
# Where that which is installed was built.
built ?= $(BUILT)/release
INSTALL := DESTDIR='$(DESTDIR)' prefix='$(PREFIX)' libdir='$(libdir)' sysconfdir='$(sysconfdir)' \
	unitdir='$(unitdir)' built='$(built)' scripts/install

help: ## this list
	@sed -n 's/^\([a-z-]*\):.*## \(.*\)/  make \1\t\2/p' $(MAKEFILE_LIST) | expand -t 24

demo: ## real traffic in namespaces, all four jobs beside their rivals: report/index.html
	@scripts/setup demo
	cargo build --profile demo --target-dir $(BUILT) $(PACKAGES)
	cargo build --profile demo $(LAB)
	@scripts/as-root $(BUILT)/demo/linerate lab demo --out report

test: ## every test that needs no virtual machine
	@scripts/setup test
	@scripts/test

test-kernel: ## the patches of kernel/: builds Linux with them, runs their tests in a virtual machine
	@scripts/setup build
	@scripts/setup kernel
	@scripts/test-kernel

test-kernels: ## root tests on Debian's own kernels, each in a virtual machine; target/kernels/report.json
	@scripts/setup kernels
	@scripts/test-kernels

test-arm64: ## the same on arm64, and the package of `make packages-arm64` there
	@scripts/setup kernels
	@LINERATE_KERNELS_ARCH=arm64 scripts/test-kernels
	@[ ! -e "$$(echo target/packages/linerate_*_arm64.deb)" ] || LINERATE_KERNELS_ARCH=arm64 LINERATE_KERNELS_ONLY='Debian 13 arm64' \
		scripts/test-kernels run "scripts/kernels/package target/packages/linerate_*_arm64.deb"

test-router: ## size of linerate-router, and its memory with 4,096 sessions in a small virtual machine
	@scripts/setup kernels
	@scripts/test-router

test-costs: build ## instructions that a packet costs, counted in an emulator; BEFORE=COMMAND: another build beside it
	@scripts/setup kernels
	@scripts/test-costs $(built)/linerate $(BEFORE)

test-compilers: ## the BPF programs by each clang from 14 to 22, loaded here and on Debian's kernels
	@scripts/setup compilers
	@scripts/test-compilers

packages: ## .deb, .rpm, tarball, OCI image, their SBOMs and sums: target/packages; most of it builds linerate-flows
	@scripts/setup packages
	@scripts/packages

packages-arm64: ## the same for arm64, built on amd64
	@scripts/setup packages
	@scripts/packages arm64

test-packages: ## the packages of `make packages`: lintian; installed, used and purged on Debian 12 and 13
	@scripts/setup packages
	@scripts/test-packages

test-systemd: ## the package of `make packages` on Debian 12 and 13 in virtual machines: services, reboot, upgrade, purge
	@scripts/setup packages
	@scripts/test-systemd

time-first-use: ## a new user's first steps on Debian 13, in seconds: from the .deb to a file, to Prometheus, to tshark
	@scripts/setup packages
	@scripts/time-first-use

test-crates: ## the crates as cargo publishes them, and a project outside of the workspace that uses them
	@scripts/setup build
	@scripts/test-crates

test-quinn: ## quinn's own tests over linerate-udp, on each backend
	@scripts/setup build
	@scripts/test-quinn

test-vhost-user: build ## a virtual machine on `linerate uplink --vhost-user`, beside TAP and bridge
	@scripts/setup site
	@scripts/setup kernels
	@scripts/test-vhost-user $(built)/linerate

test-clients: ## a capture under 10,000 connections to its metrics for half an hour: no packet or file lost, no memory
	@LINERATE_TEST_CLIENTS_SECONDS=1800 scripts/test -p linerate --test it hostile::ten_thousand

test-dashboards: ## Prometheus on live verbs: every panel has a series, every alert fires for its fault
	@scripts/setup dashboards
	@LINERATE_TEST_DASHBOARDS=1 scripts/test -p linerate --test it dashboards::

site: ## the documents as a site that works offline: target/site/book/index.html
	@scripts/setup site
	@scripts/site

test-site: site ## the site: no dead link, every page in Chromium, search; and each code block of the documents
	@scripts/test-site
	@cargo build --quiet --target-dir $(BUILT) $(PACKAGES)
	@cargo build --quiet $(LAB)
	@scripts/test -p linerate --test it blocks::

flows: ## the release build of linerate-flows, which `linerate flows` and `linerate find` start: minutes, for DataFusion
	@scripts/setup build
	cargo build --release --locked --manifest-path flows/Cargo.toml --target-dir $(BUILT)

test-flows: ## the tests of linerate-flows, against tcpdump, and its formatting and clippy
	@scripts/setup flows
	cargo fmt --manifest-path flows/Cargo.toml --check
	cargo clippy --quiet --locked --manifest-path flows/Cargo.toml --target-dir $(BUILT) --all-targets -- -D warnings
	@scripts/test --manifest-path flows/Cargo.toml --target-dir $(BUILT)

test-fleet: ## linerate-flows beside Spark, ClickHouse, Kafka and others on the same records; downloads them
	@scripts/setup fleet
	@scripts/test-fleet

build: ## the release build of the command, of `linerate lab` and of the library of `linerate run`
	@scripts/setup build
	cargo build --release --target-dir $(BUILT) $(PACKAGES)
	cargo build --release $(LAB)

build-c: ## the release build of the C libraries
	@scripts/setup build
	cargo build --release --target-dir $(BUILT) $(C_PACKAGES)

lint: ## formatting, clippy, documentation, licences
	cargo fmt --all --check
	cargo fmt --manifest-path lab/Cargo.toml --check
	cargo clippy --workspace --all-targets -- -D warnings
	cargo clippy $(LAB) --all-targets -- -D warnings
	RUSTDOCFLAGS='-D warnings' cargo doc --workspace --no-deps
	RUSTDOCFLAGS='-D warnings' cargo doc $(LAB) --no-deps
	cargo deny check licenses bans sources
	cargo deny --manifest-path lab/Cargo.toml --config deny.toml check licenses bans sources

bench: ## benchmarks of single functions; whole-system figures come from `linerate lab`
	cargo bench --workspace

install: build ## command, its library, man pages, completions, documents under PREFIX (/usr/local); DESTDIR stages
	@$(INSTALL) install command

install-service: install ## the systemd units of `linerate forward` and `linerate capture`, with a configuration where there is none
	@$(INSTALL) install service

install-flows: flows ## linerate-flows under PREFIX
	@$(INSTALL) install flows

install-c: build-c ## the C libraries (segment and coalesce; receive), their headers and pkg-config files under PREFIX
	@$(INSTALL) install c

uninstall: ## removes what install, install-service, install-flows and install-c have installed; a changed configuration stays
	@$(INSTALL) uninstall command flows service c

.PHONY: help demo test test-systemd test-arm64 test-router test-compilers test-costs test-quinn test-vhost-user test-clients test-dashboards flows test-flows test-fleet site test-site test-kernel test-kernels packages packages-arm64 test-packages time-first-use test-crates build lint bench build-c \
	install install-service install-flows install-c uninstall
