# Everything a developer runs. Needs Python 3.11 or newer and make; `make` alone lists the targets.

PYTHON ?= python3
BIN := .venv/bin
READY := .venv/.ready
PYTEST := $(BIN)/pytest -q
PIP := $(BIN)/python -m pip --quiet --disable-pip-version-check
PARALLEL := -n logical --dist worksteal
# These wait for locks, limits and other processes more than they compute;
WAITING := -n $$((2 * $$(nproc))) --dist worksteal
# and these do for a part of their time.
SOMETIMES_WAITING := -n $$((($$(nproc) * 3 + 1) / 2)) --dist worksteal

# Without it each process that a test starts would compile the program, and pytest all of its plugins, anew.
unexport PYTHONDONTWRITEBYTECODE

.DEFAULT_GOAL := help
.NOTPARALLEL:
.PHONY: help setup node demo pictures comparison man test test-unit test-integration test-e2e test-node test-conformance test-faults test-long test-lowest test-busy lint format types audit constraints bench clean

help: ## list the targets
	@sed -n 's/^\([a-z0-9-]*\):.*## \(.*\)/  make \1 \2/p' Makefile | awk '{ printf "  make %-17s", $$2; $$1 = $$2 = ""; print }'

setup: $(READY) ## make .venv with everything that development needs

# The lock is on this file, for two makes at once; the second finds the work done.
$(READY): pyproject.toml constraints.txt
	@flock Makefile sh -eu -c ' \
	  if [ -e $(READY) ] && [ ! pyproject.toml -nt $(READY) ] && [ ! constraints.txt -nt $(READY) ]; then exit 0; fi; \
	  $(PYTHON) -c "import sys; sys.exit(sys.version_info < (3, 11) and \"Python 3.11 or newer is needed: make PYTHON=...\")"; \
	  echo "Setting up .venv (once, and after changes of the dependencies)"; \
	  $(PYTHON) -m venv .venv; \
	  $(PIP) install --require-hashes -r constraints.txt; \
	  $(PIP) install --no-deps --no-build-isolation -e .; \
	  $(BIN)/python -m compileall -q pykoclaw_acp; \
	  touch $(READY)'

demo: $(READY) ## play the whole story on the scripted model
	@$(BIN)/pykoclaw-acp demo

pictures: $(READY) ## record the pictures of the documents
	@$(BIN)/python -m docs.pictures.record
	@$(BIN)/python -m docs.pictures.session
	@$(BIN)/python -m docs.pictures.page

PEER ?= claude-agent-acp
comparison: $(READY) ## write docs/comparison.md: what this agent shows, beside another; PEER="command"
	@$(BIN)/python -m docs.comparison --peer $(PEER)

man: $(READY) ## write docs/pykoclaw-acp.1 from the help of the commands
	@$(BIN)/python -m docs.manual

test: lint types test-unit test-integration test-e2e test-conformance test-faults ## everything that a change must pass

lint: $(READY) ## ruff: rules and format; import-linter: layers
	@echo "== lint"
	@$(BIN)/ruff check --quiet .
	@$(BIN)/lint-imports --no-cache > /dev/null || $(BIN)/lint-imports --no-cache
	@$(BIN)/ruff format --quiet --check .

types: $(READY) ## mypy, strict
	@echo "== types"
	@$(BIN)/mypy

test-unit: $(READY) ## tests of single parts, without Claude and without a daemon
	@echo "== unit"
	@$(PYTEST) $(PARALLEL) tests/unit

test-integration: $(READY) ## tests of one part against the real database, CLI or operating system
	@echo "== integration"
	@$(PYTEST) $(WAITING) tests/integration

# What tests need that run on Node; where it cannot be had they are skipped, unless PYKOCLAW_TEST_NODE=1 demands them.
NODE := tests/e2e/typescript tests/e2e/acpx
node: $(NODE:%=%/node_modules/.package-lock.json)
tests/e2e/%/node_modules/.package-lock.json: tests/e2e/%/package-lock.json
	@if command -v npm >/dev/null; then \
	  cd tests/e2e/$* && timeout 90 npm install --no-save --ignore-scripts --omit=optional --no-audit --no-fund --loglevel error \
	    --fetch-retries 1 --fetch-timeout 20000 \
	    && touch node_modules/.package-lock.json || echo "npm cannot install the client $*: its tests are skipped."; \
	else echo "There is no npm: tests with the client $* are skipped."; fi

