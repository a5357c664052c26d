# Two commands matter: `make demo` trains and analyses an agent, `make test` proves that everything works.
# Both set up and build what they need, on a machine that has only Go, CMake, a C++20 compiler and Python.

BUILD := build
JOBS ?= $(shell nproc 2>/dev/null || sysctl -n hw.ncpu 2>/dev/null || echo 2)
GENERATOR := $(shell command -v ninja >/dev/null 2>&1 && echo Ninja || echo "Unix Makefiles")

PREFIX ?= /usr/local

.PHONY: help setup lib build installed install dist docs test test-cpp test-go test-aarch64 mutants bench bench-check demo lint clean

help: ## what can be made
	@awk -F ':.*## ' '/^[a-z0-9-]+:.*## /{printf "  make %-12s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

setup: ## find or install libtorch, check the prerequisites
	@bash scripts/setup.sh

lib: setup
	@cmake -S . -B $(BUILD) -G "$(GENERATOR)" >$(BUILD)/cmake.log 2>&1 || { cat $(BUILD)/cmake.log; exit 1; }
	@cmake --build $(BUILD) -j $(JOBS) --target gyre

build: lib ## the C++ library and the gyre binary
	go build -ldflags "-X gyre/orchestrate/cli.release=$$(python3 scripts/dist.py version 2>/dev/null)" -o gyre .

installed: lib
	@cmake --build $(BUILD) -j $(JOBS) --target gyre_installed
	@go build -trimpath -tags gyre_installed -ldflags "-s -w -X gyre/orchestrate/cli.release=$$(python3 scripts/dist.py version)" -o $(BUILD)/installed/gyre .

install: installed ## install the program, its library and libtorch below PREFIX (/usr/local)
	@GYRE_LICENCES=1 bash scripts/setup.sh
	@python3 scripts/dist.py install "$(PREFIX)"

dist: installed ## pack a tarball and a wheel for machines without Go and a compiler, into dist/
	@GYRE_LICENCES=1 bash scripts/setup.sh
	@python3 scripts/dist.py dist

docs: ## the documentation as a site with search, in build/site; its links are checked
	@python3 scripts/docs.py check && python3 scripts/docs.py build

test-cpp: lib
	@bash scripts/setup-gtest.sh
	@cmake -S . -B $(BUILD) -DGYRE_TESTS=ON $(if $(GYRE_GTEST_SOURCE),-DGYRE_GTEST_SOURCE=$(GYRE_GTEST_SOURCE)) >$(BUILD)/cmake.log 2>&1 || { cat $(BUILD)/cmake.log; exit 1; }
	@cmake --build $(BUILD) -j $(JOBS)
	@echo "test: kernels, engine and trainer in C++: half a minute on two idle cores"
	@ctest --test-dir $(BUILD) --output-on-failure --no-tests=error -j $(JOBS)

test-go: build
	@scripts/test-go

test-aarch64: ## the kernels' tests, compiled for AArch64 (NEON), under qemu; skipped where its tools are missing
	@JOBS=$(JOBS) bash scripts/test-aarch64 $(FILTER)

test: test-cpp test-go ## every test: C++ kernels and engine, Go packages, the command line (four minutes on 2 cores, once built)
	@echo "test: all passed"

MUTANTS ?= filter advantage schedule episode gradients ../model/chat rollout
mutants: build ## change the packages of MUTANTS on purpose: at least 95 % of the changes must fail a test (an hour or more; docs/architecture.md)
	@for p in $(MUTANTS); do \
	  go run github.com/go-gremlins/gremlins/cmd/gremlins@v0.6.0 unleash ./orchestrate/loop/$$p --workers 1 --timeout-coefficient 8 --threshold-efficacy 95 || exit 1; \
	done
	scripts/mutants-cpp

bench: build ## Gyre beside every peer found here: table, floors, machine (30 minutes; BENCH="-quick" 5, "-help" lists flags)
	@bash scripts/get-smollm2.sh
	go build -C scripts -o ../$(BUILD)/bench ./bench && $(BUILD)/bench $(BENCH)

bench-check: build ## Gyre alone against the baseline of this kind of machine (5 minutes); fails on a regression
	@bash scripts/get-smollm2.sh
	go build -C scripts -o ../$(BUILD)/bench ./bench && $(BUILD)/bench check $(BENCH)

demo: build ## train and analyse a small Sokoban agent, end to end (about three minutes on 2 cores; FRESH=1 starts over)
	@[ -z "$(FRESH)" ] || rm -rf runs/demo runs/demo-sft runs/demo-analysis models/demo-policy
	@./gyre demo

lint: lib ## formatting and static analysis; shows the lines of each room
	@test -z "$$(gofmt -l $$(git ls-files '*.go') | tee /dev/stderr)" || { echo "run gofmt -w on these files"; exit 1; }
	@for module in . scripts; do (cd $$module && go vet ./... && go run honnef.co/go/tools/cmd/staticcheck@v0.8.2 ./...) || exit 1; done
	@command -v clang-format >/dev/null || { echo "clang-format is not installed: pip install clang-format, or your system's package of that name"; exit 1; }
	clang-format --dry-run --Werror $$(git ls-files 'csrc/*.cc' 'csrc/*.h')
	@for f in $$(git ls-files '*.sh' .ci/run); do bash -n $$f || exit 1; done
	@cd orchestrate && go test -count=1 -run '^TestLines$$'

clean: ## remove what was built (not the libtorch in the cache folder)
	rm -rf $(BUILD) gyre
