# cri-evictd. `make` alone lists what there is.

GO      ?= go
BIN     := bin/cri-evictd
VERSION ?=
LDFLAGS := -s -w $(if $(VERSION),-X main.release=$(VERSION))
# Packages that start containers run alone, after the others: they measure the
# machine's memory.
LAB     := ./internal/lab/... ./test/...
CACHE   ?= $(or $(CRI_EVICTD_CACHE),$(XDG_CACHE_HOME),$(HOME)/.cache)/cri-evictd-lint
FUZZTIME ?= 3s
SOAK     ?= 10m
N        ?= 20000

ERRCHECK    := github.com/kisielk/errcheck@v1.30.0
ERRORLINT   := github.com/polyfloyd/go-errorlint@v1.8.0
STATICCHECK := honnef.co/go/tools/cmd/staticcheck@v0.8.2
VULNCHECK   := golang.org/x/vuln/cmd/govulncheck@v1.9.0
LINTERS     := $(CACHE)/errcheck-v1.30.0 $(CACHE)/go-errorlint-v1.8.0 $(CACHE)/staticcheck-v0.8.2

.DEFAULT_GOAL := help

.PHONY: help
help: ## list the targets
	@grep -hE '^[a-z][a-z0-9-]*:.*## ' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 14

.PHONY: build
build: ## build the binary at bin/cri-evictd
	CGO_ENABLED=0 $(GO) build -trimpath -ldflags '$(LDFLAGS)' -o $(BIN) ./cmd/cri-evictd

# Where install puts things; DESTDIR comes in front.
PREFIX  ?= /usr
BINDIR  ?= $(PREFIX)/bin
LIBDIR  ?= $(PREFIX)/lib/cri-evictd
UNITDIR ?= /usr/lib/systemd/system
UNITS   := cri-evictd.socket cri-evictd-proxy.service cri-evictd.service cri-evictd-bypass.service \
           cri-evictd-handback.service cri-evictd-handback.timer cri.slice cri-evictd.slice
SCRIPTS := proxy-stopped bypassed

.PHONY: install
install: build ## install the binary and the systemd units (PREFIX=/usr, DESTDIR=); nothing is enabled or started
	install -D -m 0755 $(BIN) $(DESTDIR)$(BINDIR)/cri-evictd
	install -d -m 0755 $(DESTDIR)$(LIBDIR) $(DESTDIR)$(UNITDIR) $(DESTDIR)/etc/cri-evictd
	install -m 0755 $(addprefix systemd/,$(SCRIPTS)) $(DESTDIR)$(LIBDIR)
	set -e; for u in $(UNITS); do \
	  sed 's#/usr/bin/cri-evictd#$(BINDIR)/cri-evictd#; s#/usr/lib/cri-evictd/#$(LIBDIR)/#' systemd/$$u >$(DESTDIR)$(UNITDIR)/$$u; \
	  chmod 0644 $(DESTDIR)$(UNITDIR)/$$u; \
	done

.PHONY: uninstall
uninstall: ## remove what install put there; configuration and state stay
	rm -f $(DESTDIR)$(BINDIR)/cri-evictd $(addprefix $(DESTDIR)$(UNITDIR)/,$(UNITS)) $(addprefix $(DESTDIR)$(LIBDIR)/,$(SCRIPTS))
	rmdir $(DESTDIR)$(LIBDIR) 2>/dev/null || true

.PHONY: demo
demo: build ## show the main job on a real containerd (root, Debian, 6 GiB of available memory, 1 to 3 minutes)
	$(GO) run ./internal/lab/demo -binary $(BIN)

.PHONY: test
test: test-unit test-lab ## run every test with the race detector (as root all of them, else those that need root are skipped and say so)

.PHONY: test-unit
test-unit: ## run the tests that start no container
	GO="$(GO)" .ci/race $$($(GO) list ./... | grep -vE '/(internal/lab|test)(/|$$)')

.PHONY: test-lab
test-lab: ## run the tests on real containerd 1.6 and 2.4, those beside a kubelet and an API server among them (root)
	GO="$(GO)" .ci/race -p=1 -timeout=30m $(LAB)

