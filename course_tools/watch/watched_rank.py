"""In a rank: write down what it calls, and run the script."""

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

ASK = signal.SIGRTMAX - 7  # no job is likely to use it for something else


def run(words: Sequence[str], is_module: bool, number: int, folder: Path) -> None:
    """Run the script as a rank with this number."""
    log = LogWriter(folder, number)
    _let_ask(folder / f"rank-{number}.stack")
    log.append("process", this_machine(), os.getpid(), os.getppid(), time.time())
    recording = recorder.Recorder(log, "cpu")
    recording.t0 = time.perf_counter() - time.time()  # the clock that machines have in common
    wrappers.install()
    recorder.begin(recording)
    context.install(recording)
    atexit.register(recording.unwatch)
    run_script(words, is_module, partial(_failed, log, number))


def _let_ask(path: Path) -> None:
    """Have its stack written into a file when it is asked for, and at a crash. Once faulthandler
    has let go of it, at the end or in a child, who is asked says nothing, and lives.
    """
    signal.signal(ASK, signal.SIG_IGN)
    fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND)
    faulthandler.register(ASK, file=fd)
    if not faulthandler.is_enabled():
        faulthandler.enable(file=fd)
        os.register_at_fork(after_in_child=faulthandler.disable)
    os.register_at_fork(after_in_child=partial(faulthandler.unregister, ASK))


def _failed(log: LogWriter, number: int, error: BaseException) -> None:
    outcome = _outcome(number, error)
    lines = [(line.where, line.number, line.source, line.function) for line in outcome.lines]
    facts = outcome.state, outcome.at, outcome.kind, outcome.message, lines, outcome.code
    log.append("ending", *facts, outcome.last_words)


def _outcome(number: int, error: BaseException) -> RankOutcome:
    """How its script has ended. One that calls ``sys.exit()`` because of an exception, as those of
    hydra and click do, has that to say.
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
