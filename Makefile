# make lab     the environment if need be, your copies in work/, and JupyterLab on them
# make test    every test and every notebook
# make check   what to run before a commit: format, lint, types, drift, fast tests
# make soak    what has to hold hundreds of times: an hour; writes build/soak (tests/soak/README.md)
# make build   lessons in notebooks/src -> notebooks, where they changed
# make figures draw the pictures of README and lessons again, from runs made here
# make bench   every budget of speed, as a ratio against a reference in the same run
# make site    the course as static pages: build/site/index.html
# make gpu     on a machine with GPUs: the exercises on NCCL, and what only GPUs show (build/gpu)
# make grade   marks for notebooks: make grade SUBMISSIONS=inbox/ OUT=marks (course_staff/grading);
#              MANIFEST=spring.json POLICY=policy.toml ROSTER=roster.csv, if you have some
# make update  carry your answers in work/ into newer lessons
# make clean   remove the environment and caches; work/ stays
#
# LAB_ARGS=... more arguments for JupyterLab, as LAB_ARGS="--no-browser --port 9000"
# TORCH=cpu    take PyTorch's CPU builds (200 MB instead of 5 GB), from PyTorch's own index
# PYTHON=...   use this Python instead of the first one found that is new enough

VENV := .venv
PY := $(VENV)/bin/python
TORCH_CPU_INDEX := https://download.pytorch.org/whl/cpu
PIP := $(PY) -m pip --disable-pip-version-check
NEW_ENOUGH := import sys; sys.exit(sys.version_info < (3, 11))

# The kernel and the settings of this environment, not those of another one in the home directory.
export JUPYTER_PREFER_ENV_PATH := 1

# Stamps say what has been installed: by requirements.txt, and by requirements-dev.txt.
ifeq ($(TORCH),)
READY := $(VENV)/.ready
else ifeq ($(TORCH),cpu)
READY := $(VENV)/.ready-cpu
else
$(error TORCH=$(TORCH) is not known: leave it out, or say TORCH=cpu)
endif
DEV := $(READY)-dev

# JupyterLab refuses to run as root unless it is told to: containers often are.
ROOT_FLAG = $(if $(filter 0,$(shell id -u)),--allow-root)

.DEFAULT_GOAL := help
.PHONY: help lab test check soak build figures bench site gpu grade update clean

help:
	@sed -n '/^#/!q; s/^# \{0,1\}//p' Makefile

# JupyterLab would ask whether to fetch news, and look for newer versions of itself than the one that
# is pinned. These are defaults of this environment: what a user has set for themselves still counts.
QUIET := $(VENV)/etc/jupyter/labconfig/default_setting_overrides.json

$(QUIET): Makefile
	@mkdir -p $(@D)
	@echo '{"@jupyterlab/apputils-extension:notification":' \
	  '{"fetchNews": "false", "checkForUpdates": false}}' > $@

lab: $(READY) $(QUIET)
	$(PY) -m course_lib update --missing
	$(PY) -m jupyterlab $(ROOT_FLAG) --LabApp.default_url=/lab/tree/work/map.ipynb $(LAB_ARGS)

test: $(DEV)
	$(PY) -m pytest -n 4 -p no:nbval $(TEST_ARGS)

check: $(DEV)
	$(PY) -m ruff format --check
	$(PY) -m ruff check
	$(PY) -m mypy
	$(PY) -m course_lib build --check
	$(PY) -m pytest -q -n 2 -p no:nbval -m "not slow and not browser"

soak: $(DEV)
	$(PY) -m pytest tests/soak -o "python_files=soak_*.py" -o "norecursedirs=.*" --timeout=3600 \
	  $(SOAK_ARGS)

build: $(DEV)
	$(PY) -m course_lib build

figures: $(DEV)
	$(PY) figures/make.py

bench: $(READY)
	$(PY) tools/bench.py $(BENCH_ARGS)

site: $(DEV)
	$(PY) tools/make_site.py $(SITE_ARGS)

gpu: $(READY)
	$(PY) tools/gpu_report.py $(GPU_ARGS)

grade: $(READY)
	@test -n "$(SUBMISSIONS)" || { echo "make grade: name the notebooks, or a folder of them:" \
	  "make grade SUBMISSIONS=inbox/ OUT=marks" >&2; exit 2; }
	$(PY) -m course_lib grade $(SUBMISSIONS) --out $(or $(OUT),build/grades) \
	  $(if $(MANIFEST),--manifest $(MANIFEST)) $(if $(POLICY),--policy $(POLICY)) \
	  $(if $(ROSTER),--roster $(ROSTER)) $(GRADE_ARGS)

update: $(READY)
	$(PY) -m course_lib update

clean:
	rm -rf $(VENV) build *.egg-info .pytest_cache .ruff_cache .mypy_cache .hypothesis
	find course_* tests notebooks figures tools -name __pycache__ -prune -exec rm -rf {} +

$(PY):
	@for python in $(or $(PYTHON),python3 python3.13 python3.12 python3.11 python); do \
	  if "$$python" -c '$(NEW_ENOUGH)' 2>/dev/null; then \
	    echo "making $(VENV) with $$("$$python" --version)"; \
	    "$$python" -m venv $(VENV) && exit 0; \
	    rm -rf $(VENV); exit 1; \
	  fi; \
	done; \
	echo "no Python 3.11 or later was found: install one, or name it: make lab PYTHON=/path/to/python3" >&2; \
	exit 1

$(VENV)/.ready: requirements.txt pyproject.toml | $(PY)
	$(PIP) install -r requirements.txt
	@touch $@

# PyTorch first and from its own index alone; the other requirements then find it in place.
$(VENV)/.ready-cpu: requirements.txt pyproject.toml | $(PY)
	grep -E '^(torch|torchvision)==' requirements.txt > $(VENV)/torch.txt
	$(PIP) install -r $(VENV)/torch.txt --index-url $(TORCH_CPU_INDEX)
	@$(PY) -c 'import sys, torch; sys.exit(torch.version.cuda and "this environment already has PyTorch for CUDA, which also runs on a CPU; for the small one: make clean, then again with TORCH=cpu")'
	$(PIP) install -r requirements.txt
	@touch $(VENV)/.ready $@

$(DEV): requirements-dev.txt $(READY)
	$(PIP) install -r requirements-dev.txt
	@touch $(VENV)/.ready-dev $@
