# Every path is relative, so that the clone may lie under a path with spaces.
PYTHON ?= $(shell command -v python3.11 >/dev/null && echo python3.11 || echo python3)
VENV_PYTHON := .venv/bin/python
# A file is one worker's, as fixtures are made for files; tests/conftest.py says in which order.
# On two threads torch takes more than twice as long for what is trained here.
# A worker that dies ends the run: with another in its place pytest-xdist may wait for ever.
PYTEST_ON_TWO = OMP_NUM_THREADS=1 $(VENV_PYTHON) -m pytest -n 2 --dist loadfile --no-loadscope-reorder \
	--max-worker-restart=0
# Python keeps what it compiled: demo and tests start many processes, of the same sources.
unexport PYTHONDONTWRITEBYTECODE
# None of these tests may be among those that ARGS asks for.
MAY_BE_NONE = || [ $$? -eq 5 ]

.PHONY: help env demo quickstart test test-rest test-all test-every test-lowest pins release lint docs figures notebooks mlproject packaged-models format gate clean distclean \
	services services-stop test-services races crashes interruptions scale maintenance store-scale scale-records searches final-figures test-fleet \
	test-pages test-hosts fleet-faults test-arm mutants fuzz gpu-packs gpu-check
.DEFAULT_GOAL := help

help: ## Says what there is to make
	@sed -n 's/^\([a-z-]*\):.*## /\1\t/p' Makefile | expand -t 16

env: ## .venv with the hetfeat command in it; quick when nothing changed
	@sh tools/environment.sh "$(PYTHON)"

demo: env ## A first result: ResNet-18 compiled by the packaged cost model, beside other engines
	$(VENV_PYTHON) -m mlproject demo

quickstart: env ## The whole loop on this machine: train, promote, deploy ResNet-18
	$(VENV_PYTHON) -m registry.cli.quickstart

test: env ## All but slow tests, on two cores; make test ARGS="-k store" runs some of them
	$(PYTEST_ON_TWO) -m "not slow and not clock and not fleet and not arm and not pages" $(ARGS)

test-rest: env ## What `make test` leaves to it: slow tests, and alone, those that compare times
	$(PYTEST_ON_TWO) $(ARGS) -m "slow and not clock and not fleet and not arm and not pages" $(MAY_BE_NONE)
	$(VENV_PYTHON) -m pytest $(ARGS) -m "clock and not fleet and not arm and not pages" $(MAY_BE_NONE)

test-all: test test-rest ## All but what test-services, test-fleet, test-pages and test-arm run

test-every: test-all test-fleet test-pages test-arm ## Those too, except on servers; hours

lint: env ## What the gate checks without running tests
	.venv/bin/ruff check .
	.venv/bin/ruff format --check .
	$(VENV_PYTHON) -m mypy
	.venv/bin/lint-imports --no-logo
	@$(MAKE) --no-print-directory docs

docs: env ## The documentation as a site in site/; a broken link or anchor is an error
	NO_MKDOCS_2_WARNING=1 $(VENV_PYTHON) -m mkdocs build --strict

packaged-models: env ## Trains the cost models that come with the package, minutes each; ARGS=gpu-nvidia one
	$(VENV_PYTHON) tools/packaged_models.py $(ARGS)

figures: env ## Writes figures and charts of README.md and docs/ from benchmarks/results/
	$(VENV_PYTHON) benchmarks/figures.py

notebooks: env ## Executes the notebooks of docs/ anew; installs Jupyter's kernel into .venv
	$(VENV_PYTHON) -m pip install --quiet -c constraints.txt ipykernel nbclient
	OMP_NUM_THREADS=1 $(VENV_PYTHON) tools/notebook.py

mlproject: env ## Writes MLproject of the commands' options
	$(VENV_PYTHON) tools/mlproject_file.py

format: env ## Rewrites the sources as the gate wants them
	.venv/bin/ruff check --fix .
	.venv/bin/ruff format .

gate: lint test-all ## What must pass before a change lands, here and in CI

pins: env ## Renews constraints.txt; torch and torchvision stay those of .venv
	$(VENV_PYTHON) tools/pins.py renew

test-lowest: env ## The quick tests with the oldest packages that pyproject.toml allows, in .lowest
	$(VENV_PYTHON) tools/pins.py lowest .lowest
	.lowest/bin/python -m pytest -n 2 -m "not slow and not services and not fleet and not arm and not pages and not clock" $(ARGS)

release: env ## Builds wheel, sdist and SBOM into dist/, and tries the wheel in an empty environment
	$(VENV_PYTHON) tools/release.py

services: env ## PostgreSQL, S3 and MLflow with basic auth on loopback, without root or Docker
	$(VENV_PYTHON) tools/services start

services-stop: env ## Ends what `make services` started
	$(VENV_PYTHON) tools/services stop

test-services: env ## The tests that need `make services`
	@test -f .services/env || { echo "no servers; run \`make services\` first" >&2; exit 2; }
	. .services/env && $(PYTEST_ON_TWO) -m services $(ARGS)

