# SPDX-License-Identifier: GPL-2.0
#
# What a person types. How the module is built stands in Kbuild, and what each step does in scripts/.

# The Debian kernel line (see scripts/versions) and its flavour: cloud, rt or debug.
KERNEL ?= forky
FLAVOUR ?= cloud
# Length of the soaks, in seconds.
SOAK ?= 5
SOAK_FULL ?= 600
export SOAK

.NOTPARALLEL:
# Length of the torture, in seconds.
T ?= 600
.PHONY: all module install rust-analyzer tools demo test check soak torture fuzz bench robot lint hooks clean prune help install-host uninstall-host deb

## cpupeek: what make can do. KERNEL= and FLAVOUR= choose another kernel (scripts/versions, cloud|rt|debug).
##
##   make demo                 boots Debian's own kernel in QEMU and shows the cpupeek command
##   make test                 host tests, and the selftests in a guest
##   make check                test, linters, debug kernel, rt kernel, second kernel line
##   make soak                 all of it with soaks at full length (SOAK_FULL= seconds)
##   make torture T=600        everything at once, for so many seconds on each kernel; SEED= repeats a run, GUEST=stock|debug
##   make fuzz T=600           the same for random input, guided by coverage
##   make bench                what reading costs, with cpupeek and without; ENV="tcg4 tcg2poll tcg8 tcg16 kvm2" or all, BOOTS=N
##   make robot                the module for kernels of other configurations (CONFIG=NAME: one of scripts/robot.d)
##   make lint                 the linters alone
##   make [module]             the module, to build/RELEASE/cpupeek.ko; CLIPPY=1 lints it instead
##   make tools                the command and what the tests need
##   make KDIR=TREE            the module for a kernel tree of your own, with your own tools
##   make KDIR=TREE install    and into /lib/modules (INSTALL_MOD_PATH= for elsewhere)
##   make deb                  packages for Debian: build/deb/cpupeek_*.deb, cpupeek-dkms_*.deb
##   make install-host         installs it on this machine, without packages (DESTDIR= for elsewhere); uninstall-host
##   make rust-analyzer        rust-project.json for editors
##   make hooks                offers the quick linters to git as a commit hook
##   make clean                removes what was built here; the cache stays
##   make prune                removes from the cache what this checkout would not use
all: module

# With KDIR, the tree is somebody's own, and so are the tools on PATH.
ifdef KDIR

override KDIR := $(abspath $(KDIR))
kdir_out = $(CURDIR)/build/$(kdir_release)/module
kdir_make = $(MAKE) -C $(KDIR) M=$(CURDIR) MO=$(kdir_out)
kdir_release = $(shell cat $(KDIR)/include/config/kernel.release 2>/dev/null)

module:
	@scripts/check-kdir $(KDIR) >/dev/null
	@mkdir -p $(kdir_out)
	+$(kdir_make) modules
	@cp $(kdir_out)/cpupeek.ko build/$(kdir_release)/
	@echo "built build/$(kdir_release)/cpupeek.ko"

install: module
	+$(kdir_make) modules_install

rust-analyzer: module
	@scripts/rust-analyzer $(KDIR)

else

module:
	@scripts/module $(KERNEL) $(FLAVOUR) $(if $(CLIPPY),CLIPPY=$(CLIPPY))

install:
	@echo "cpupeek: say for which kernel: make KDIR=<a built kernel tree with CONFIG_RUST=y> install" >&2
	@false

rust-analyzer:
	@KERNEL=$(KERNEL) FLAVOUR=$(FLAVOUR) scripts/rust-analyzer

endif

tools:
	@scripts/in-root forky -- cargo build --quiet --release --locked --workspace --exclude cpupeek-machine

deb: tools
	@scripts/package

install-host: $(if $(SKIP_BUILD),,tools)
	@scripts/install-host

uninstall-host:
	@scripts/uninstall-host

demo: module tools
	@KERNEL=$(KERNEL) qemu/run --smp 4 --copy scripts/demo.sh:/root/demo -- sh /root/demo

test:
	@scripts/check host scripts abi stock kvm values

check:
	@scripts/check

soak:
	@SOAK=$(SOAK_FULL) scripts/check host scripts abi stock kvm values lint harness debug faults torture fuzz rt backports backports-rt msrv large robot-all policy tools docs install install-backports mutants

torture fuzz:
	@SOAK=$(T) scripts/lane $@

# Shells have an ENV of their own in the environment.
bench:
	@scripts/bench $(if $(BOOTS),--boots $(BOOTS)) $(if $(filter command,$(firstword $(origin ENV))),$(ENV))

robot:
	@scripts/robot $(CONFIG)

lint:
	@scripts/lint

hooks:
	git config core.hooksPath scripts/hooks

clean:
	rm -rf build target rust-project.json

prune:
	@scripts/prune

help:
	@sed -n 's/^##//p' Makefile
