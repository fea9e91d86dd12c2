# The two commands of the README. Each makes .venv with the pinned versions and needs nothing but Python and make.
PYTHON ?= python3
VENV := .venv
# Else, where the environment forbids bytecode, each process compiles all that it imports: most of a test run's time.
unexport PYTHONDONTWRITEBYTECODE
BIN := $(VENV)/bin
# Installs this package with an extra into .venv: uv takes a tenth of pip's time; where it fails, pip installs. Both compare what
# they fetch with the hashes in locks/, all but torch, whose files and dependencies differ by index and machine.
define install
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	index=$${PIP_INDEX_URL:-$$($(BIN)/python -m pip config get global.index-url 2>/dev/null)}; \
	$(PIP) --require-hashes -r locks/uv.txt && $(BIN)/uv pip install --quiet --system-certs $${index:+--default-index "$$index"} \
		--python $(BIN)/python -c constraints.txt -c locks/dev.txt -b locks/dev.txt -e '.[$(1)]' \
	|| { $(PIP) --require-hashes --no-deps -r locks/dev.txt && $(PIP) --no-build-isolation -c constraints.txt -e '.[$(1)]'; }
endef
PIP := $(BIN)/python -m pip install --quiet --disable-pip-version-check
LOCKS := locks/uv.txt locks/dev.txt
comma := ,
TESTS := $(BIN)/python -m tests.run --no-loadscope-reorder

.PHONY: demo test test-all install lint kernels nightly coverage papers frameworks docs jobs locks release clean

install: $(VENV)/.installed

$(VENV)/.installed: pyproject.toml constraints.txt $(LOCKS)
	$(call install,dev)
	touch $@ $(VENV)/.demo

demo: $(VENV)/.demo
	$(BIN)/python -m flareclust.flows.demo

# What the demonstration needs: the package with its extras, without the tools of development.
$(VENV)/.demo: pyproject.toml constraints.txt $(LOCKS)
	$(call install,all)
	touch $@

# Style, types, layers, all tests without processes, and a few with them in every engine.
test: install
	$(MAKE) --no-print-directory --jobs=2 $(if $(filter output-sync,$(.FEATURES)),--output-sync=target) lint kernels
	$(TESTS) -m "not slow or smoke" -n 3

# Once here, or each of the tests' processes would compile the kernels for itself.
kernels: install
	$(BIN)/python -c "$(COMPILE_KERNELS)"
COMPILE_KERNELS := from flareclust.core.compiled import warm_up; warm_up()

# Everything but `nightly`.
test-all: lint
	$(TESTS) -n 4

lint: install
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/lint-imports
	$(BIN)/vermin --quiet --no-tips --eval-annotations --target=3.10- --violations flareclust aggregators executors flows nvflare_jobs
	$(BIN)/mypy --num-workers 2

# The long runs: fuzzing (docs/fuzzing.md; with atheris where it is installed), the papers, all algorithms in the simulator,
# faults of trackers, workers, networks and clocks; 10,000 devices in two engines, which must agree; then the speed of the
# kernels, which no test judges.
nightly: install
	$(call install,dev$(comma)postgres)
	FLARECLUST_EXAMPLES=all $(TESTS) -m "nightly or hypothesis" -n 2
	$(BIN)/python -m benchmarks.devices.equal
	$(BIN)/python -m benchmarks.speed --quick

# Which lines the tests of `test-all` reach and those of `test` do not.
coverage: install
	$(BIN)/python -m tests.coverage_guard

# The papers' tables and figures in their quick form; without --quick it takes hours.
papers: install
	$(BIN)/python -m benchmarks.papers all --quick

# The examples for other frameworks, whose packages do not go with our pins: an environment for each (docs/other-frameworks.md).
frameworks: .venv-flower .venv-vantage6
	$(BIN)/python -m pytest tests/integration/packaging/test_other_frameworks.py

.venv-flower .venv-vantage6: .venv-%: install
	$(PYTHON) -m venv $@
	$@/bin/python -m pip install --quiet . -r examples/$*/requirements.txt
	test $* != vantage6 || $@/bin/python -m pip install --quiet --no-deps vantage6-algorithm-tools==4.15.2 vantage6-common==4.15.2

# The documentation as a site, in site/; a broken link is an error.
docs: install
	$(BIN)/mkdocs build --quiet

# Cuts a release, `make release VERSION=0.3.0`; with TRY=--try in a copy, of which nothing stays. `VERSION=0.4.0.dev1` goes on after it.
release: install
	$(BIN)/python -m tests.release $(VERSION) $(TRY)

# Writes nvflare_jobs/ anew; tests/unit/platform/test_jobs.py fails while it differs from the registry.
jobs: install
	$(BIN)/python -m flareclust.nvflare_jobs

# Writes locks/ anew after a change of constraints.txt or of the dependencies; tests/docs/test_dependencies.py fails while they differ.
locks: install
	echo uv | $(COMPILE) --python-version 3.11 - -o locks/uv.txt
	$(COMPILE) --python-version 3.11 pyproject.toml -o locks/site.txt
	echo "torch ; python_version < '3'" > $(VENV)/no-torch.txt
	printf 'networkx\nsympy\n' | $(COMPILE) --python-version 3.11.5 --override $(VENV)/no-torch.txt \
		--extra dev --extra postgres pyproject.toml - -o locks/dev.txt
COMPILE := $(BIN)/uv pip compile --quiet --system-certs --universal --generate-hashes -c constraints.txt \
	--no-header --no-annotate --no-emit-index-url

clean:
	rm -rf $(VENV) site .mypy_cache .ruff_cache .pytest_cache .hypothesis build dist *.egg-info
