# make train          install, train the nano GPT-2 on the Shakespeare of this repository, and sample from it
# make test           the tests that every change must pass
# make test-slow      the longer ones
# make test-threads   all quick tests with 1, 2 and 3 worker threads
# make fuzz           random graphs through every way to run one, for MINUTES; what fails is kept in tests/corpus
# make faults         plants each seeded fault in a process of its own: which test kills it
# make check          the table of gradients against finite differences
# make benchmarks     all tables beside torch, kept in docs/benchmarks, and their page; a quarter of an hour, best alone

PYTHON ?= python3
OUT ?= out/gpt2-nano
ARGS ?=
PROMPT ?= KING
MINUTES ?= 5

.PHONY: train test test-slow test-threads fuzz faults check benchmarks

# A run that is there already is continued; to train anew, give another OUT.
train: .venv/installed
	.venv/bin/python examples/gpt2_train.py --out '$(OUT)' $(if $(wildcard $(OUT)/latest.safetensors),--resume) $(ARGS)
	.venv/bin/python examples/gpt2_sample.py '$(OUT)/best.safetensors' --prompt '$(PROMPT)'

test: .venv/installed-test
	.venv/bin/python -m pytest -q -n auto -m "not slow"

test-slow: .venv/installed-test
	.venv/bin/python -m pytest -q -n auto -m slow

test-threads: .venv/installed-test
	for threads in 1 2 3; do .venv/bin/python -m pytest -q -n auto -m "not slow" --threads $$threads || exit 1; done

fuzz: .venv/installed-test
	.venv/bin/python -m euler_ir.testing.fuzz --minutes $(MINUTES) $(ARGS)

faults: .venv/installed-test
	.venv/bin/python tests/faults/run.py $(ARGS)

check: .venv/installed
	.venv/bin/python -m models.gradient_check

benchmarks: .venv/installed-test
	for table in train kernels infer compile memory; do \
	  .venv/bin/python -m benchmarks $$table --json docs/benchmarks/$$table.json $(ARGS) || exit 1; \
	done
	.venv/bin/python -m benchmarks page

.venv/installed: pyproject.toml
	test -x .venv/bin/python || $(PYTHON) -m venv .venv
	.venv/bin/python -m pip install --quiet --editable '.[plot]'
	touch $@

# torch is an oracle of the tests only; its build for the CPU alone is enough. A Chromium opens the pages that are tested.
.venv/installed-test: .venv/installed scripts/install_chromium.py
	.venv/bin/python -m pip install --quiet --editable '.[plot,test]'
	.venv/bin/python scripts/install_chromium.py
	touch $@
