"""Makes a process of torchrun a watched rank: it writes down what it calls, and runs the script."""

from __future__ import annotations

import atexit
import faulthandler
import os
import signal
import time
from collections.abc import Sequence
from functools import partial
from pathlib import Path

from course_lib import context
from course_lib.diagnosis.failure import RankOutcome
from course_lib.recording import recorder, wrappers
from course_tools.watch.job_folder import LogWriter, this_machine
from course_tools.watch.script import run_script

ASK = signal.SIGRTMAX - 7  # asks a rank for its stack; no job is likely to use this signal


def run(words: Sequence[str], is_module: bool, number: int, folder: Path) -> None:
    """Run the script as a rank with this number."""
    log = LogWriter(folder, number)
    _write_stack_on_signals(folder / f"rank-{number}.stack")
    log.append("process", this_machine(), os.getpid(), os.getppid(), time.time())
    recording = recorder.Recorder(log, "cpu")
    recording.t0 = time.perf_counter() - time.time()  # so that a log has the times of time.time()
    wrappers.install()
    recorder.begin(recording)
    context.install(recording)
    atexit.register(recording.unwatch)
    run_script(words, is_module, partial(_append_ending, log, number))


def _write_stack_on_signals(path: Path) -> None:
    """Write this process's stack into a file when ASK asks for it, and at a crash.

    The signal is ignored first: when faulthandler no longer handles it, at the end or in a forked
    child, the process must not die of it.
    """
    signal.signal(ASK, signal.SIG_IGN)
    fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND)
    faulthandler.register(ASK, file=fd)
    if not faulthandler.is_enabled():
        faulthandler.enable(file=fd)
        os.register_at_fork(after_in_child=faulthandler.disable)
    os.register_at_fork(after_in_child=partial(faulthandler.unregister, ASK))


def _append_ending(log: LogWriter, number: int, error: BaseException) -> None:
    outcome = _find_outcome(number, error)
    lines = [(line.where, line.number, line.source, line.function) for line in outcome.lines]
    facts = outcome.state, outcome.at, outcome.kind, outcome.message, lines, outcome.code
    log.append("ending", *facts, outcome.last_words)


def _find_outcome(number: int, error: BaseException) -> RankOutcome:
    """Find how the script has ended.

    hydra and click call ``sys.exit()`` because of an exception: then that exception is the cause.
    """
    outcome = RankOutcome.of_exception(number, time.time(), error)
    if outcome.state == "left" and outcome.code and error.__context__ is not None:
        before = RankOutcome.of_exception(number, outcome.at, error.__context__)
        if before.lost_its_peer:
            return before
        if before.state == "raised" and before.lines:
            outcome.lines = before.lines
            outcome.last_words = outcome.last_words or f"{before.kind}: {before.message}"
    return outcome