races: env ## 200 races of 8 promoters; ARGS="--on postgresql" or "--on server" for `make services`
	$(VENV_PYTHON) benchmarks/registry/races.py --rounds 200 $(ARGS)

crashes: env ## 100 promotions killed at a random moment, then repaired; ARGS as for races
	$(VENV_PYTHON) benchmarks/registry/crashes.py --rounds 100 $(ARGS)

interruptions: env ## Commands killed, stopped, run twice at once, on a full disk; hours, resumable; ARGS="--rounds 2"
	PYTHONPATH=. $(VENV_PYTHON) benchmarks/interruptions $(ARGS)

scale: env ## Promote, history and pull beside 1,000 models of 20 versions; ARGS="--on postgresql"
	$(VENV_PYTHON) benchmarks/registry/scale.py $(ARGS)

maintenance: env ## Retention of models of 60 and 2,200 versions, doctor of 1,000 models; ARGS="--on postgresql"
	$(VENV_PYTHON) benchmarks/registry/maintenance.py $(ARGS)

store-scale: env ## Every pass over stores of 10^4 to 10^6 records; 40 minutes for ARGS="--records 10000000 --stores false"
	$(VENV_PYTHON) benchmarks/store_scaling.py $(or $(ARGS),--records 10000 100000 1000000)

scale-records: env ## Every pass of a record store at 10^5 and 10^6 records; ARGS="--records 10000000"
	$(VENV_PYTHON) benchmarks/scale_records.py $(ARGS)

searches: env ## Remakes every figure on searches in docs/experiments; a day, resumable; DATA=DIR OUT=DIR
	mkdir -p "$(SEARCHES)"
	$(VENV_PYTHON) benchmarks/search.py --data "$(or $(DATA),../shared/data)" --out "$(SEARCHES)/recorded.jsonl"
	$(VENV_PYTHON) benchmarks/live_gemm.py search --out "$(SEARCHES)/live"
	$(VENV_PYTHON) benchmarks/live_gemm.py libraries --out "$(SEARCHES)/live"
	$(VENV_PYTHON) benchmarks/network_search.py --out "$(SEARCHES)/network"
searches: SEARCHES = $(or $(OUT),out/searches)

final-figures: env ## A look at networks that nothing was chosen on, kept in a log; REASON="..." ARGS="--model lgbm"
	$(VENV_PYTHON) benchmarks/final_figures.py --reason "$(REASON)" $(ARGS)

test-fleet: env ## The tests that break servers, trackers and links, and collect over one; some minutes
	$(VENV_PYTHON) -m pytest -m fleet $(ARGS)

test-pages: env ## Runs every command of README, tutorials and how-tos; half an hour; ARGS="-k serving"
	$(VENV_PYTHON) -m pytest -m pages $(ARGS)

test-hosts: env ## A lab on network namespaces as hosts, of which some are cut off; root, minutes
	$(VENV_PYTHON) -m pytest tests/commands/test_hosts.py -m "" $(ARGS)

fleet-faults: env ## Breaks servers, trackers and links while tuning; ten minutes
	PYTHONPATH=. $(VENV_PYTHON) benchmarks/fleet.py faults $(ARGS)

mutants: env ## Changes one thing at a time in four modules: which changes do the tests not notice?
	OMP_NUM_THREADS=1 $(VENV_PYTHON) -m mutmut run --max-children 1 $(ARGS)
	$(VENV_PYTHON) -m mutmut results

fuzz: env ## Every parser of others' bytes, ten minutes; ARGS="--minutes 60 --jobs 2"
	OMP_NUM_THREADS=1 $(VENV_PYTHON) -m tests.fuzz.run $(ARGS)

test-arm: env .arm/python ## Deploys to an emulated 64-bit Arm (docs/arm.md); five minutes of CPU time
	$(VENV_PYTHON) -m pytest -m arm $(ARGS)

.arm/python: tools/arm_root.py constraints.txt | env
	$(VENV_PYTHON) tools/arm_root.py .arm

gpu-packs: env ## gpu/, to carry to a GPU lent for minutes: a pack, its runner, wheels; DEVICE=gpu.yaml ARGS="--network resnet50"
	$(VENV_PYTHON) tools/gpu_packs.py "$(DEVICE)" $(ARGS)

gpu-check: ## On the machine with the GPU: measures the pack of gpu/, deploys, brings back; OUT=DIR HALF=pack or live
	sh gpu/check.sh "$(or $(OUT),out/gpu)" $(HALF)

clean: ## Removes what builds and tests leave, keeps .venv
	rm -rf build dist site *.egg-info .mypy_cache .ruff_cache .pytest_cache .import_linter_cache .hypothesis mutants
	find . -name __pycache__ -not -path './.venv/*' -prune -exec rm -rf {} +

distclean: clean ## Removes .venv, the servers' own environment, the emulated Arm and gpu/, too
	rm -rf .venv .lowest .services .arm gpu gpu-more-*
