"""Every lesson there is: built, compared by nbval, and run in a browser as a learner runs it.

Lessons are found, not listed: a new one in notebooks/src is tested from its first day.
"""

from __future__ import annotations

import ast
import difflib
import math
import re
import shutil
import tempfile
from pathlib import Path
from typing import Any

import nbformat
import pytest
import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler

from course_lib import Deadlock, Network, simulate
from course_lib.grading.release import solution_lines, told_in
from course_lib.notebooks.build import LARGEST, drift, strangers
from course_lib.notebooks.copies import learner_copy, to_text
from course_lib.notebooks.execute import compare
from course_lib.notebooks.folders import Folders
from course_lib.notebooks.lesson import STUB, Cell
from course_lib.notebooks.source import parse_lesson, read_lesson

ROOT = Path(__file__).resolve().parents[1]
COURSE = Folders(ROOT)
SOURCES = sorted(COURSE.sources.glob("*.py"))

each_lesson = pytest.mark.parametrize("source", SOURCES, ids=[path.stem for path in SOURCES])


def learner_path(source: Path) -> Path:
    return COURSE.learner / f"{source.stem}.ipynb"


def solved_path(source: Path) -> Path:
    return COURSE.solutions / f"{source.stem}.ipynb"


def test_there_is_a_lesson_and_every_notebook_has_a_source():
    assert SOURCES, "no lesson in notebooks/src"
    assert not list(strangers(COURSE))


# ------------------------------------------------------------------------------- as it is built


@each_lesson
def test_notebooks_are_what_the_source_says(source: Path):
    assert not drift(source, COURSE)


@each_lesson
def test_a_lesson_has_one_required_exercise(source: Path):
    required = [answer.exercise for answer in read_lesson(source).answers if answer.required]
    assert len(required) == 1


@each_lesson
def test_a_lesson_can_be_read_in_an_hour(source: Path):
    lesson = read_lesson(source)
    assert 25 <= len(lesson.cells) <= 40, "a lesson has 25 to 40 cells"
    for cell in lesson.cells:
        if cell.kind == "code" and not cell.exercise:
            assert cell.text.count("\n") < 25, f"cell {cell.id} has more than 25 lines"


@each_lesson
def test_the_learners_copy_holds_no_line_of_a_solution(source: Path):
    lesson = read_lesson(source)
    assert lesson.answers
    assert not told_in(learner_path(source), solution_lines([lesson]))


@each_lesson
def test_every_stub_raises_the_one_line(source: Path):
    for answer in read_lesson(source).answers:
        assert STUB in answer.stub
        assert ast.get_docstring(first_definition(answer)), f"{answer.exercise} has no docstring"


def first_definition(answer: Cell) -> ast.FunctionDef | ast.ClassDef:
    return next(
        node
        for node in ast.parse(answer.stub).body
        if isinstance(node, ast.FunctionDef | ast.ClassDef) and node.name == answer.exercise
    )


@each_lesson
@pytest.mark.parametrize("copy", [learner_path, solved_path], ids=["learner", "solved"])
def test_links_inside_the_course_lead_somewhere(source: Path, copy):
    path = copy(source)
    for cell in nbformat.read(path, as_version=4).cells:
        if cell.cell_type == "markdown":
            found = re.findall(r"""(?:\]\(|(?:src|href)=["'])([^)"'#\s]+)""", cell.source)
            for target in found:
                if "://" not in target and not target.startswith(("mailto:", "attachment:")):
                    assert (path.parent / target).exists(), f"cell {cell.id}: {target}"


@each_lesson
def test_stored_outputs_tell_nothing_of_the_machine(source: Path):
    path = solved_path(source)
    assert path.stat().st_size <= LARGEST
    texts = [
        text
        for cell in nbformat.read(path, as_version=4).cells
        for output in cell.get("outputs", ())
        for text in (output.get("text"), *output.get("data", {}).values())
        if text
    ]
    for foreign in (str(ROOT), str(Path.home()) + "/", "/tmp/", "\x1b[", "ipykernel_"):
        assert not [text for text in texts if foreign in text], foreign


# ------------------------------------------------------------------------------- what 04 to 06 say