.PHONY: test-vm
test-vm: ## run the tests that need cgroup v2, systemd or a memory to exhaust, in a virtual machine (root, Debian, x86_64; ARGS='-only packed'; ARGS=-all: every end-to-end test with both cgroup drivers and the systemd units, hours; ARGS='-all -only ^units': the units, 25 minutes)
	$(GO) build -o bin/evictd-vm ./test/vm
	bin/evictd-vm test $(ARGS)
	$(if $(ARGS),,bin/evictd-vm powercut -cuts 5)

.PHONY: soak-vm
soak-vm: ## watch in the virtual machine for SOAK (10m) each that load without shortage costs no pod (root, Debian, x86_64)
	$(GO) build -o bin/evictd-vm ./test/vm
	bin/evictd-vm soak -for $(SOAK) $(ARGS)

.PHONY: soak-powercut
soak-powercut: ## cut the virtual machine's power 50 times at random points of evictions and hand-overs (ARGS='-cuts 5 -seed 1'; root, Debian, x86_64)
	$(GO) build -o bin/evictd-vm ./test/vm
	bin/evictd-vm powercut -cuts 50 -pictures 10 $(ARGS)

.PHONY: vm
vm: ## run CMD='a shell line' in the virtual machine (ARGS='-m 1024 -swap 512 -share DIR:/mnt:rw'; root, Debian, x86_64)
	@$(GO) build -o bin/evictd-vm ./test/vm
	@bin/evictd-vm run $(ARGS) -- "$${CMD:?say what to run: make vm CMD='uname -a'}"

.PHONY: e2e
e2e: ## run the tests beside a real kubelet and API server; as test-lab does too (root; 5 minutes)
	$(GO) test -race -count 1 -timeout 30m -v ./test/cluster

.PHONY: conformance
conformance: build ## run critest directly and through the proxy on a real containerd 2.4 and compare (root, Debian 12, 6 minutes)
	$(GO) run ./test/conformance -binary $(BIN)

.PHONY: soak
soak: build soak-cluster ## kill containerd, proxy and evictor at random while pods come and go, for SOAK (10m), after soak-cluster (root)
	$(GO) run ./test/soak -binary $(BIN) -for $(SOAK)

.PHONY: soak-handover
soak-handover: ## restart the proxy 200 times under load on a real containerd, and hand over to programs that hang (root, 4 minutes)
	CRI_EVICTD_RESTARTS=200 $(GO) test -count 1 -timeout 30m -v -run '^(TestRestartsUnderLoad|TestProgramThatHangs)' ./test/handover

.PHONY: soak-cluster
soak-cluster: ## run all of e2e's matrix, with pods coming and going for SOAK (10m), directly and through the proxy (root)
	CRI_EVICTD_SOAK=$(SOAK) $(GO) test -race -count 1 -timeout 4h -v ./test/cluster

.PHONY: comparison
comparison: ## evict the same pods by kubelet and by cri-evictd and write the tables of docs/kubelet-comparison.md (root; 10 minutes)
	CRI_EVICTD_SOAK=$(SOAK) CRI_EVICTD_COMPARISON=$(CURDIR)/docs/kubelet-comparison.md $(GO) test -count 1 -timeout 30m -v -run TestComparison ./test/cluster

.PHONY: soak-kubelet
soak-kubelet: ## run the tests on a real kubelet with one that has no Pods API (1.34; ten minutes more to build it the first time) (root)
	CRI_EVICTD_KUBELET=1.34.4 $(GO) test -race -count 1 -timeout 60m -v ./test/kubelet

.PHONY: soak-gc
soak-gc: ## 100 passes of garbage collection beside a real kubelet and a control node, 200 on a small disk under pulls and creations (root, 20 minutes)
	CRI_EVICTD_GC_PASSES=100 $(GO) test -count 1 -timeout 30m -run TestForcedPassesHarmNobody -v ./test/kubelet
	CRI_EVICTD_GC_PASSES=200 $(GO) test -count 1 -timeout 60m -run TestImagesBeingUsedSurvive -v ./test/e2e

