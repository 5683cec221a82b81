# Every target sets up what it needs: Python 3.11, gcc and make are enough.
PYTHON ?= $(shell command -v python3.11 || command -v python3)
# The build of torch, cpu or cuda; each has a virtual environment of its own.
TORCH ?= cpu
VENV := .venv$(if $(filter cuda,$(TORCH)),-cuda)
BIN := $(VENV)/bin
NATIVE := sharding/native sharding/native/tables dlrm/native
LOCKS := $(patsubst %,requirements/%.txt,service kubernetes postgres tables trackers experiments $(TORCH) dev)
OPERATORS := setup.py $(wildcard $(patsubst %,%/*.cpp,$(NATIVE)) $(patsubst %,%/*.h,$(NATIVE)))
READY := $(VENV)/.ready
# Many tests wait for processes, and leave a core to others. A file is run in one piece: its tests share what they set up.
# Half as many again as there are cores: tests wait for a third of their time.
SIDE_BY_SIDE := --numprocesses $(shell n=$$(nproc); echo $$((n < 4 ? n * 3 / 2 : 6))) --dist loadfile

.DEFAULT_GOAL := help
.PHONY: help setup demo test test-all test-gpu soak lint serve bench

help: ## List the targets
	@awk -F':.*## ' '/^[a-z-]+:.*## / {printf "  make %-10s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

setup: $(READY) ## Create .venv and install what is pinned; does nothing where that is done

demo: $(READY) ## Train on 1,000,000 synthetic rows through the service; DATA=file.tsv trains on Criteo rows
	@$(BIN)/python -m cli.demo $(if $(DATA),--data '$(DATA)')

test: $(READY) ## The tests of every change
	$(BIN)/pytest $(SIDE_BY_SIDE) -m "not slow and not soak"

test-all: $(READY) ## The slow tests too
	$(BIN)/pytest $(SIDE_BY_SIDE) -m "not soak"

test-gpu: $(READY) ## The tests that need a GPU; TORCH=cuda creates and uses .venv-cuda
	@$(BIN)/python -c 'import sys, torch; sys.exit(not torch.cuda.is_available())' \
		|| { echo "torch in $(VENV) finds no GPU: make TORCH=cuda test-gpu, on a machine with an NVIDIA GPU"; exit 1; }
	$(BIN)/pytest -m gpu

soak: $(READY) ## The long tests
	$(BIN)/pytest -m soak

lint: $(READY) ## Style, formatting, types, the direction of imports, sentences, docs/settings.md
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/pyright
	$(BIN)/lint-imports
	$(BIN)/python .ci/docstrings.py
	$(BIN)/python .ci/settings.py --check

serve: $(READY) ## Serve on loopback, state in .dlrm/; the sign-in link is printed
	@$(BIN)/dlrm serve

bench: $(READY) ## Run the measurements of benchmarks/ that need no data of yours
	@for name in synthetic_rows loader prepare step operations against_torchrec variance_reduction checkpoint predict; do \
		echo "== $$name"; $(BIN)/python -m benchmarks.$$name || exit 1; done

# The lock files are complete, hence --no-deps; why that matters is told in requirements/cpu.txt.
# Native operators lie in the checkout, built for one torch: the other environment is set up again before its next use.
$(READY): $(LOCKS) pyproject.toml $(OPERATORS)
	@echo "setting up $(VENV) (some minutes the first time)"
	@test -n "$(PYTHON)" && "$(PYTHON)" -c 'import sys; sys.exit(sys.version_info < (3, 11))' \
		|| { echo "Python 3.11 or later is needed: make PYTHON=/path/to/python3.11"; exit 1; }
	@test -x $(BIN)/pip || "$(PYTHON)" -m venv $(VENV)
	@echo "installing $$(cat $(LOCKS) | grep -c '==') packages, torch among them: 3 GB on disk, more with TORCH=cuda"
	@$(BIN)/pip install -qq --disable-pip-version-check --no-deps $(LOCKS:%=-r %)
	@$(BIN)/pip install -qq --disable-pip-version-check --no-deps --no-build-isolation -e .
	@$(BIN)/python -m sharding.native sharding/native dlrm/native
	@rm -f .venv/.ready .venv-cuda/.ready
	@touch $@
