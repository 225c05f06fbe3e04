"""A helper in a cell of the learner's own, which grading leaves out: check says so, in a kernel."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator

import pytest
from jupyter_client.manager import KernelManager

from course_staff.authoring.execute import listening_in

pytestmark = pytest.mark.slow
HELPER = "def halves(n, k):\n    return divmod(n, k)\n"
ANSWER = """
def my_share(n_items):
    rank = dist.get_rank()
    size, extra = {call}
    start = rank * size + min(rank, extra)
    return range(start, start + size + (rank < extra))
"""
BY_HELPER = ANSWER.format(call="halves(n_items, dist.get_world_size())")
SAID = "comes from another cell of yours: grading runs the answer's cell alone."


class Notebook:
    """A kernel that is told the id of each cell it runs, as JupyterLab tells it."""

    def __init__(self) -> None:
        self.sockets = tempfile.TemporaryDirectory()
        self.manager = KernelManager(config=listening_in(self.sockets.name))
        self.manager.start_kernel()
        self.client = self.manager.client()
        self.client.start_channels()
        self.client.wait_for_ready(timeout=60)

    def cell(self, code: str, id: str | None) -> str:
        """What the cell's last value looks like."""
        meta = {"cellId": id} if id else {}
        content = {"code": code, "silent": False, "store_history": True, "allow_stdin": False}
        message = self.client.session.msg("execute_request", content, metadata=meta)
        self.client.shell_channel.send(message)
        shown = ""
        while True:
            got = self.client.get_iopub_msg(timeout=120)
            if got["parent_header"].get("msg_id") != message["header"]["msg_id"]:
                continue
            assert got["msg_type"] != "error", got["content"]
            if got["msg_type"] == "execute_result":
                shown = got["content"]["data"]["text/plain"]
            if got["content"].get("execution_state") == "idle":
                return shown

    def close(self) -> None:
        self.client.stop_channels()
        self.manager.shutdown_kernel(now=True)
        self.sockets.cleanup()


@pytest.fixture(scope="module")
def notebook() -> Iterator[Notebook]:
    one = Notebook()
    one.cell("import torch.distributed as dist\nfrom course_lib import check", "00-install")
    yield one
    one.close()


@pytest.mark.parametrize("id", ["6e1f0c2a", "my_share-try", "my_share-check"])
def test_a_helper_in_another_cell_is_named_under_a_full_verdict(
    notebook: Notebook, id: str
) -> None:
    notebook.cell("from course_check import own_cells; own_cells._cells.clear()", "00-install")
    notebook.cell(HELPER, id)
    notebook.cell(BY_HELPER, "my_share-answer")
    verdict = notebook.cell("check(my_share)", "my_share-check")
    assert verdict.startswith("00.1 my_share: passed")
    assert f"halves {SAID}" in " ".join(verdict.split())


@pytest.mark.parametrize(
    ("helper", "answer", "ids"),
    [
        ("", HELPER + BY_HELPER, ("9a7c1b00", "my_share-answer")),  # in the answer's own cell
        (HELPER, BY_HELPER, ("00-9b87ca", "my_share-answer")),  # in a cell that the lesson gives
        (HELPER, BY_HELPER, (None, "my_share-answer")),  # of a front end that names no cell
    ],
)
def test_what_grading_runs_too_is_not_named(
    notebook: Notebook, helper: str, answer: str, ids: tuple[str | None, str]
) -> None:
    names = "from course_check import own_cells; own_cells._cells.clear()"
    notebook.cell(names, "00-install")
    for text, id in zip((helper, answer), ids, strict=True):
        notebook.cell(text, id)
    verdict = notebook.cell("check(my_share)", "my_share-check")
    assert verdict.startswith("00.1 my_share: passed")
    assert "cell of yours" not in verdict