.PHONY: kubeletdiff
kubeletdiff: ## compare N (20000) random scenarios, and what it parses, with kubelet's own eviction code (SEED=...; N=1000 SEED=1 for a short run; the first time kubelet is compiled)
	cd test/kubeletdiff && $(GO) test -c -o ../../bin/kubeletdiff.test .
	cd test/kubeletdiff && KUBELETDIFF_N=$(N) KUBELETDIFF_PARSE=$$(($(N) * 10)) KUBELETDIFF_ORDER=$$(($(N) / 6)) KUBELETDIFF_SEED=$(SEED) ../../bin/kubeletdiff.test -test.v -test.timeout 6h
	cd test/kubeletdiff && ../../bin/kubeletdiff.test -test.run '^$$' -test.fuzz '^FuzzParse$$' -test.fuzztime $(FUZZTIME) -test.fuzzcachedir ../../bin/kubeletdiff.fuzz

.PHONY: fuzz
fuzz: ## run every fuzz target for FUZZTIME (3s; 2000x: that many inputs)
	GO="$(GO)" .ci/fuzz $(FUZZTIME)

.PHONY: bench
bench: build ## measure: reaction to a hog on a real containerd (root), then every Go benchmark
	$(GO) run ./internal/lab/reaction -binary $(BIN)
	$(GO) test -run '^$$' -bench . -benchmem ./...

.PHONY: bench-memory
bench-memory: ## measure the evictor's memory with 500 pods and the watch of them at a real API server (root)
	$(GO) test -count 1 -run TestMemoryWith500Pods -v ./test/kubelet

.PHONY: bench-proxy
bench-proxy: build ## measure what the proxy costs beside a byte relay and a typed proxy (5 minutes; ARGS=-quick for a smoke run)
	$(GO) build -o bin/benchproxy ./test/benchproxy
	bin/benchproxy -binary $(BIN) $(ARGS)

.PHONY: cover
cover: ## print test coverage by package, without the containers
	$(GO) test -cover $$($(GO) list ./... | grep -vE '/(internal/lab|test)(/|$$)')

.PHONY: lint
lint: $(LINTERS) ## gofmt, vet, errcheck, errorlint, staticcheck, import directions, go.mod, both architectures
	@test -z "$$(gofmt -l $$(git ls-files '*.go'))" || { echo "gofmt: $$(gofmt -l $$(git ls-files '*.go'))"; exit 1; }
	$(GO) vet ./...
	GOARCH=arm64 CGO_ENABLED=0 $(GO) vet ./...
	$(CACHE)/errcheck-v1.30.0 -exclude lint/errcheck.txt ./...
	$(CACHE)/go-errorlint-v1.8.0 -test=false ./...
	$(CACHE)/staticcheck-v0.8.2 ./...
	$(GO) test ./internal/layout
	$(GO) mod tidy -diff

.PHONY: vuln
vuln: ## known vulnerabilities, by govulncheck; where its database is not reachable, that direct dependencies are the newest served
	GO=$(GO) lint/vuln $(VULNCHECK)

.PHONY: docs
docs: ## write the generated pages of docs/
	$(GO) run ./internal/configdoc > docs/configuration.md.new && mv docs/configuration.md.new docs/configuration.md
	$(GO) run ./internal/metricsdoc > docs/metrics.md.new && mv docs/metrics.md.new docs/metrics.md

.PHONY: clean
clean: ## remove what was built (not the cache of downloaded programs)
	rm -rf bin

# Linters are built once per version, outside the work tree.
$(CACHE)/errcheck-v1.30.0:
	$(call tool,$(ERRCHECK),errcheck,$@)
$(CACHE)/go-errorlint-v1.8.0:
	$(call tool,$(ERRORLINT),go-errorlint,$@)
$(CACHE)/staticcheck-v0.8.2:
	$(call tool,$(STATICCHECK),staticcheck,$@)

define tool
	@mkdir -p $(CACHE)
	@dir=$$(mktemp -d $(CACHE)/.build.XXXXXX) && GOBIN=$$dir $(GO) install $(1) && mv $$dir/$(2) $(3) && rmdir $$dir
endef
