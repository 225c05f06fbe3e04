"""Plays a script for torchrun, CUDA and NCCL, unchanged, on GPUs that are modelled."""

from __future__ import annotations

import argparse
import importlib.util
import json
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from course_lib import GPU, Network, simulate
from course_lib.errors import CourseError
from course_lib.trace import Run
from course_tools.rehearse.step_cost import describe_step, run_steps
from course_tools.watch.reports import name_ranks
from course_tools.watch.script import add_script, claim_script, run_as_main

_NETWORKS = {
    "ethernet_100g": Network.ethernet_100g(),
    "ethernet_10g": Network.ethernet_10g(),
    "infiniband_ndr": Network.infiniband_ndr(),
    "nvlink4": Network.nvlink4(),
    "pcie5": Network.pcie5(),
}
_GPUS = {"a100": GPU.a100(), "h100": GPU.h100(), "h200": GPU.h200()}
_USAGE = """python -m course_lib.rehearse [--ranks N | --nodes N --gpus N] [OPTIONS] SCRIPT.py …
       python -m course_lib.rehearse [OPTIONS] -m MODULE …"""


def make_parser() -> argparse.ArgumentParser:
    made = argparse.ArgumentParser(prog="course_lib.rehearse", usage=_USAGE, description=__doc__)
    made.add_argument("--ranks", type=int, help="how many GPUs, all in one machine (default: 4)")
    made.add_argument("--nodes", type=int, default=1, help="how many machines (default: 1)")
    made.add_argument("--gpus", type=int, help="how many GPUs each machine has (default: 4)")
    made.add_argument(
        "--network",
        default="infiniband_ndr",
        metavar="NAME",
        help="what joins the machines: a preset of Network (default: infiniband_ndr)",
    )
    made.add_argument(
        "--gpu", choices=_GPUS, help="shapes in place of values: say what a step costs on this GPU"
    )
    made.add_argument(
        "--steps", type=int, default=3, help="with --gpu: optimizer steps to play (default: 3)"
    )
    made.add_argument(
        "--tokens", type=int, help="with --gpu: tokens of a GPU's step, to say tokens per second"
    )
    made.add_argument(
        "--limit", type=float, default=600.0, help="seconds after which it is ended (default: 600)"
    )
    made.add_argument("--trace", type=Path, metavar="FILE", help="write the trace, for Perfetto")
    made.add_argument("--json", action="store_true", help="say how it ended as one object")
    add_script(made)
    return made


def main(argv: Sequence[str]) -> int:
    options = make_parser().parse_args(argv)
    if problem := _find_problem(options):
        print(f"course_lib.rehearse: {problem}", file=sys.stderr)
        return 2
    _prepare(options)
    try:
        run = _play(options)
    except KeyboardInterrupt:
        print("course_lib.rehearse: interrupted", file=sys.stderr)
        return 130
    except CourseError as error:
        if options.trace and error.run:
            error.run.trace.save(options.trace)
        _say(options, type(error).__name__, str(error), error)
        return 1
    if options.trace:
        run.trace.save(options.trace)
    calls = len(run.trace.events)
    text = f"{run.world_size} ranks made {calls:,} calls, and nothing went wrong."
    if not calls:
        text = (
            f"{run.world_size} ranks called nothing of torch.distributed: each did the whole work "
            "alone. Does the script call init_process_group?"
        )
    if options.gpu:
        text = f"{text}\n{describe_step(run, options.steps, options.tokens)}"
    _say(options, "Right" if calls else "Alone", text)
    return 0


def _find_problem(options: argparse.Namespace) -> str:
    """What is wrong with the command line or with the script, in a line; "" if nothing is."""
    if not options.words:
        return f"name the script to play\nusage: {_USAGE}"
    if options.ranks is not None and (options.gpus or options.nodes > 1):
        return "give --ranks, or --nodes and --gpus, but not both"
    if options.steps < 1 or (options.tokens or 1) < 1:
        return "--steps and --tokens: give a whole number above 0"
    asked = (options.ranks, options.gpus, options.nodes)
    if any(count is not None and count < 1 for count in asked):
        return "a cluster has at least one machine, and a machine one GPU"
    if options.network not in _NETWORKS:
        return f"--network {options.network}: choose one of {', '.join(_NETWORKS)}"
    name = options.words[0]
    if options.is_module:
        return "" if _find_module(name) else f"there is no module {name}"
    try:
        compile(Path(name).read_bytes(), name, "exec", dont_inherit=True)
    except OSError as error:
        return f"cannot read {name}: {error.strerror}"
    except SyntaxError as error:
        return f"{name}, line {error.lineno}: {error.msg}"
    return ""


def _find_module(name: str) -> bool:
    """Whether Python finds the module. As under its own ``-m``, ``sys.path`` begins with the
    working directory from now on.
    """
    sys.path[0] = os.getcwd()
    try:
        return importlib.util.find_spec(name) is not None
    except ImportError:
        return False


def _prepare(options: argparse.Namespace) -> None:
    """Set ``sys.argv`` and ``sys.path`` as Python does, and let the script's code be the user's."""
    sys.argv = list(options.words)
    claim_script(options.words, options.is_module)
    if not options.is_module:
        sys.path[0] = os.path.dirname(os.path.realpath(options.words[0]))


def _play(options: argparse.Namespace) -> Run:
    """Play the script on the modelled cluster that the options describe."""
    gpus = options.gpus or options.ranks or 4
    script = options.words, options.is_module
    played = (run_steps, *script, options.steps) if options.gpu else (run_as_main, *script)
    return simulate(
        *played,
        world_size=options.nodes * gpus,
        network=Network.cluster(options.nodes, gpus, Network.nvlink4(), _NETWORKS[options.network]),
        limit=options.limit,
        backend="nccl",
        init=False,
        cuda=True,
        gpu=_GPUS.get(options.gpu),
    )


def _say(options: argparse.Namespace, kind: str, text: str, error: Any = None) -> None:
    """Say on stderr how it ended: ``kind`` is the class of the error, or "Right" or "Alone"."""
    if options.json:
        ranks, lines = name_ranks(error)
        facts = {"kind": kind, "text": text, "ranks": ranks, "lines": lines}
        print(json.dumps(facts), file=sys.stderr)
    else:
        print(f"\ncourse_lib.rehearse: {kind}: {text}", file=sys.stderr)
