# The whole set-up: its own virtual environment from pinned versions, made once and again when they change.
# Where the default index would bring a CUDA build of torch: make audit TORCH_INDEX=https://download.pytorch.org/whl/cpu
PYTHON ?= python3.11
TORCH_INDEX ?=
VENV := .venv
RUN := $(VENV)/bin/python -m
export OMP_NUM_THREADS := 1
export PIP_DISABLE_PIP_VERSION_CHECK := 1
export PIP_CONSTRAINT := constraints.txt
# Where it is set, as in many containers, each of the thousands of worker processes compiles all modules again.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: audit test test-slow coverage libraries search gate matrix mutants sensitivity bench bench-cuda docs lint types format
.PHONY: clean

audit: $(VENV)/.ready
	$(VENV)/bin/rlverify audit
	$(VENV)/bin/rlverify report --check

test: $(VENV)/.ready
	$(RUN) pytest -n 2 --dist worksteal -m "not slow and not exhaustive"

# The slow rest: every claim under another seed, null faults in the files of the tests that detect faults, long runs, Ray.
test-slow: $(VENV)/.ray
	$(RUN) pytest -n 2 --dist worksteal -m slow

# The adapters for other libraries on small trainings, and kernels for CUDA devices in Triton's interpreter; takes six
# minutes. Tianshou needs older versions of packages that are pinned, so it gets an environment of its own, which sees
# the other one.
libraries: $(VENV)/.libraries
	$(RUN) pytest -n 2 --dist loadfile tests/engine/libraries tests/core/optim/test_upgd_device.py
	$(VENV)-tianshou/bin/python -m pytest tests/engine/libraries/test_tianshou.py

# Both halves with the branches that they cover, of which at least 95 % have to be; takes half as long again as without.
coverage: $(VENV)/.ray
	$(RUN) pytest -n 2 --dist worksteal -m "not exhaustive" --cov --cov-report=term --cov-fail-under=95

# Random examples of every property, thousands of them, and every wrong value of a file; half an hour.
# What fails of the former is kept in .hypothesis/ and tried first.
search: $(VENV)/.ready
	HYPOTHESIS_PROFILE=search $(RUN) pytest -n 2 --dist worksteal -m "hypothesis or exhaustive"

gate: $(VENV)/.ready
	$(VENV)/bin/rlverify gate

# Every fault against the tests that must detect it; takes about four minutes.
matrix: $(VENV)/.ready
	$(VENV)/bin/rlverify matrix

# Many hours for all; ONLY='rlcore.functional.clipping*' takes minutes, and SAMPLE=300 runs some that are drawn at random.
# Interrupted, it goes on where it stopped.
# Commands that tests start must import the mutants, and folders that a test made once must outlive its session.
# Tests of the encoding of files need a Python that follows the locale.
ONLY ?= *
SAMPLE ?=
mutants: $(VENV)/.ready
	$(RUN) pip install --quiet --editable '.[dev,mutation]'
	mkdir -p mutants
	set -f; folder=$$(mktemp -d) && trap 'rm -rf $$folder' EXIT && PYTHONUTF8=0 PYTHONPATH=$(CURDIR)/mutants \
	  PYTEST_DEBUG_TEMPROOT=$$folder PYTEST_ADDOPTS="-o tmp_path_retention_count=1000000" \
	  $(RUN) $(if $(SAMPLE),tests.mutation.sample $(SAMPLE),mutmut run $(filter-out *,$(ONLY)))
	$(if $(SAMPLE),,$(RUN) tests.mutation.compare '$(ONLY)')

# The headline claims again under other settings, one setting at a time; hours.
sensitivity: $(VENV)/.ready
	$(RUN) benchmarks.sensitivity --again --processes 4

bench: $(VENV)/.ready
	$(RUN) benchmarks.speed run

# On a machine with a CUDA device, in under eight minutes. Where the default index brings a torch without CUDA, or one that
# the driver is too old for: make clean && make bench-cuda TORCH_INDEX=https://download.pytorch.org/whl/cu126
# In an environment of your own, python -m benchmarks.cuda does the same. The CPU that it compares with gets all its cores.
bench-cuda: $(VENV)/.ready
	env -u OMP_NUM_THREADS RLCORE_TRITON=1 $(RUN) benchmarks.cuda

# The site, into site/, with warnings as errors; its environment has no torch. The variable silences an advertisement.
docs: $(VENV)-docs/.ready
	NO_MKDOCS_2_WARNING=1 $(VENV)-docs/bin/python -m mkdocs build --strict

lint: $(VENV)/.ready
	$(RUN) ruff check .
	$(RUN) ruff format --check .
	$(VENV)/bin/lint-imports

types: $(VENV)/.ray
	$(RUN) mypy

format: $(VENV)/.ready
	$(RUN) ruff check --fix .
	$(RUN) ruff format .

$(VENV)/.ready: constraints.txt pyproject.toml
	$(PYTHON) -m venv $(VENV)
	$(RUN) pip install --quiet $(if $(TORCH_INDEX),--index-url $(TORCH_INDEX)) torch
	$(RUN) pip install --quiet --editable '.[dev]'
	touch $@

$(VENV)-docs/.ready: constraints.txt pyproject.toml
	$(PYTHON) -m venv $(VENV)-docs
	$(VENV)-docs/bin/python -m pip install --quiet '.[docs]'
	touch $@

$(VENV)/.ray: $(VENV)/.ready
	$(RUN) pip install --quiet --editable '.[dev,ray]'
	touch $@

$(VENV)/.libraries: $(VENV)/.ready
	$(RUN) pip install --quiet --editable '.[dev,libraries,triton]'
	$(PYTHON) -m venv $(VENV)-tianshou
	cd $(VENV)-tianshou/lib/python*/site-packages && ls -d $(CURDIR)/$(VENV)/lib/python*/site-packages > project.pth
	grep -vE '^(pandas|virtualenv|filelock)==' constraints.txt > $(VENV)-tianshou/constraints.txt
	PIP_CONSTRAINT=$(VENV)-tianshou/constraints.txt $(VENV)-tianshou/bin/pip install --quiet 'tianshou>=2.0,<3'
	touch $@

clean:
	rm -rf $(VENV) $(VENV)-docs $(VENV)-tianshou .rlverify .mypy_cache .ruff_cache .pytest_cache dist mutants site