def given(lesson: str, *cells: str) -> dict[str, Any]:
    """The names that these code cells of a lesson define, each run as it stands."""
    (source,) = COURSE.sources.glob(f"{lesson}_*.py")
    text = {cell.id: cell.text for cell in read_lesson(source).cells}
    names: dict[str, Any] = {"__name__": "__main__"}
    for cell in cells:
        exec(compile(text[f"{lesson}-{cell}"], f"<{cell}>", "exec"), names)
    return names


def test_04_a_tree_takes_two_logarithms_of_whole_tensors():
    network, size = Network(collectives="messages"), 65_536

    def there_and_back():
        total = torch.zeros(size // 4)
        dist.reduce(total, dst=0)
        dist.broadcast(total, src=0)

    for n in (2, 8, 64):
        seconds = simulate(there_and_back, world_size=n, network=network).seconds
        expected = 2 * math.ceil(math.log2(n)) * (network.latency + size / network.bandwidth)
        assert math.isclose(seconds, expected, rel_tol=1e-9)


def test_04_rings_take_the_time_and_send_the_bytes_of_the_formulas():
    names = given("04", "2e7bc8", "f6e553", "b0abad", "b18987")
    network, size = Network(), names["S"]
    for n, job in names["rings"].items():
        step = network.latency + size / n / network.bandwidth
        assert math.isclose(job.seconds, 2 * (n - 1) * step, rel_tol=1e-9)
        assert {job.trace.bytes_sent(r) for r in range(n)} == {2 * (n - 1) * size // n}
    for n, job in names["wholes"].items():
        assert {job.trace.bytes_sent(r) for r in range(n)} == {(n - 1) * size}


def test_05_disjoint_parts_are_for_the_twin_and_not_for_equal_ranks():
    """Ranks that all train on the same samples stay equal, and differ from one process."""
    names = given("05", "5683b6", "33fc05")
    samples = torch.tensor([[1.0, 2.0], [3.0, 5.0]])

    def gradient(takes_rank):
        torch.manual_seed(0)
        model = nn.Linear(2, 1)
        model(samples.tensor_split(dist.get_world_size())[takes_rank]).square().mean().backward()
        names["share_gradients"](model)
        return model.weight.grad.tolist()

    ranks, twin = (simulate(gradient, 0, world_size=n).results for n in (2, 1))
    assert ranks[0] == ranks[1] != twin[0]


def test_05_the_transfer_of_a_ring_never_doubles():
    """Without latency 64 ranks take less than twice as long as two."""
    network = Network(latency=1e-15, bandwidth=1e9, collectives="messages")
    two, many = (
        simulate(lambda: dist.all_reduce(torch.zeros(2**16)), world_size=n, network=network).seconds
        for n in (2, 64)
    )
    assert 1.9 * two < many < 2 * two


def test_06_the_gradient_that_marks_the_end_of_backward_is_the_last_one():
    names, order = given("06", "af21f2", "bc81ee"), []
    model = names["network"]()
    for parameter in model.parameters():
        parameter.register_post_accumulate_grad_hook(order.append)
    names["loss_of"](model, 4).backward()
    assert order[-1] is model[1].weight


def test_06_one_bucket_cannot_overlap_and_three_do():
    """What the picture shows is not so in the first step, whose only bucket fills last."""
    names = given("06", "af21f2", "bd98a8", "bc81ee", "032e9d", "55ff42")
    _, last_gradient, calls = names["window"](names["wrapped"], step=0)
    assert calls and all(call.issued > last_gradient for call in calls)
    for step in (1, 2):
        _, last_gradient, calls = names["window"](names["wrapped"], step)
        reductions = [call.issued for call in calls if call.op == "all_reduce"]
        assert len(reductions) == 3
        assert reductions[0] < last_gradient < reductions[2]
    assert [e.op for e in names["wrapped"].trace.of(0)].count("all_reduce") == 1 + 3 * 3


def test_06_a_loader_refuses_sampler_and_shuffle():
    sampler = DistributedSampler(range(10), num_replicas=2, rank=0)
    with pytest.raises(ValueError, match="mutually exclusive"):
        DataLoader(range(10), sampler=sampler, shuffle=True)


def test_06_the_wrapper_on_rank_0_alone_waits_forever_and_does_not_convert_batch_norm():
    def evaluated_on_rank_0():
        ddp = DistributedDataParallel(nn.BatchNorm1d(2))
        assert type(ddp.module) is nn.BatchNorm1d
        ddp.eval()
        if dist.get_rank() == 0:
            ddp(torch.ones(1, 2))

    with pytest.raises(Deadlock):
        simulate(evaluated_on_rank_0, world_size=2)


def test_06_adam_takes_16_bytes_per_parameter():
    model = nn.Linear(1000, 1000)
    adam = torch.optim.Adam(model.parameters())
    model(torch.ones(1, 1000)).sum().backward()
    adam.step()
    averages = [s[key] for s in adam.state.values() for key in ("exp_avg", "exp_avg_sq")]
    held = [*model.parameters(), *(p.grad for p in model.parameters()), *averages]
    assert sum(t.nbytes for t in held) == 16 * sum(p.numel() for p in model.parameters())


def test_06_the_change_to_ddp_names_the_device_three_times():
    """It is short enough to be read, and has what turns CPU code into GPU code."""
    before, after = ((ROOT / "jobs" / f"{name}.py").read_text() for name in ("single", "ddp"))
    changes = difflib.ndiff(before.splitlines(), after.splitlines())
    added = [line for line in changes if line.startswith("+ ")]
    assert len(added) <= 32
    for device in ("set_device(local_rank)", "device_id=device", "device_ids=[local_rank]"):
        assert sum(device in line for line in added) == 1


# ------------------------------------------------------------------------------- nbval


@pytest.mark.slow
@pytest.mark.timeout(400)
@each_lesson
def test_nbval_finds_every_stored_output_again(source: Path, tmp_path: Path):
    compare_by_nbval(source, tmp_path)


def compare_by_nbval(source: Path, tmp_path: Path) -> None:
    """The same outputs again, and no file left behind."""
    with tempfile.TemporaryDirectory() as scratch, pytest.MonkeyPatch.context() as patch:
        patch.setenv("TMPDIR", scratch)
        done = compare(solved_path(source), COURSE.rules, ROOT, tmp_path, seconds=380)
        left = [path.name for path in Path(scratch).iterdir()
                if not path.name.startswith("torchinductor_")]  # fmt: skip
    assert done.returncode == 0, done.stdout[-8000:]
    assert left == []


# ------------------------------------------------------------------------------- in a browser

# What JupyterLab itself knows about the notebook that is open.
CELLS = "window.jupyterapp.shell.currentWidget.content.widgets.map(w => w.model)"
LOADED = f"""name => {{
    const panel = window.jupyterapp?.shell?.currentWidget;
    const session = panel?.sessionContext?.session;
    return panel?.context?.path === name
        && session?.kernel?.status === 'idle' && {CELLS}.length > 0;
}}"""
# The command ends at the first error, also one that is allowed, while the kernel goes on with the
# cells that it has been sent. So afterwards something is executed that stands behind them all.
LISTEN = """() => window.jupyterapp.commands.commandExecuted.connect((_, command) => {
    if (command.id === 'notebook:run-all-cells') {
        const ended = () => { window.ranAll = true; };
        command.result.then(ended, ended);
    }
})"""
BEHIND = """() => {
    const kernel = window.jupyterapp.shell.currentWidget.sessionContext.session.kernel;
    kernel.requestExecute({code: '', silent: true}).done.finally(() => { window.allDone = true; });
}"""


def run_all(browser, address: str, name: str, seconds: float) -> tuple[list[dict], int]:
    """Open a notebook, click Run → Run All Cells, and wait until that has ended.

    Returns the cells as they are in the page, and how many pictures the page shows.
    """
    page = browser.new_page(viewport={"width": 1200, "height": 900})
    try:
        page.set_default_timeout(60_000)
        page.goto(address.replace("/lab?", f"/lab/tree/{name}?reset&"))
        page.wait_for_function(LOADED, arg=name)
        page.evaluate(LISTEN)
        page.get_by_role("menuitem", name="Run", exact=True).click()
        page.get_by_role("menuitem", name="Run All Cells", exact=True).click()
        page.wait_for_function("window.ranAll", timeout=seconds * 1000)
        page.evaluate(BEHIND)
        page.wait_for_function("window.allDone", timeout=seconds * 1000)
        pictures = page.locator(".jp-OutputArea-output img").count()
        return page.evaluate(f"() => {CELLS}.map(m => m.sharedModel.toJSON())"), pictures
    finally:
        page.close()


def failing(cells: list[dict]) -> list[dict]:
    return [
        cell
        for cell in cells
        if any(output["output_type"] == "error" for output in cell.get("outputs", ()))
    ]


def not_reached(cells: list[dict]) -> list[str]:
    code = [cell for cell in cells if cell["cell_type"] == "code" and cell["source"].strip()]
    return [cell["id"] for cell in code if cell["execution_count"] is None]


@pytest.mark.slow
@pytest.mark.browser
@pytest.mark.timeout(400)
def test_run_all_in_an_untouched_copy_reaches_the_last_cell(browser, jupyterlab, tmp_path: Path):
    run_an_untouched_copy(SOURCES[0], browser, jupyterlab, tmp_path)  # the others: tests/soak


def run_an_untouched_copy(source: Path, browser, jupyterlab, tmp_path: Path) -> None:
    """In a real JupyterLab: the ranks' output and the pictures are in the page, exactly the
    exercises that nobody has solved fail, and each says in one line that it is not written."""
    lesson = read_lesson(source)
    copy = Path(shutil.copy(learner_path(source), tmp_path))
    cells, pictures = run_all(browser, jupyterlab(tmp_path), copy.name, seconds=300)

    assert not not_reached(cells)
    stray = [cell["id"] for cell in failing(cells) if "exercise" not in cell["metadata"]]
    assert not stray, "cells of the story fail"
    checks = {c["metadata"]["exercise"] for c in failing(cells) if c["metadata"]["role"] == "check"}
    assert checks == {answer.exercise for answer in lesson.answers}
    for cell in failing(cells):
        assert "not written yet" in cell["outputs"][-1]["evalue"], cell["id"]
    outputs = [output for cell in cells for output in cell.get("outputs", ())]
    assert any(output["output_type"] == "stream" for output in outputs), "ranks print"
    assert pictures > 0


# ------------------------------------------------------------------------------- the tests tested

SMALL = '''\
# %% id="00-one"
print("one")

# %% exercise="two" role="answer" points=1 required=true difficulty=1
def two() -> int:
    """Two."""
    ### BEGIN SOLUTION
    answer = 1 + int("1")
    return answer
    ### END SOLUTION

# %% exercise="two" role="check"
def check(answer): answer()
check(two)

# %% id="00-end"
print("the end")
'''


def test_a_leak_is_seen(tmp_path: Path):
    lesson = parse_lesson(SMALL, "00_small")
    secret = solution_lines([lesson])
    copy = tmp_path / "copy.ipynb"
    copy.write_text(to_text(learner_copy(lesson)))
    assert told_in(copy, secret) == []
    careless = parse_lesson(
        SMALL.replace('print("the end")', 'answer  =  1 + int("1")'), "00_small"
    )
    copy.write_text(to_text(learner_copy(careless)))
    assert told_in(copy, secret) == ['answer = 1 + int("1")']


@pytest.mark.slow
@pytest.mark.browser
def test_a_copy_that_stops_is_seen(browser, jupyterlab, tmp_path: Path):
    notebook = learner_copy(parse_lesson(SMALL, "00_small"))
    (tmp_path / "goes_on.ipynb").write_text(to_text(notebook))
    for cell in notebook.cells:
        cell.metadata.pop("tags", None)
    (tmp_path / "stops.ipynb").write_text(to_text(notebook))
    address = jupyterlab(tmp_path)

    cells, pictures = run_all(browser, address, "goes_on.ipynb", seconds=60)
    assert not_reached(cells) == []
    assert [cell["id"] for cell in failing(cells)] == ["two-check"]
    assert pictures == 0

    cells, _ = run_all(browser, address, "stops.ipynb", seconds=60)
    assert not_reached(cells) == ["00-end"]
