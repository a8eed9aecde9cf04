# The two commands of the README are `make demo` and `make test`; `make help` lists the rest.
.DEFAULT_GOAL := help
PREFIX ?= /usr/local
UNITS ?= /etc/systemd/system
BUILT := $(or $(CARGO_TARGET_DIR),target)
# The command, what `linerate lab` starts, and the library of `linerate run`.
PACKAGES := --package linerate --package linerate-lab --package linerate-pcap

help: ## this list
	@sed -n 's/^\([a-z-]*\):.*## \(.*\)/  make \1\t\2/p' $(MAKEFILE_LIST) | expand -t 24

demo: ## two hosts, real traffic, Linerate beside tcpdump, report/index.html
	@scripts/setup demo
	cargo build --release --target-dir $(BUILT) $(PACKAGES)
	@scripts/as-root $(BUILT)/release/linerate lab demo --out report

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

build: ## the release build of the command, of `linerate lab` and of the library of `linerate run`
	@scripts/setup build
	cargo build --release --target-dir $(BUILT) $(PACKAGES)

lint: ## formatting, clippy, documentation, licences
	cargo fmt --all --check
	cargo clippy --workspace --all-targets -- -D warnings
	RUSTDOCFLAGS='-D warnings' cargo doc --workspace --no-deps
	cargo deny check licenses bans sources

bench: ## benchmarks of single functions; whole-system figures come from `linerate lab`
	cargo bench --workspace

install: build ## command, its library, man pages, completions under PREFIX (/usr/local)
	install -D -s -m 755 $(BUILT)/release/linerate $(DESTDIR)$(PREFIX)/bin/linerate
	install -D -s -m 755 $(BUILT)/release/linerate-lab $(DESTDIR)$(PREFIX)/libexec/linerate/linerate-lab
	install -D -m 755 $(BUILT)/release/liblinerate_pcap.so $(DESTDIR)$(PREFIX)/lib/linerate/libpcap.so.0.8
	ln -sf libpcap.so.0.8 $(DESTDIR)$(PREFIX)/lib/linerate/libpcap.so.1
	ln -sf libpcap.so.0.8 $(DESTDIR)$(PREFIX)/lib/linerate/libpcap.so
	install -D -m 644 crates/linerate-pcap/include/linerate/pcap.h $(DESTDIR)$(PREFIX)/include/linerate/pcap.h
	$(BUILT)/release/linerate manual $(DESTDIR)$(PREFIX)/share/man/man1
	install -d $(DESTDIR)$(PREFIX)/share/bash-completion/completions $(DESTDIR)$(PREFIX)/share/zsh/site-functions $(DESTDIR)$(PREFIX)/share/fish/vendor_completions.d
	$(BUILT)/release/linerate completion bash > $(DESTDIR)$(PREFIX)/share/bash-completion/completions/linerate
	$(BUILT)/release/linerate completion zsh > $(DESTDIR)$(PREFIX)/share/zsh/site-functions/_linerate
	$(BUILT)/release/linerate completion fish > $(DESTDIR)$(PREFIX)/share/fish/vendor_completions.d/linerate.fish

install-service: install ## the systemd unit of `linerate forward`, and its configuration where there is none
	install -d $(DESTDIR)$(UNITS)
	sed 's|@PREFIX@|$(PREFIX)|' packaging/systemd/linerate-forward.service.in > $(DESTDIR)$(UNITS)/linerate-forward.service
	test -e $(DESTDIR)/etc/linerate/forward.toml || install -D -m 644 packaging/forward.toml $(DESTDIR)/etc/linerate/forward.toml

install-c: install-c-segment install-c-udp ## the C libraries (segment and coalesce; receive), their headers and pkg-config files under PREFIX

install-c-%:
	cargo build --release --target-dir $(BUILT) --package linerate-$*-c
	install -D -m 755 $(BUILT)/release/liblinerate_$*_c.so $(DESTDIR)$(PREFIX)/lib/liblinerate-$*.so.0
	ln -sf liblinerate-$*.so.0 $(DESTDIR)$(PREFIX)/lib/liblinerate-$*.so
	install -D -m 644 $(BUILT)/release/liblinerate_$*_c.a $(DESTDIR)$(PREFIX)/lib/liblinerate-$*.a
	install -D -m 644 crates/linerate-$*-c/include/linerate/$*.h $(DESTDIR)$(PREFIX)/include/linerate/$*.h
	install -d $(DESTDIR)$(PREFIX)/lib/pkgconfig
	sed 's|@PREFIX@|$(PREFIX)|; s|@VERSION@|$(shell sed -n 's/^version = "\(.*\)"/\1/p' Cargo.toml)|' crates/linerate-$*-c/linerate-$*.pc.in > $(DESTDIR)$(PREFIX)/lib/pkgconfig/linerate-$*.pc

.PHONY: help demo test test-kernel test-kernels build lint bench install install-service install-c
