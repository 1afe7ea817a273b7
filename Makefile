# Needs Python >= 3.11, gcc and make; all else is set up in .venv, and by apt-get where that may be done.
# An environment with more in it than a target needs will do.

PYTHON ?= python3
ARGS ?=
SEEDS ?= 200
MINUTES ?= 120
# Many tests wait for something, so more of them run at once than there are cores; those of the kernel wait for nothing.
# Those that were chosen run one by one.
WORKERS ?= $(if $(ARGS),0,$(if $(filter test-python,$@),2,4))

export PYTHON
# Tests start hundreds of processes, each of which would compile all of its modules anew.
unexport PYTHONDONTWRITEBYTECODE
export PYRIGHT_PYTHON_IGNORE_WARNINGS := 1

with_dev := .venv/.with-dev
with_test := $(firstword $(wildcard $(with_dev)) .venv/.with-test)
with_chaos := $(firstword $(wildcard $(with_dev) .venv/.with-test) .venv/.with-chaos)
with_docs := $(firstword $(wildcard $(with_dev) .venv/.with-test) .venv/.with-docs)
with_demo := $(firstword $(wildcard $(with_dev) .venv/.with-test) .venv/.with-embedded,cli,plot,console)

with_prove := $(firstword $(wildcard $(with_dev) .venv/.with-test) .venv/.with-prove)

native := setup.py $(wildcard agent/reconverge/kernel/native/*.[ch] agent/reconverge/kernel/native/*/*.[ch])
# What goes through the kernel without a server; its tests for the compiled kernel alone skip themselves. What calls no
# part of the kernel that has a twin is left out: grammar, calendar, policies, bridges.
kernel_tests := tests/kernel --ignore=tests/kernel/table/test_policies.py tests/protocol/merge \
  $(addprefix tests/limit/test_, cost_table.py places.py) \
  $(addprefix tests/protocol/test_, protocol.py bounds.py several.py binding.py) \
  $(addprefix tests/exchange/test_, syncer_timing.py sync_intervals.py) \
  $(addprefix tests/hub/test_, nonsense.py clock.py answers.py) \
  tests/exchange/regions/test_region_share.py tests/published/test_caps.py \
  tests/integrations/web/test_interrupted_requests.py tests/chaos/test_following.py

# The inner loop: the arithmetic, limits, one hub, documents; fewer random examples, and nothing that is marked as slow.
fast_tests := tests/kernel tests/limit tests/protocol/merge tests/hub/test_memory.py tests/project/test_docs.py

# A file's tests stay together, as they share what takes long to set up. If a process crashes, all end: its test is named,
# whereas pytest-xdist 3.8 would wait for ever for the process that replaces it (its issues 784 and 1378).
pytest = .venv/bin/python -m pytest -o cache_dir=.pytest_cache/$@
at_once = $(pytest) --numprocesses=$(WORKERS) --dist=loadfile --no-loadscope-reorder --max-worker-restart=0
# What a newcomer waits for: nothing that is slow or takes a browser, a build or a program that has to be built.
quick = $(if $(ARGS),$(ARGS),-m 'not slow')
# What fails beside others on a busy machine is tried once more by itself; then it counts. It is told both times.
alone = [ $$? = 1 ] && [ $(WORKERS) != 0 ] && $(pytest) --last-failed --last-failed-no-failures=none

define chaos_tools
.ci/toxiproxy || echo "Scenarios that need Toxiproxy are left out." >&2; \
	{ command -v nft && command -v ip; } >/dev/null || .ci/apt-install nftables iproute2 || echo "Scenarios that drop packets are left out." >&2
endef

.PHONY: help demo test test-all test-long test-fast test-everything test-python check check-native coverage fuzz prove soak figures chaos bench bench-shedding docs release-check changelog pictures clean

help: ## say what there is
	@sed -n 's/^\([a-z-]*\):.*## /make \1	/p' $(firstword $(MAKEFILE_LIST))

demo: $(with_demo) ## show what it does, on this machine alone; ARGS='...' for `reconverge demo`
	@.ci/programs redis-server
	.venv/bin/reconverge demo $(ARGS)

test: export FAST := $(if $(ARGS),,1)
test: $(with_test) ## run all tests but the slow ones, in minutes; ARGS='...' for pytest, slow ones of these as well, WORKERS=0 one by one
	@.ci/programs redis-server openssl mosquitto
	$(at_once) $(quick) || { $(alone) $(quick); }

test-all: test-everything test-python ## run all tests, and the kernel's for its twin in Python, too, as a merge has to pass them

