"""What the machine lacks is told as the machine's fault: a right answer gets no verdict."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import zoo

from course_check.checking import verdict_on
from course_check.harness.answer import Answer
from course_check.play import CannotCheck
from course_exercises.catalogue import find
from course_lib import check, versions

ROOT = Path(__file__).parents[2]
RIGHT = zoo.right("exchange")["lower_first"]
CAPS = ("--inh-caps=-all,+dac_read_search", "--ambient-caps=-all,+dac_read_search")
# Limits of processes do not hold for root.
NOBODY = ("setpriv", "--reuid=4242", "--regid=4242", "--clear-groups", *CAPS)
POOR = {
    "loopback is down": (["unshare", "-n"], "ip link set lo up"),
    "no process for a rank": (["prlimit", "--nproc=3", *NOBODY], "temporarily unavailable"),
    "no thread for a simulated rank": (["prlimit", "--nproc=10", *NOBODY], "no thread for"),
}


def can(*command: str) -> bool:
    """Whether this system lets us make itself poor in this way."""
    if shutil.which(command[0]) is None:
        return False
    return subprocess.run([*command, "true"], capture_output=True).returncode == 0


@pytest.fixture
def answer(tmp_path: Path) -> Path:
    tmp_path.chmod(0o755)
    file = tmp_path / "answer.py"
    file.write_text(RIGHT)
    return file


@pytest.mark.slow
@pytest.mark.parametrize("what", POOR)
def test_a_right_answer_on_a_poor_machine_gets_no_verdict(what: str, answer: Path) -> None:
    limits, said = POOR[what]
    if not can(*limits):
        pytest.skip(f"this system does not let us try: {what}")
    command = [*limits, sys.executable, "-m", "course_lib", "check", "exchange", str(answer)]
    done = subprocess.run([*command, "--json"], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 2, done.stdout + done.stderr
    told = json.loads(done.stdout[done.stdout.index("{") :])  # C++ may have complained before
    assert (told["passed"], told["points"], told["levels"]) == (None, None, {})
    assert told["diagnosis"] == "could-not-run"
    assert told["hint"].startswith("check could not run here: ")
    assert said in told["hint"]


# as the system does when it has no memory left
KILLED = "import ctypes, os; ctypes.CDLL(None).kill(os.getpid(), 9)"


@pytest.mark.slow
def test_a_process_that_was_killed_tells_nothing_of_the_answer() -> None:
    source = f"def exchange(mine, partner):\n    {KILLED}\n"
    with pytest.raises(CannotCheck, match="memory ran out"):
        verdict_on(find("exchange"), Answer("exchange", source=source, file="answer.py"))


def test_a_notebook_shows_the_sentence_and_no_frame(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(versions, "OLDEST_TORCH", (99, 0))

    def my_share(n_items: int) -> range:
        return range(n_items)

    with pytest.raises(CannotCheck) as caught:
        check(my_share)
    shown = caught.value._render_traceback_()
    assert shown[0].startswith("check could not run here: ")
    assert shown[-1].startswith("This says nothing about your answer.")


def test_a_working_folder_that_is_gone(monkeypatch: pytest.MonkeyPatch) -> None:
    def gone() -> str:
        raise FileNotFoundError(2, "No such file or directory")

    monkeypatch.setattr("course_lib.launching.world.os.getcwd", gone)
    with pytest.raises(CannotCheck, match="FileNotFoundError"):
        verdict_on(find("exchange"), Answer("exchange", source=RIGHT, file="answer.py"))
