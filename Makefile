# `make` alone lists what can be made. Everything that needs Python makes its environment first.

PYTHON = python3
ONLY =
DEVICE = cpu

VENV := .venv
BIN := $(VENV)/bin
# How every Jupyter server of this environment lists and opens the notebooks.
JUPYTER := tools/notebooks/jupyter_server_config.py
# The environment's stamps are named by content, so that a changed lock is noticed and a new checkout's file times are not.
LOCK_SUM := $(shell cksum < requirements.lock | awk '{ print $$1 }')
PROJECT_SUM := $(shell cat pyproject.toml $(JUPYTER) | cksum | awk '{ print $$1 }')
INSTALLED := $(VENV)/.installed-$(LOCK_SUM)
READY := $(INSTALLED)-$(PROJECT_SUM)
INSTALL := python -m pip install --quiet --disable-pip-version-check

NBVAL := --nbval --nbval-current-env --nbval-sanitize-with notebooks/nbval_sanitize.cfg --nbval-cell-timeout 600

.PHONY: help setup lab notebooks student address mutants reproduce bench images watch test-watch site book slides test-site test-processors test-floors lock release unit test coverage lint format clean

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-15s %s\n", $$1, $$2 }' Makefile

setup: $(READY) ## install what requirements.lock names into .venv, if that is not done (PYTHON=python3)

# A stamp is the last thing made, and making an environment removes the one that was there with its stamps:
# an installation that broke off is begun again.
$(INSTALLED):
	@$(PYTHON) -c 'import sys; sys.version_info < (3, 11) and sys.exit("annotated needs Python 3.11: make PYTHON=...")'
	$(PYTHON) -m venv --clear $(VENV)
	@echo "Installing requirements.lock: two to ten minutes, 2.5 GB (6.5 GB with the CUDA libraries that pip brings on Linux)"
	$(BIN)/$(INSTALL) -r requirements.lock
	@touch $@

$(READY): $(INSTALLED)
	@rm -f $(INSTALLED)-*
	$(BIN)/$(INSTALL) --no-deps --editable .
	@mkdir -p $(VENV)/etc/jupyter
	@cp $(JUPYTER) $(VENV)/etc/jupyter/
	@touch $@
	@echo "Ready. \`make lab\` opens the notebooks; \`source $(BIN)/activate\` brings the command annotated."

lab: $(READY) ## open the notebooks in JupyterLab
	$(BIN)/python -m jupyterlab $(if $(filter 0,$(shell id -u)),--allow-root)

notebooks: $(READY) ## execute the notebooks and write them with their outputs (ONLY=02_attention: this one; FORCE=1: over edited ones)
	$(BIN)/python tools/notebooks/build.py $(if $(FORCE),--force) $(ONLY)

student: $(READY) ## write the notebooks without their solutions into student/
	$(BIN)/python tools/notebooks/student.py

address: $(READY) ## put the address of pyproject.toml into first cells, links to Colab and README
	$(BIN)/python tools/notebooks/address.py

mutants: $(READY) ## break the package in several ways and show that a notebook notices each
	$(BIN)/python tools/notebooks/mutants.py

