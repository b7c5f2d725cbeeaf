# gpuscape: `make run` shows this machine's GPUs, `make test` runs everything; `make help` lists the rest.
SHELL := /bin/bash
.DELETE_ON_ERROR:
.PHONY: help run test test-rest test-all flaky check advisories controlplane cluster long node-v2 faults mutate bench docs image-size site lock clean

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
SCALE ?= 10
N ?= 5
SIMULATE ?=
MACHINES ?=
NODES ?=
CLUSTER_ := tests.kubelet_nodes.play
CLUSTER_real := tests.node.real_play
OTHER_PYTHON ?=
PACKAGE ?=
ADVISORIES ?= https://api.osv.dev
SIZE ?= 400
NODE_TESTS ?= $(addprefix tests/node/test_,machine.py needs.py agent_on_nodes.py actuator_pod.py)
PYTEST := $(BIN)/python -m pytest

help: ## list the targets
	@grep -E '^[a-z0-9-]+:.*##' $(MAKEFILE_LIST) | sed 's/:.*##/\t/' | sort

run: $(VENV)/.run ## show labels and NVLink matrix, serve /metrics (SIMULATE=machine picks a simulated one)
	@$(BIN)/python tools/run.py $(SIMULATE)

test: check ## for every change: checks, the quick tests, one Kubernetes (10 minutes; the first time 8 more, to build it)
	$(BIN)/python -m tests.suite

test-all: ## make test, then make test-rest, whatever came of the first
	$(MAKE) test; code=$$?; $(MAKE) test-rest && exit $$code

test-rest: $(VENV)/.dev ## all other tests: real nodes, charts, dashboards, the older Kubernetes (39 minutes; the first time 20 more)
	$(BIN)/python -m tests.suite rest

flaky: $(VENV)/.dev ## all tests without a control plane, N times over (5 unless given) with every core busy: which fail
	$(BIN)/python -m tests.flaky $(N)

controlplane: $(VENV)/.dev ## build the Kubernetes that tests run on, into ~/.cache/gpuscape (once)
	$(BIN)/python -m tests.controlplane.prepare

cluster: $(VENV)/.dev ## a cluster to play with: simulated GPU nodes, real agents, pods on linked GPUs (MACHINES="a30-pair hgx-16" picks others; NODES=real: as root, with kubelets and containers)
	@$(BIN)/python -m $(or $(CLUSTER_$(NODES)),$(error NODES=$(NODES) is not known: only NODES=real is)) $(MACHINES)

check: $(VENV)/.dev ## seconds: format, lint, spelling, types, import contracts, generated files, figures of the source tree, links and widths of the pages, the site
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/codespell
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/python tools/generate.py --check
	$(BIN)/python -m tools.stubs --check
	$(BIN)/python -m tools.structure --check
	$(PYTEST) -q -n 0 tests/test_pages.py tests/test_site.py tests/deploy/test_chart_values.py

advisories: $(VENV)/.dev ## compare every pin with published advisories (online; ADVISORIES=URL asks another server of OSV's API)
	@$(BIN)/python -m tools.advisories --server $(ADVISORIES)

long: controlplane ## soak, random tests SCALE times over (10 unless given), benchmarks into docs/
	$(BIN)/python -m tests.controlplane.prepare --only kubelet-1.32,mig-manager,jobset,kueue,kube-router,kube-score,argo-cd
	SCALE=$(SCALE) $(PYTEST) -m "not gpu" --timeout 3600
	$(BIN)/python -m tests.fleet.rollout_run
	$(BIN)/python -m tests.actuator.kill_run --anew
	$(BIN)/python -m tests.actuator.mode_run
	$(PYTEST) -n 0 -m cluster --write-pages tests/node/test_mig_modes.py
	$(MAKE) node-v2
	$(MAKE) faults mutate bench

node-v2: controlplane ## real nodes on cgroup v2, in a kernel that is a process (User Mode Linux): NODE_TESTS="tests/node/test_machine.py" picks others
	$(BIN)/python -m tests.uml.guest -m "not gpu" -k "not 1.32" $(NODE_TESTS)

