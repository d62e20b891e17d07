# Five verbs for people and CI alike: run, test, check, bench, up. Each sets up what it needs in
# .venv; a second run starts at once. (Works with GNU make 3.81, which macOS has.)

VENV := .venv
BIN := $(VENV)/bin
# A test that hangs for five minutes fails with the stacks of its process.
TESTS := $(BIN)/python -m pytest --dist loadfile --no-loadscope-reorder \
	-o faulthandler_timeout=300 -o faulthandler_exit_on_timeout=true
PIP := $(BIN)/python -m pip install --quiet --disable-pip-version-check

.PHONY: help setup run test test-slow check check-ops check-client bench chaos simulate soak paper dashboards docs screenshots example example-visitors trace up lock clean

help: ## show these lines
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/:.*## /:/' | awk -F: '{printf "make %-13s%s\n", $$1, $$2}'

setup: $(VENV)/.ops ## make the environment in .venv, with the tools for tests and checks

run: $(VENV)/.run ## serve on 127.0.0.1:8000, with a store of its own in ./data
	$(BIN)/solar serve

test: $(VENV)/.ops ## the tests, in four processes: most of them wait
	$(BIN)/python -m app.runtime.precompile
	$(TESTS) --numprocesses 4 -m "not slow"

test-slow: $(VENV)/.ops ## the tests that `make test` leaves out: whole clusters, failovers, long pauses, sweeps
	$(BIN)/python -m app.runtime.precompile
	$(TESTS) --numprocesses 2 -m slow

check: $(VENV)/.ops ## style, types and import rules
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/mypy
	cd clients/python && ../../$(BIN)/mypy
	$(BIN)/lint-imports

check-ops: $(VENV)/.ops ## containers, clusters, dashboards, the page: read and run by the real tools
	@for part in tools/ops/*.sh; do echo "==== $$part"; bash $$part || exit 1; done

check-client: $(VENV)/.dev ## solar-client alone in a new environment; a client generated from /openapi.json
	$(BIN)/python -m tools.installed_client
	$(BIN)/python -m tools.generated_client

bench: $(VENV)/.bench ## speed, side by side with C, BLAS and other libraries
	$(BIN)/python -m benchmarks

chaos: $(VENV)/.dev ## hundreds of rounds of faults against real servers
	SOLAR_DEV_CHAOS=20 $(BIN)/python -m pytest -s tests/faults tests/api/test_bad_input.py tests/api/test_openapi.py

simulate: $(VENV)/.dev ## SEEDS=10000 worlds of faults by seed, or one with its trace: SEED=1234
	$(BIN)/python -m tests.simulation $(if $(SEED),--seed $(SEED),--seeds $(or $(SEEDS),1000) --start $(or $(START),1000))

soak: $(VENV)/.dev ## HOURS=1 of mixed traffic with churn and faults on DIR=build/soak, whose data are kept; a report
	$(BIN)/python -m tests.soak --hours $(or $(HOURS),1) --dir $(or $(DIR),build/soak) --seed $(or $(SEED),0) $(if $(SHARED),--shared)

paper: $(VENV)/.dev ## DATA=FOLDER: tables and figures of the papers, published and measured, in docs/paper.md
	$(if $(DATA),,$(error DATA: expected a folder with MQ2008 or other data sets: make paper DATA=FOLDER))
	OPENBLAS_NUM_THREADS=1 $(BIN)/python -m tools.paper $(DATA)

dashboards: $(VENV)/.ops ## write the dashboards and alert rules in docker/
	$(BIN)/python -m ops

docs: $(VENV)/.docs ## write the reference pages, and build the documentation site in site/
	$(BIN)/python -m tools.reference
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict
	@echo "site/index.html is built; to read it: $(BIN)/python -m http.server 8008 --bind 127.0.0.1 -d site"

screenshots: $(VENV)/.dev ## pictures of every page of the console, light and dark, in build/console (needs chromium)
	$(BIN)/python -m tools.console_pages screenshots build/console

example: $(VENV)/.run ## a shop whose search learns from clicks, on 127.0.0.1:8100, with SOLAR on 127.0.0.1:8000
	$(BIN)/python -m examples.shop.start

example-visitors: $(VENV)/.dev ## 300 simulated visitors of that shop in a browser, and the NDCG that they saw (needs chromium)
	$(BIN)/python -m examples.shop.visitors

trace: $(VENV)/.dev ## which files of app/ a ranking, a click and a learner's round cross
	$(BIN)/python -m tools.trace_request

up: ## start the containers of docker-compose.yml (COMPOSE_PROFILES=demo: with simulated traffic)
	@sh docker/up.sh

lock: $(VENV)/.dev ## resolve the requirement files again
	sh tools/lock.sh $(BIN)/uv

clean: ## remove the environment and everything compiled
	rm -rf $(VENV) .pytest_cache .mypy_cache .ruff_cache .hypothesis
	find app clients ops tests benchmarks -name __pycache__ -exec rm -rf {} +

$(VENV)/.made: tools/venv.sh
	sh tools/venv.sh $(VENV)
	@touch $@

$(VENV)/.run: $(VENV)/.made requirements/build.txt requirements/run.txt pyproject.toml clients/python/pyproject.toml
	$(PIP) --require-hashes -r requirements/build.txt -r requirements/run.txt
	$(PIP) --no-deps --no-build-isolation --editable . --editable clients/python
	$(BIN)/python -m app.runtime.precompile
	@touch $@

$(VENV)/.dev: $(VENV)/.run requirements/dev.txt
	$(PIP) --require-hashes -r requirements/dev.txt
	@touch $@

$(VENV)/.ops: $(VENV)/.dev requirements/ops.txt
	$(PIP) --require-hashes -r requirements/ops.txt
	@touch $@

$(VENV)/.docs: $(VENV)/.dev requirements/docs.txt
	$(PIP) --require-hashes -r requirements/docs.txt
	@touch $@

$(VENV)/.bench: $(VENV)/.dev requirements/bench.txt
	$(PIP) --require-hashes -r requirements/bench.txt
	@touch $@
