"""A hung cell in a real JupyterLab: Kernel → Interrupt Kernel, and the prompt is back. The same for
the first ``run()`` of a process, at any moment.
"""

from __future__ import annotations

import json
import subprocess
import sys
import textwrap
import time
from pathlib import Path

import nbformat
import pytest
from soak_ranks_common import count, report

TIMES = count(20)
SECONDS = 1.0  # from the click to a kernel that is idle again; on a machine with nothing else to do

FIRST = """
import os, time, torch, torch.distributed as dist
from course_lib import run
torch.ones(3, requires_grad=True).sum().backward()

def say(path):
    open(f"{path}-{dist.get_rank()}", "w").close()

def never_sent(path):
    say(path)
    dist.recv(torch.empty(1), src=(dist.get_rank() + 1) % 2, tag=dist.get_rank())

def one_is_late(path):
    say(path)
    time.sleep(1000 if dist.get_rank() else 0)
    dist.barrier()

def endless(path):
    say(path)
    while True:
        pass
"""
HANGS = ("never_sent", "one_is_late", "endless")
HUNG = "run({name}, {path!r}, world_size=2, timeout=1000)"
NEXT = "print(run(dist.get_rank, world_size=2).results)"

PANEL = "window.jupyterapp.shell.currentWidget"
READY = """() => window.jupyterapp?.shell?.currentWidget
    ?.sessionContext?.session?.kernel?.status === 'idle'"""
LISTEN = f"""() => {{
    window.idleAt = null;
    {PANEL}.sessionContext.session.kernel.statusChanged.connect((_, status) => {{
        if (status === 'idle') window.idleAt = performance.now();
    }});
}}"""


class Notebook:
    """One notebook that is open in a page: run its cells one by one."""

    def __init__(self, page) -> None:
        self.page = page

    def start(self, cell: int, source: str) -> None:
        self.page.evaluate(
            f"""([at, source]) => {{
                const notebook = {PANEL}.content;
                notebook.activeCellIndex = at;
                notebook.activeCell.model.sharedModel.setSource(source);
                window.jupyterapp.commands.execute('notebook:run-cell');
            }}""",
            [cell, source],
        )

    def idle(self, count: int) -> None:
        """Wait until so many cells have been executed, and the kernel has nothing to do."""
        self.page.wait_for_function(
            f"""n => {PANEL}.content.widgets.some(w => w.model.executionCount === n)
                && {PANEL}.sessionContext.session.kernel.status === 'idle'""",
            arg=count,
        )

    def shown(self, cell: int) -> str:
        return self.page.evaluate(
            f"at => JSON.stringify({PANEL}.content.widgets[at].model.sharedModel.toJSON().outputs)",
            cell,
        )

    def interrupt(self) -> float:
        """Seconds from the click on Interrupt Kernel until the kernel is idle."""
        self.page.get_by_role("menuitem", name="Kernel", exact=True).click()
        item = self.page.get_by_role("menuitem", name="Interrupt Kernel", exact=False).first
        item.wait_for()
        self.page.evaluate("window.askedAt = performance.now(); window.idleAt = null")
        item.click()
        self.page.wait_for_function("window.idleAt !== null")
        return self.page.evaluate("window.idleAt - window.askedAt") / 1000


def wait_for(paths: list[Path], seconds: float = 60) -> None:
    end = time.monotonic() + seconds
    while not all(path.exists() for path in paths):
        assert time.monotonic() < end, "the ranks did not start"
        time.sleep(0.02)


@pytest.mark.timeout(1800)
def test_an_interrupt_gives_the_prompt_back(browser, jupyterlab, tmp_path: Path):
    cells = [nbformat.v4.new_code_cell(FIRST), *(nbformat.v4.new_code_cell("") for _ in range(2))]
    kernel = {"name": "python3", "display_name": "Python 3"}
    notebook = nbformat.v4.new_notebook(cells=cells, metadata={"kernelspec": kernel})
    nbformat.write(notebook, tmp_path / "hung.ipynb")
    page = browser.new_page(viewport={"width": 1200, "height": 900})
    page.set_default_timeout(60_000)
    page.goto(jupyterlab(tmp_path / "hung.ipynb"))
    page.wait_for_function(READY)
    page.evaluate(LISTEN)
    lab = Notebook(page)
    lab.start(0, FIRST)
    lab.idle(1)

    seconds: list[float] = []
    try:
        for number in range(TIMES):
            mark = tmp_path / f"in-{number}"
            hang = HANGS[number % len(HANGS)]
            lab.start(1, HUNG.format(name=hang, path=str(mark)))
            wait_for([Path(f"{mark}-{rank}") for rank in range(2)])
            seconds.append(lab.interrupt())
            assert "KeyboardInterrupt" in lab.shown(1)
            lab.start(2, NEXT)
            lab.idle(2 * number + 3)
            assert "[0, 1]" in lab.shown(2)
    finally:
        report("interrupt", seconds=seconds, at_most=SECONDS)
        page.close()
    assert max(seconds) <= SECONDS, seconds


# ---- the first run of a process -----------------------------------------------------------------

# Seconds after its beginning: the fork server imports torch, ranks start and form, ranks work.
MOMENTS = [round(0.1 * 100 ** (k / (TIMES - 1)), 2) for k in range(TIMES)]

FIRST_RUN = """
    import json, os, signal, sys, threading, time
    import torch, torch.distributed as dist
    from course_lib import run
    from course_lib.ranks.standby import standby
    from soak_ranks_common import marked_world

    def endless():
        while True:
            time.sleep(1000)

    def interrupt():
        time.sleep(float(sys.argv[1]))
        asked.append(time.perf_counter())
        os.kill(os.getpid(), signal.SIGINT)

    asked, back, words, done = [], None, None, standby.done
    signal.signal(signal.SIGINT, signal.default_int_handler)  # a background job ignores it
    if sys.argv[2] == "forget":
        standby.done = lambda world: None
    with marked_world() as leftovers:
        threading.Thread(target=interrupt).start()
        try:
            run(endless, world_size=2, timeout=1000)
        except KeyboardInterrupt as error:
            back, words = time.perf_counter() - asked[0], str(error)
        answered = standby.ready is not None
        _, left = leftovers.wait()
        standby.done = done
        results = run(dist.get_rank, world_size=2).results
        _, left_at_the_end = leftovers.wait()
    told = dict(back=back, words=words, answered=answered, results=results,
                left=left, left_at_the_end=left_at_the_end)
    print(json.dumps(told))
"""


def interrupt_the_first_run(moment: float, what: str = "end") -> dict:
    command = [sys.executable, "-c", textwrap.dedent(FIRST_RUN), str(moment), what]
    here = Path(__file__).parent
    done = subprocess.run(command, cwd=here, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1]) | {"moment": moment}


def test_the_first_run_of_a_process_can_be_interrupted_at_any_moment():
    told: list[dict] = []
    try:
        for moment in MOMENTS:
            told.append(interrupt_the_first_run(moment))
    finally:
        report(
            "interrupt-first-run", slowest=max(t["back"] for t in told), at_most=SECONDS, told=told
        )
    for one in told:
        assert one["words"] == "run() was stopped, and its ranks have ended", one
        assert one["left"] == one["left_at_the_end"] == [], one
        assert one["results"] == [0, 1], one
        assert one["back"] <= SECONDS, one


def test_what_an_interrupt_leaves_is_seen():
    assert interrupt_the_first_run(0.1, "forget")["left"]
