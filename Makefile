# Two commands set up everything: `make demo` (the main job) and `make test` (the gate).
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
# Files of tests, two at a time: whole ones, since some of them set up what they share, and in their order, so that none that takes minutes is begun when
# all else is over.
ABREAST := -n 2 --dist loadfile --no-loadscope-reorder
export PIP_DISABLE_PIP_VERSION_CHECK := 1

.PHONY: demo test check format golden soak bench clean compiler neovim chromium editors

demo: $(VENV)/.ready  ## set up, fetch the demo pair, compile, serve, ask one question
	$(BIN)/python tools/demo.py

test: check compiler neovim chromium editors  ## the gate: static checks, then every test that is not slow and needs no GPU
	$(BIN)/python -m pytest -q -m "not gpu and not slow" $(ABREAST)

compiler:  ## what the kernels of tests/kernels and tests/models are compiled with, where it is missing and can be installed
	@sh tools/compiler.sh

neovim:  ## the editor that tests/lsp drives, likewise
	@sh tools/neovim.sh

editors: $(VENV)/.ready  ## Node, and what the extension for VS Code is built with, likewise
	@sh tools/node.sh $(BIN)/python

chromium:  ## the browser that tests/playground drives, likewise
	@sh tools/chromium.sh

check: $(VENV)/.ready  ## formatting, lint, types, import layers
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

format: $(VENV)/.ready  ## lay the code out
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

golden: $(VENV)/.ready  ## write the golden files anew; review the difference
	$(BIN)/python -m pytest -q tests/compiler tests/plan tests/cli --update-golden

soak: $(VENV)/.ready editors chromium  ## the long tests
	sh tools/workbench.sh
	$(BIN)/python -m pip install --quiet -c constraints.txt --no-build-isolation -e '.[eval]'
	$(BIN)/python -m pytest -q -m slow --timeout 3600
	$(BIN)/python -m pytest -q -m "hypothesis and not gpu and not slow" --draw-anew
	sh tools/emulated.sh $(BIN)/python
	$(BIN)/python benchmarks/soak.py --minutes 10

# Not among them: the ten-minute soak, the comparison that installs other engines first, what needs a GPU, and what takes hours (a part of it is run).
APART := benchmarks/soak.py benchmarks/cpu_decode.py $(wildcard benchmarks/gpu*.py) benchmarks/others.py benchmarks/windows_table.py benchmarks/routed.py

bench: $(VENV)/.ready  ## the benchmarks; prints their figures
	for f in $(filter-out $(APART),$(wildcard benchmarks/*.py)); do $(BIN)/python $$f || exit 1; done
	$(BIN)/python benchmarks/routed.py --quick

clean:  ## drop the virtual environment and the caches
	rm -rf $(VENV) build dist editors/vscode/node_modules editors/vscode/dist editors/vscode/out *.egg-info .mypy_cache .ruff_cache .pytest_cache .hypothesis

$(VENV)/.ready: pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet -c constraints.txt pip setuptools wheel
	$(BIN)/python -m pip install --quiet -c constraints.txt torch
	$(BIN)/python -m pip install --quiet -c constraints.txt --no-build-isolation -e '.[dev]'
	touch $@
