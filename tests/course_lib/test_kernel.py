"""run() in real Jupyter kernels: output, interrupt, restart, death, two notebooks at once."""

import os
import signal
import time

import psutil
import pytest
from kernels import Kernel
from processes import alive, first_child, gone, started, wait_for

pytestmark = pytest.mark.slow

PROMPT = 25.0  # seconds: one on an idle machine, and more than a minute if it is not heard
HANG = """
def hang(path):
    with open(path, "a") as file:
        file.write(f"{os.getpid()}\\n")
    dist.recv(torch.empty(1), src=1) if dist.get_rank() == 0 else time.sleep(1000)
run(hang, %r, world_size=2, timeout=1000)
"""


class Kernels:
    """Kernels that several tests use, each of them until a test has ended it."""

    def __init__(self):
        self.open = []

    def some(self, count):
        while len(self.open) < count:
            one = Kernel()
            self.open.append(one)
            one.cell(
                "import os, time, torch, torch.distributed as dist; from course_lib import run"
            )
        return self.open[:count]


@pytest.fixture(scope="module")
def kernels():
    ours = Kernels()
    yield ours
    for one in ours.open:
        one.close()


@pytest.fixture
def notebook(kernels):
    return kernels.some(1)[0]


def interrupted(one, request):
    """Seconds until the kernel is idle again."""
    start = time.perf_counter()
    one.manager.interrupt_kernel()
    _, error = one.finish(request)
    assert error == "KeyboardInterrupt: run() was stopped, and its ranks have ended"
    return time.perf_counter() - start


def test_the_first_run_can_be_interrupted_before_its_ranks_are_there(kernels, tmp_path):
    """While the fork server imports torch, and while the ranks form; both are made to last."""
    one = kernels.some(len(kernels.open) + 1)[-1]
    for find in (first_child, lambda kernel: first_child(first_child(kernel))):
        request = one.start(HANG % str(tmp_path / "pids"))
        process = find(one.manager.provisioner.pid)
        os.kill(process, signal.SIGSTOP)
        assert interrupted(one, request) < PROMPT
        assert gone([process]) == []
    assert one.cell("print(run(dist.get_rank, world_size=2).results)")[0] == "[0, 1]\n"


def test_output_appears_in_the_cell_that_asked_for_it(notebook):
    shown, error = notebook.cell("r = run(lambda: print('rank', dist.get_rank()), world_size=3)")
    assert (shown, error) == ("[0] rank 0\n[1] rank 1\n[2] rank 2\n", None)


def test_an_error_shows_its_sentence_and_the_cell_and_no_frame_of_ours(notebook):
    notebook.cell("def fail():\n    x = 1\n    return x / 0")
    _, error = notebook.cell("run(fail, world_size=2)")
    first, second = error.splitlines()
    assert first == "RankFailed: ranks 0 and 1 raised ZeroDivisionError: division by zero"
    assert second.startswith("  cell [") and second.endswith("], line 3:  return x / 0")


def interrupt_a_hung_cell(one, path):
    request = one.start(HANG % str(path))
    ranks = started(path)
    seconds = interrupted(one, request)
    assert gone(ranks) == []
    assert one.cell("print(run(dist.get_rank, world_size=2).results)")[0] == "[0, 1]\n"
    return seconds


def test_an_interrupt_gives_the_prompt_back_and_the_next_cell_works(notebook, tmp_path):
    assert interrupt_a_hung_cell(notebook, tmp_path / "pids") < PROMPT


def test_two_notebooks_at_once(kernels):
    code = """
def work():
    x = torch.tensor([float(os.environ["COURSE_TEST_NUMBER"])])
    for _ in range(20):
        dist.all_reduce(x, op=dist.ReduceOp.MAX)
        time.sleep(0.01)
    return x.item()
os.environ["COURSE_TEST_NUMBER"] = "%d"
print(run(work, world_size=3).results)
"""
    one, other = kernels.some(2)
    first, second = one.start(code % 1), other.start(code % 2)
    assert one.finish(first) == ("[1.0, 1.0, 1.0]\n", None)
    assert other.finish(second) == ("[2.0, 2.0, 2.0]\n", None)


def test_ranks_die_with_their_kernel_though_a_fork_of_it_lives_on(kernels, tmp_path):
    """One is stuck in Python, one in a collective, and two stand by; the fork has all files."""
    one = kernels.some(1)[0]
    server = int(one.cell("print(run(os.getppid, world_size=2).results[0])")[0])
    fork = int(one.cell("print(os.fork() or os.setsid() or time.sleep(1000))")[0])
    try:
        beside = HANG.replace("run(", "ThreadPoolExecutor().submit(run, ") % str(tmp_path / "pids")
        one.cell(f"from concurrent.futures import ThreadPoolExecutor\n{beside}")
        started(tmp_path / "pids")
        one.cell("run(dist.get_rank, world_size=2)")
        ranks = wait_for(lambda: len(found := children(server)) == 4 and found)
        one.manager.restart_kernel(now=True)
        assert gone([server, *ranks]) == []
        assert alive(fork)
    finally:
        os.kill(fork, signal.SIGKILL)
    kernels.open.remove(one)
    one.close()


def children(pid):
    return [child.pid for child in psutil.Process(pid).children()]
