# Everything sets itself up: a .venv, the npm packages, the built labextension; for the browser tests also a browser.
SHELL := /bin/bash
.DEFAULT_GOAL := help
# Python's and npm's packages, and the browser, are fetched side by side.
MAKEFLAGS += --jobs=3
export PATH := $(CURDIR)/.venv/bin:$(CURDIR)/node_modules/.bin:$(PATH)
PYTHON := .venv/bin/python
SOURCES := $(shell find src style schema protocol -type f -not -path '*/__tests__/*' -not -path 'protocol/fixtures/*' 2>/dev/null)

.PHONY: help setup demo test test-fast fuzz bench lowest conda docs format generate pictures browser sshd clean

help: ## List the targets
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | awk -F ':.*## ' '{printf "  make %-12s %s\n", $$1, $$2}'

setup: .make/build ## Make the .venv, install the packages, build the extension

demo: setup ## Train a small GPT and watch it in JupyterLab (HEADLESS=1: without a person)
	@$(PYTHON) scripts/demo.py $(if $(HEADLESS),--headless)

test: setup browser sshd ## Every check of the project; ARGS=timeline: the tests of one room or slice
	@$(PYTHON) -m scripts.check all $(ARGS)

test-fast: setup ## The checks of what changed that need no browser and no packaging; ALL=1: of everything
	@$(PYTHON) -m scripts.check fast $(if $(ALL),--all)

fuzz: setup ## Feed new hostile inputs to everything that reads what others wrote; SECONDS=600, SEED=7: so long, the same ones again
	@seed=$${SEED:-$$($(PYTHON) -c "import secrets; print(secrets.randbelow(2**31))")}; echo "SEED=$$seed"; \
	export MEGALENS_FUZZ_SEED=$$seed MEGALENS_FUZZ_CASES=$${MEGALENS_FUZZ_CASES:-40000}; \
	jest --forceExit --maxWorkers 2 fuzz regret && \
	$(PYTHON) -m pytest --forks 2 --timeout 1800 tests/protocol/test_fuzz.py && \
	$(PYTHON) -m tests.fuzz --seed $$seed --cases $$MEGALENS_FUZZ_CASES $(if $(SECONDS),--seconds $(SECONDS)) && \
	$(PYTHON) -m tests.fuzz --every-byte

bench: setup browser ## Measure the performance claims; results in bench/results
	@$(PYTHON) -m bench $(ARGS)

lowest: setup ## Run the tests that need no browser with the lowest versions that pyproject.toml allows
	@bash scripts/lowest.sh

conda: setup ## Build and test the conda recipe, with stand-ins for the packages of a channel
	@bash scripts/conda.sh

docs: setup ## Write the documentation site into .make/docs
	@bash scripts/build-docs.sh

format: setup ## Format everything
	ruff format . && ruff check --fix . && prettier --write --log-level warn .

generate: setup ## Regenerate what is made from protocol/
	node scripts/generate-protocol.mjs && $(PYTHON) -m scripts.message_types && $(PYTHON) -m scripts.make_fixtures && $(PYTHON) -m scripts.rules_page

pictures: setup browser ## Take the pictures of the docs anew, those of texts of the model that make demo saved
	@MEGALENS_PICTURES=1 MEGALENS_MODEL=$(CURDIR)/.demo/model playwright test -c ui-tests/playwright.config.ts generation
	@MEGALENS_PICTURES=1 playwright test -c ui-tests/harness/playwright.config.ts design kits
	@mkdir -p docs/pictures && cd ui-tests/screenshots && for each in docs-*.png; do cp $$each ../../docs/pictures/$${each#docs-}; done

browser:
	@bash scripts/ensure-browser.sh

sshd:
	@bash scripts/ensure-sshd.sh

clean: ## Remove everything that make made
	rm -rf .venv node_modules lib .make .demo megalens/labextension megalens/pictures/report/runtime megalens/pictures/engine/bundle megalens/server/page megalens/_version.py megalens/tracer/moments/native/*.so tsconfig.tsbuildinfo

.make/python: requirements.lock requirements-torch.lock
	@mkdir -p .make
	@bash scripts/make-venv.sh
	@touch $@

.make/node: package-lock.json package.json
	@mkdir -p .make
	@bash scripts/check-node.sh
	npm ci --no-audit --no-fund --loglevel=error
	@touch $@

# What needs Node alone, beside the installation of Python's packages; .make/build adds what needs both.
.make/lib: .make/node $(SOURCES) tsconfig.json scripts/build-bundles.mjs
	npm run --silent clean:lib && npm run --silent build:lib && npm run --silent build:bundles && npm run --silent build:labextension
	@touch $@

.make/build: .make/python .make/lib pyproject.toml $(wildcard megalens/tracer/moments/native/*.cpp megalens/tracer/moments/native/*.inc megalens/tracer/moments/native/build.py) scripts/build_kernel.py
	@$(PYTHON) -m pip install --quiet --disable-pip-version-check --no-build-isolation --no-deps -e .
	@jupyter-builder develop . --overwrite > .make/develop.log 2>&1 || { cat .make/develop.log; exit 1; }
	@touch $@
