# `make demo` and `make test` work right after `git clone`.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
XLA_VENV := .venv-xla
XLA_STAMP := $(XLA_VENV)/.installed

.PHONY: demo test test-xla check clean setup

demo: $(STAMP)
	$(BIN)/referee check examples/transformer.py:train_step --threads 1 --out referee-out

test: check
	$(BIN)/python -m pytest -n 2

# The XLA bridge fits one version of torch alone, so it has an environment of its own.
test-xla: $(XLA_STAMP)
	PJRT_DEVICE=$${PJRT_DEVICE:-CPU} $(XLA_VENV)/bin/python -m pytest tests/device/test_xla.py \
		tests/device/test_contract.py tests/device/test_changes.py -k "test_xla or xla or fake or cpu or test_changes"

$(XLA_STAMP): pyproject.toml
	$(PYTHON) -m venv $(XLA_VENV)
	$(XLA_VENV)/bin/python -m pip install -qq --disable-pip-version-check -e '.[test]' torch==2.9.1 torch-xla==2.9.0
	touch $@

check: $(STAMP)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

setup: $(STAMP)

$(STAMP): pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install -qq --disable-pip-version-check -c constraints.txt -e '.[torch,plot,tables,test,check]'
	touch $@

clean:
	rm -rf $(VENV) $(XLA_VENV) .mypy_cache .ruff_cache .pytest_cache .hypothesis