reproduce: $(READY) ## train and score the published results anew, hours on two cores (ONLY=multi30k-en-de-lc: this one)
	@for name in $(or $(ONLY),$(patsubst annotated/translation/cli/recipes/%.toml,%,$(wildcard annotated/translation/cli/recipes/*.toml))); do \
	  $(BIN)/annotated reproduce $$name || exit; done

# Record, script and settings of each race: on a processor, whose records come with the package, and on a GPU.
define RACES_cpu
train-tiny train --size tiny
train-small train --size small
train-base train --size base --batches 2
train-base-bf16 train --size base --batches 2 --precision bf16
decode decode
quantization quantization
memory memory
scaling scaling --rounds 6
attention-tiny attention --size tiny
attention-base attention --size base
endef
define RACES_cuda
train-base-cuda train --device cuda --size base --tokens 16384
train-base-bf16-cuda train --device cuda --size base --tokens 16384 --precision bf16 --compile
train-base-bf16-cuda-4k train --device cuda --size base --tokens 4096 --precision bf16 --compile
train-base-bf16-cuda-64k train --device cuda --size base --tokens 65536 --precision bf16 --compile
train-big-bf16-cuda train --device cuda --size big --tokens 16384 --precision bf16 --compile
decode-cuda decode --device cuda
memory-cuda memory --device cuda
scaling-cuda scaling --device cuda --rounds 6
endef
export RACES = $(RACES_$(DEVICE))

bench: $(READY) ## race the package against its peers, an hour or two (DEVICE=cuda: those of a GPU)
	@[ -n "$$RACES" ] || { echo "DEVICE is cpu or cuda, not $(DEVICE)" >&2; exit 2; }
	@echo "$$RACES" | { failed=; while read -r record script settings; do \
	  $(BIN)/python benchmarks/$$script.py $$settings --json annotated/recorded/$$record.json < /dev/null \
	    || failed="$$failed $$record"; done; \
	  [ -z "$$failed" ] || { echo "failed:$$failed" >&2; exit 1; }; }

images: $(READY) ## draw "a cat runs" from its tiny model, and render the drawings in images/ as PNG
	$(BIN)/python -m tools.pictures
	$(BIN)/python tools/images.py

# The lock was made on Linux and names its builds alone, which `npm ci` would refuse; `install` takes the others as well.
NPM := npm --prefix tools/watch
PACKAGES := $(NPM) install --no-save --silent --prefer-offline --fetch-retries=0

# Whoever has no npm, or no network for it, gets the script that is committed.
watch: ## make the script of the page that shows the model's inside (npm; without it the committed one stays)
	@if command -v npm > /dev/null && $(PACKAGES); then $(NPM) run --silent build; \
	else echo "no packages from npm: annotated/translation/watch/watch.js stays as it is" >&2; fi

test-watch: ## check that script: types, lint, unit tests, and that it is what tools/watch makes (npm)
	$(PACKAGES)
	$(NPM) test

site: $(READY) watch ## build the site from the executed notebooks into site/
	$(BIN)/python tools/site/build.py

book: site ## print the lessons from the site as site/annotated.pdf (Chromium)
	$(BIN)/python tools/site/book.py

slides: $(READY) ## write the lessons as slides into one file, site/slides.html (npm)
	$(PACKAGES)
	$(BIN)/python tools/site/slides.py

test-site: $(READY) ## read every page of the site in a browser (Chromium; minutes)
	$(BIN)/python -m pytest tools/site/browser_tests

# Two processes, one thread each. Where a notebook compares times, it counts its own processor time.
TWO_CORES := OMP_NUM_THREADS=1 $(BIN)/python -m pytest -n 2 --dist loadscope

unit: lint ## lint, and the tests of the package and the tools alone (ONLY=tests/search: those, in a minute)
	$(TWO_CORES) $(ONLY)

test: unit ## lint, unit tests, pair check, notebooks compared with their outputs
	$(BIN)/python tools/notebooks/build.py --check
	$(TWO_CORES) $(NBVAL) notebooks

# The processes that tests start are measured too: coverage begins in each Python that has its variable.
COVERAGE := COVERAGE_FILE=$(CURDIR)/build/coverage/data

coverage: $(READY) ## which lines of annotated/ the unit tests run (longer than the tests alone)
	rm -rf build/coverage && mkdir -p build/coverage
	COVERAGE_PROCESS_START=$(CURDIR)/pyproject.toml $(COVERAGE) $(TWO_CORES)
	$(COVERAGE) $(BIN)/python -m coverage combine --quiet
	$(COVERAGE) $(BIN)/python -m coverage report

# The tests whose results follow from how a library multiplies, adds and rounds.
KERNEL_TESTS := tests/transformer $(addprefix tests/,test_cpu_kernels.py search/test_beam_watch.py search/test_cache.py \
  interop/test_interop_annotated.py interop/test_ctranslate2_engine.py interop/test_interop_torch.py)

test-processors: $(READY) ## run the tests as on older processors, an hour each (SHORT=1: only what depends on that, minutes)
	OMP_NUM_THREADS=1 $(BIN)/python benchmarks/processors.py $(if $(SHORT), \
	  --only avx2 "-m pytest -q $(KERNEL_TESTS)", \
	  "-m pytest -q -n auto --maxprocesses 8 --dist loadscope" "-m pytest -q $(NBVAL) notebooks")

# Notebooks and pictures are made with the lock, so neither is compared.
test-floors: ## unit tests with the oldest versions that pyproject.toml admits (5 GB, in build/floors)
	$(PYTHON) -m venv --clear build/floors
	build/floors/bin/$(INSTALL) uv
	build/floors/bin/uv pip install --quiet --python build/floors --resolution lowest-direct --editable '.[dev]'
	OMP_NUM_THREADS=1 build/floors/bin/python -m pytest -n 2 --dist loadscope -o addopts=-ra \
	  --ignore tests/tools/test_setup.py

release: $(READY) ## build the wheel and translate with it in an empty environment (minutes)
	rm -rf build/release
	$(BIN)/python -m pip wheel --quiet --no-deps --wheel-dir build/release/dist .
	$(PYTHON) -m venv build/release/venv
	build/release/venv/bin/$(INSTALL) --constraint requirements.lock build/release/dist/*.whl
	cd build/release && echo "A dog runs." | venv/bin/annotated translate --model multi30k-en-de
	du -h build/release/dist/*.whl

lint: $(READY) ## check style, the layers of the package, and its types
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/lint-imports
	$(BIN)/mypy

format: $(READY) ## let ruff put the code in order
	$(BIN)/ruff check --fix
	$(BIN)/ruff format

EXTRAS := 'import tomllib; print(*tomllib.load(open("pyproject.toml", "rb"))["project"]["optional-dependencies"], sep=",")'
LOCK_HEAD := \# Exact versions of everything that \`make notebooks\` and \`make test\` use. Made by \`make lock\`.

# torch stays at its version: a newer one is a decision, and may fetch gigabytes. What follows a plus sign (+cpu) names
# the build that this machine got, not the version.
# From version 3 on, soupsieve refuses the Python 3.11.2 of Debian 12.
lock: ## resolve the dependencies of pyproject.toml anew and write requirements.lock
	$(PYTHON) -m venv --clear build/lock
	build/lock/bin/$(INSTALL) "$$(grep '^torch==' requirements.lock)" "soupsieve<3" \
	  --editable ".[$$(build/lock/bin/python -c $(EXTRAS))]"
	build/lock/bin/python -m pip freeze --exclude-editable > build/lock/frozen
	echo "$(LOCK_HEAD)" > build/lock/requirements
	sed 's/+.*//' build/lock/frozen >> build/lock/requirements
	mv build/lock/requirements requirements.lock

clean: ## remove what was built and cached; the environment, trained models and student/ stay
	rm -rf build dist site jupyter_execute .pytest_cache .ruff_cache .hypothesis *.egg-info
	find . -path ./$(VENV) -prune -o \( -name __pycache__ -o -name .ipynb_checkpoints \) -prune -exec rm -rf {} +
