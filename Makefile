# make train          install, train the nano GPT-2 on the Shakespeare of this repository, and sample from it
# make sft            teach that model to answer, from the dialogue corpora of this repository
# make dpo            tune it on pairs of answers of which one is better
# make chat           talk with it (ARGS='--prompt "..."' for one answer); fine-tunes first if that was not done
# make test           the tests that every change must pass
# make test-slow      the longer ones
# make test-threads   all quick tests with 1, 2 and 3 worker threads
# make fuzz           random graphs through every way to run one, for MINUTES; what fails is kept in tests/corpus
# make faults         plants each seeded fault in a process of its own: which test kills it
# make check          the table of gradients against finite differences
# make check-cuda     what can be said of the CUDA backend without a GPU: kernels compiled, emulated, their faults found
# make test-gpu       on a machine with a GPU: the tests of the CUDA backend on it
# make bench-gpu      on a machine with a GPU: attention and training steps beside torch
# make benchmarks     all tables beside their peers, kept in docs/benchmarks, and their page; half an hour, best alone

PYTHON ?= python3
OUT ?= out/gpt2-nano
SFT = $(OUT)-sft
DPO = $(OUT)-dpo
SAME_OUT = $(if $(filter-out out/gpt2-nano,$(OUT)), OUT=$(OUT))
ARGS ?=
PROMPT ?= KING
MINUTES ?= 5

.PHONY: train sft dpo chat test test-slow test-threads fuzz faults check check-cuda test-gpu bench-gpu benchmarks

# A run that is there already is continued; to train anew, give another OUT.
train: .venv/installed
	.venv/bin/python examples/gpt2_train.py --out '$(OUT)' $(if $(wildcard $(OUT)/latest.safetensors),--resume) $(ARGS)
	.venv/bin/python examples/gpt2_sample.py '$(OUT)/best.safetensors' --prompt '$(PROMPT)'

# What was learned by heart is in the latest checkpoint; the best one, by the loss of new answers, is from before that.
sft: .venv/installed
	@test -e '$(OUT)/best.safetensors' || { echo 'There is no $(OUT)/best.safetensors yet. Run: make train$(SAME_OUT)'; exit 2; }
	.venv/bin/python examples/gpt2_sft.py --out '$(SFT)' \
	  $(if $(wildcard $(SFT)/latest.safetensors),--resume,'$(OUT)/best.safetensors') $(ARGS)

dpo: .venv/installed
	@test -e '$(SFT)/latest.safetensors' || { echo 'There is no $(SFT)/latest.safetensors yet. Run: make sft$(SAME_OUT)'; exit 2; }
	@test -e '$(SFT)/preferences.jsonl' || \
	  .venv/bin/python examples/make_preferences.py '$(SFT)/train.jsonl' --out '$(SFT)/preferences.jsonl'
	.venv/bin/python examples/gpt2_dpo.py --out '$(DPO)' \
	  $(if $(wildcard $(DPO)/latest.safetensors),--resume,'$(SFT)/latest.safetensors' --pairs '$(SFT)/preferences.jsonl' --sft-weight 1) $(ARGS)

chat: .venv/installed
	@test -e '$(SFT)/latest.safetensors' || $(MAKE) sft ARGS=
	@model='$(DPO)/best.safetensors'; test -e "$$model" || model='$(SFT)/latest.safetensors'; \
	  echo "Talking with $$model" >&2; .venv/bin/python examples/gpt2_chat.py "$$model" $(ARGS)

test: .venv/installed-test
	.venv/bin/python -m pytest -q -n auto -m "not slow and not gpu"

test-slow: .venv/installed-test
	.venv/bin/python -m pytest -q -n auto -m "slow and not gpu"

test-threads: .venv/installed-test
	for threads in 1 2 3; do .venv/bin/python -m pytest -q -n auto -m "not slow and not gpu" --threads $$threads || exit 1; done

fuzz: .venv/installed-test
	.venv/bin/python -m euler_ir.testing.fuzz --minutes $(MINUTES) $(ARGS)

faults: .venv/installed-test
	.venv/bin/python tests/faults/run.py $(ARGS)

check: .venv/installed
	.venv/bin/python -m models.gradient_check

check-cuda: .venv/installed-test
	.venv/bin/python -m cuda_check $(ARGS)

test-gpu: .venv/installed-gpu
	.venv/bin/python -m pytest -q -m gpu $(ARGS)

bench-gpu: .venv/installed-gpu
	.venv/bin/python -m benchmarks gpu --json docs/benchmarks/gpu.json $(ARGS)

benchmarks: .venv/installed-test
	for table in train kernels infer compile memory text tokenizer nanogpt; do \
	  .venv/bin/python -m benchmarks $$table --json docs/benchmarks/$$table.json $(ARGS) || exit 1; \
	done
	.venv/bin/python -m benchmarks page

.venv/installed: pyproject.toml
	test -x .venv/bin/python || $(PYTHON) -m venv .venv
	.venv/bin/python -m pip install --quiet --editable '.[plot]'
	touch $@

# torch is an oracle of the tests only; its build for the CPU alone is enough. A Chromium opens the pages that are tested,
# and a C++ compiler builds what the CUDA emulator runs.
.venv/installed-test: .venv/installed scripts/install_chromium.py scripts/install_compiler.py
	.venv/bin/python -m pip install --quiet --editable '.[plot,test]'
	.venv/bin/python scripts/install_chromium.py
	.venv/bin/python scripts/install_compiler.py
	touch $@

.venv/installed-gpu: .venv/installed-test
	.venv/bin/python -m pip install --quiet --editable '.[plot,test,cuda]'
	touch $@