faults: controlplane $(if $(OTHER_PYTHON),$(VENV)-other/.run) ## every fault against the agent, figures into docs/ (OTHER_PYTHON=python3.13 runs that one too)
	$(BIN)/python -m tests.faults.fault_run $(BIN)/gpuscape $(if $(OTHER_PYTHON),$(VENV)-other/bin/gpuscape)

mutate: $(VENV)/.dev ## break the product in small ways and count what the tests notice: SIZE=400 of each package, or PACKAGE=kube
	$(BIN)/python -m tools.mutation $(PACKAGE) --size $(SIZE)

bench: controlplane ## benchmarks alone, side by side in one run
	$(BIN)/python -m tests.bench.report
	mkdir -p build
	$(BIN)/python -m tests.bench.placement run build/placement.jsonl --jobs 2
	$(BIN)/python -m tests.bench.placement page build/placement.jsonl
	$(BIN)/python -m tests.node.prediction_run

docs: $(VENV)/.dev ## write the generated pages and schemas again
	$(BIN)/python tools/generate.py
	$(BIN)/python -m tools.structure

image-size: $(VENV)/.dev ## build the image's file system, without a container engine, and write how large its parts are into docs/
	@$(BIN)/python -m tools.image_size

site: $(VENV)/.dev ## build the pages of docs/ as a site into build/site, and print where
	@$(BIN)/python -m tools.site

lock: ## pin dependencies again, with hashes and without download addresses (needs uv and npm)
	uv pip compile --universal --python-version 3.11 --generate-hashes --no-annotate --no-header \
	  --no-emit-index-url --upgrade --group build pyproject.toml -o requirements/run.txt
	uv pip compile --universal --python-version 3.11 --generate-hashes --no-annotate --no-header \
	  --no-emit-index-url --upgrade --group dev pyproject.toml -o requirements/dev.txt
	$(PYTHON) -m tools.npm_lock

clean: ## remove the environment and caches, but for the control plane in ~/.cache/gpuscape
	rm -rf $(VENV) $(VENV)-other mutants mutants.log .mypy_cache .pytest_cache .ruff_cache .import_linter_cache .hypothesis

PIP := $(BIN)/python -m pip --quiet --disable-pip-version-check

# setting up speaks on standard error, so that the first line of `make run` is the program's own
$(BIN)/python:
	@command -v $(PYTHON) >/dev/null || { echo >&2 \
	  "there is no $(PYTHON): install Python 3.11 or later, or name one: make PYTHON=python3.12 $(MAKECMDGOALS)"; exit 2; }
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { echo >&2 \
	  "gpuscape needs Python 3.11 or later, $(PYTHON) is older: make PYTHON=python3.11 $(MAKECMDGOALS)"; exit 2; }
	@echo "setting up $(VENV) (once, about half a minute)" >&2
	@$(PYTHON) -m venv $(VENV)

$(VENV)/.run: requirements/run.txt pyproject.toml | $(BIN)/python
	@$(PIP) install --require-hashes -r requirements/run.txt
	@$(PIP) install --no-deps --no-build-isolation --editable .
	@touch $@

$(VENV)/.dev: requirements/dev.txt pyproject.toml | $(BIN)/python
	@echo "installing what the tests need" >&2
	@$(PIP) install --require-hashes -r requirements/dev.txt
	@$(PIP) install --no-deps --no-build-isolation --editable .
	@touch $@ $(VENV)/.run

# another Python's, with which faults are run once more
$(VENV)-other/.run: requirements/run.txt pyproject.toml
	@$(OTHER_PYTHON) -m venv $(VENV)-other
	@$(subst $(BIN),$(VENV)-other/bin,$(PIP)) install --require-hashes -r requirements/run.txt
	@$(subst $(BIN),$(VENV)-other/bin,$(PIP)) install --no-deps --no-build-isolation --editable .
	@touch $@