test-long: export LONG := 1
test-long: test-all ## the same with all random examples, seeds and instructions that the tests name; takes twice as long

test-fast: $(with_test) ## run what says within a minute whether a change of the core is sound; ARGS='...' for pytest
	@.ci/programs redis-server
	FAST=1 $(pytest) --quiet --numprocesses=2 --dist=worksteal -m 'not slow' $(fast_tests) $(ARGS)

test-everything: $(with_test)
	@.ci/programs redis-server openssl mosquitto
	@.ci/programs chromium || echo "Tests in a browser are left out." >&2
	@.ci/programs wrk || echo "Tests with as much traffic as there can be are left out." >&2
	@$(chaos_tools)
	@.ci/valkey || echo "Tests with Valkey are left out." >&2
	$(at_once) $(ARGS) || { $(alone) $(ARGS); }

test-python: $(with_test)
	$(if $(ARGS),,export RECONVERGE_NO_EXTENSIONS=1; $(at_once) $(kernel_tests) || { $(alone) $(kernel_tests); })

check: $(with_dev) ## run every checker
	.venv/bin/ruff check
	.venv/bin/ruff format --check
	.venv/bin/mypy
	.venv/bin/pyright
	.venv/bin/lint-imports --no-logo
	.venv/bin/interrogate tests
	.venv/bin/python -m bench.house --words
	@.ci/check-native --warnings

check-native: $(with_test) ## build the compiled kernel with sanitizers, and run its tests under them; ARGS='...' for pytest
	@.ci/check-native $(ARGS)

coverage: $(with_dev) ## run all tests, and say which lines and branches they leave out
	@.ci/programs redis-server openssl mosquitto
	.venv/bin/coverage erase
	.venv/bin/coverage run -m pytest $(ARGS)
	.venv/bin/coverage combine --quiet
	.venv/bin/coverage report

fuzz: $(with_test) ## try random fleets and faults under virtual time; SEEDS=10000 for many
	.venv/bin/python -m reconverge.simulation.fuzz --seeds $(SEEDS)

prove: $(with_prove) ## prove the bounds for any number of nodes, and take out each guard; takes a minute
	.venv/bin/python -m reconverge.simulation.model $(ARGS)

soak: $(with_test) ## try random examples and seeds that no run has drawn before, for hours; MINUTES=10 for a while
	@.ci/programs redis-server
	.venv/bin/python -m tests.support.soak --minutes $(MINUTES)

figures: $(with_test) ## simulate what the policies are meant to reach, and write docs/reference/figures.md; takes minutes
	.venv/bin/python -m reconverge.simulation.goals > docs/reference/figures.md.new; status=$$?; \
	  mv docs/reference/figures.md.new docs/reference/figures.md; exit $$status

chaos: $(with_chaos) ## have everything go wrong that can, for twenty minutes; ARGS='run NAME' for one scenario
	@.ci/programs redis-server openssl mosquitto
	@$(chaos_tools)
	.venv/bin/python -m chaos $(or $(ARGS),all --json chaos/results)

bench: .venv/.with-bench ## measure what things cost, beside other limiters; takes half an hour; ARGS='decisions --quick'
	@.ci/programs redis-server
	@.ci/programs wrk || echo "Web applications are left out." >&2
	.venv/bin/python -m bench $(or $(ARGS),--results bench/results)

bench-shedding: .venv/.with-bench ## load shedding in a closed loop, beside no limiter and a fixed limit; takes twenty minutes; ARGS='loop-spike'
	.venv/bin/python -m bench.shedding $(or $(ARGS),--results bench/results)

docs: $(with_docs) ## build the documents as a site in build/site; a dead link or a page that is nowhere is an error
	.venv/bin/mkdocs build --strict
	@echo "The documents are in build/site; .venv/bin/mkdocs serve shows them."

release-check: $(with_test) ## list what a release still needs, and what of it only the owner can fill in
	.venv/bin/python -m docs.tools.release

changelog: $(with_test) ## show what users will notice of the next release
	.venv/bin/towncrier build --draft --version next

pictures: $(with_demo) ## draw the pictures of the documents anew, from a simulation and from bench/results
	.venv/bin/python -m docs.tools.pictures

clean: ## remove all that was set up or left behind
	rm -rf .venv .tools build dist *.egg-info .coverage* .hypothesis .pytest_cache .mypy_cache .ruff_cache .import_linter_cache
	find agent sync tests examples chaos bench docs -name __pycache__ -type d -prune -exec rm -rf {} +

.venv/.with-%: pyproject.toml $(native)
	@.ci/environment '$*'