test-e2e: $(READY) ## tests of the whole program, as clients see it
	@echo "== e2e"
	@$(PYTEST) $(SOMETIMES_WAITING) tests/e2e

test-node: $(READY) node ## tests with the clients that run on Node; .ci/run has them beside `make test`
	@echo "== clients on Node"
	@PYKOCLAW_TEST_LONG=1 $(PYTEST) $(SOMETIMES_WAITING) tests/e2e/test_acpx.py tests/e2e/test_typescript_client.py

# The tests of a file share an agent, and so a process: loadfile. AGENT="command" examines another one.
test-conformance: $(READY) ## the rules of ACP, one test each; AGENT="command args": of another agent
	@echo "== conformance"
	@$(PYTEST) -n 2 --dist loadfile tests/conformance $(if $(AGENT),--agent '$(AGENT)')

test-faults: $(READY) ## tests that kill and break things
	@echo "== faults"
	@$(PYTEST) $(SOMETIMES_WAITING) tests/faults

# The audit ends with 75 where nobody could be asked, and says so.
test-long: lint types test-lowest node ## the same tests with all seeds, sizes and variants, and the audit; an hour
	@echo "== all tests, long ones too"
	@status=0; PYKOCLAW_TEST_LONG=1 $(PYTEST) $(WAITING) -m "long or not long" tests || status=$$?; \
	$(AUDIT) || [ $$? -eq 75 ] || status=1; exit $$status

LOWEST := .venv-lowest/bin
test-lowest: $(READY) ## unit and story tests with the lowest versions that pyproject.toml allows
	@echo "== tests with the lowest versions"
	@rm -rf .venv-lowest && $(PYTHON) -m venv .venv-lowest
	@$(BIN)/python -m tests.versions lowest > .venv-lowest/requirements.txt
	@$(LOWEST)/python -m pip --quiet --disable-pip-version-check install -r .venv-lowest/requirements.txt
	@$(LOWEST)/python -m pip --quiet --disable-pip-version-check install --no-deps --no-build-isolation -e .
	@$(LOWEST)/python -m pytest -q -n 2 tests/unit tests/integration/test_database.py tests/e2e/test_story.py

# Four loops and the tests share two cores; a loop ends with the shell that has started it, however that ends.
LOOP := while kill -0 $$PPID 2>/dev/null; do n=0; while [ $$n -lt 50000 ]; do n=$$((n + 1)); done; done
test-busy: $(READY) ## the same tests beside four busy loops on two cores
	@echo "== all tests, on a busy machine"
	@taskset -pc 0,1 $$$$ >/dev/null; trap 'kill $$loops' EXIT; \
	for each in 1 2 3 4; do sh -c '$(LOOP)' & loops="$$loops $$!"; done; \
	$(PYTEST) -n 2 --dist worksteal tests

format: $(READY) ## format the code, and fix what ruff can fix
	@$(BIN)/ruff check --quiet --fix .
	@$(BIN)/ruff format .

AUDIT = $(BIN)/python -m tests.versions audit $(DATABASE)
audit: $(READY) ## known vulnerabilities of the pinned versions; DATABASE=folder of OSV files: offline
	@$(AUDIT)

constraints: ## make constraints.txt anew, with the hashes of all files (needs uv on PATH)
	@sed '/^#/!d' constraints.txt > constraints.new
	@uv pip compile --quiet --generate-hashes --universal --python-version 3.11 --no-header --no-annotate \
	  --no-emit-index-url --all-extras --group dev -c constraints.txt pyproject.toml >> constraints.new
	@mv constraints.new constraints.txt

bench: $(READY) ## measure, each figure as a ratio to its baseline
	@$(BIN)/python -m bench

clean: ## remove what make made
	rm -rf .venv .venv-lowest $(NODE:%=%/node_modules) docs/pictures/browser/node_modules .mypy_cache .ruff_cache .pytest_cache .hypothesis build dist
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
