"""python -m course_lib.rehearse: scripts as files and modules, and what is wrong with them."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from course_lib import user_code
from course_tools.rehearse.rehearse_command import main

ROOT = Path(__file__).parents[2]
SCRIPT = """
    import os, pickle, sys
    import torch, torch.distributed as dist
    import neighbour

    class Point:
        pass

    if __name__ == "__main__":
        dist.init_process_group("nccl")
        torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
        assert type(pickle.loads(pickle.dumps(Point()))) is Point
        x = torch.ones(1, device="cuda")
        dist.all_reduce(x)
        print(sys.argv[1:], os.path.basename(__file__), neighbour.word, x)
        dist.destroy_process_group()
"""


def write(folder: Path, source: str, name: str = "train.py") -> str:
    lines = source.strip("\n").split("\n")
    margin = len(lines[0]) - len(lines[0].lstrip())
    (folder / name).write_text("\n".join(line[margin:] for line in lines) + "\n")
    return str(folder / name)


@pytest.fixture(autouse=True)
def as_it_was(monkeypatch: pytest.MonkeyPatch):
    """The command makes the process look as a script's, and shows longer paths from then on."""
    monkeypatch.setattr(sys, "argv", list(sys.argv))
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.setattr(user_code, "path_parts", user_code.path_parts)
    yield
    user_code.claim_place("\0")


@pytest.mark.slow
def test_a_script_runs_as_it_is(tmp_path: Path):
    """In a process of its own, as people start it; a second machine has GPUs 0 and 1 again."""
    (tmp_path / "neighbour.py").write_text("word = 'hello'\n")
    path, trace = write(tmp_path, SCRIPT), tmp_path / "trace.json"
    where = ["--nodes", "2", "--gpus", "2", "--trace", str(trace)]
    done = subprocess.run(
        [sys.executable, "-m", "course_lib.rehearse", *where, path, "--lr", "0.5"],
        capture_output=True,
        text=True,
        cwd=tmp_path,
        env=os.environ | {"PYTHONPATH": str(ROOT)},
    )
    gpus = [0, 1, 0, 1]
    said = "['--lr', '0.5'] train.py hello tensor([4.], device='cuda:{}')"
    assert done.stdout.splitlines() == [f"[{r}] {said.format(g)}" for r, g in enumerate(gpus)]
    assert done.stderr.strip().endswith("4 ranks made 4 calls, and nothing went wrong.")
    assert done.returncode == 0
    assert json.loads(trace.read_text())["traceEvents"]


def test_a_module_runs_as_it_is(tmp_path: Path, monkeypatch, capsys):
    (tmp_path / "neighbour.py").write_text("word = 'hello'\n")
    write(tmp_path, SCRIPT)
    monkeypatch.chdir(tmp_path)
    assert main(["--ranks", "2", "-m", "train", "x"]) == 0
    assert "[1] ['x'] train.py hello tensor([2.], device='cuda:1')" in capsys.readouterr().out


def test_what_goes_wrong_is_told_with_the_scripts_line(tmp_path: Path, capsys):
    path = write(
        tmp_path,
        """
        import os, torch, torch.distributed as dist
        dist.init_process_group("nccl")
        torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
        if dist.get_rank() == 0:
            dist.all_reduce(torch.ones(1).cuda())
        """,
    )
    assert main(["--ranks", "2", "--json", path]) == 1
    said = json.loads(capsys.readouterr().err)
    assert (said["kind"], said["ranks"]) == ("Deadlock", [0])
    assert said["lines"] == ["train.py, line 5:  dist.all_reduce(torch.ones(1).cuda())"]


def test_ranks_that_call_nothing_are_told(tmp_path: Path, capsys):
    assert main(["--ranks", "2", write(tmp_path, "print('alone')")]) == 0
    assert "Does the script call init_process_group?" in capsys.readouterr().err


SIZED = """
    import os, torch, torch.distributed as dist
    from torch import nn
    dist.init_process_group("nccl")
    torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
    model = nn.parallel.DistributedDataParallel(nn.Linear(8192, 8192, bias=False).cuda())
    optimizer = torch.optim.Adam(model.parameters())
    for step in range(100):
        loss = model(torch.ones(1024, 8192, device="cuda")).mean()
        loss.backward()
        optimizer.step()
        print(step, loss.item())
"""


def test_a_step_at_its_true_size_is_told(tmp_path: Path, capsys):
    words = ["--ranks", "2", "--gpu", "h100", "--steps", "2", "--tokens", "1024"]
    assert main([*words, write(tmp_path, SIZED)]) == 0
    out, err = capsys.readouterr()
    assert "[1] 0 1.0\n" in out
    assert "[1] 1 " not in out  # the second step is the last
    found = re.search(r"Step 2 takes ([\d.]+) ms, ([\d,]+) tokens/s and GPU", err)
    assert found
    assert float(found[2].replace(",", "")) == pytest.approx(1024e3 / float(found[1]), rel=0.001)
    assert re.search(r"matrix products +2 ", err)
    assert re.search(r"all_reduce\(SUM\)   train.py, line 9:  loss.backward\(\)", err)
    assert re.search(r"parameters +0.25 GiB.*\ngradients +0.25 GiB.*\nstates +0.50 GiB", err)


BAD = [
    (["no.py"], "cannot read no.py: No such file or directory"),
    (["-m", "nomodule"], "there is no module nomodule"),
    (["wrong.py"], "wrong.py, line 1: "),
    ([], "name the script to play"),
    (["--ranks", "0", "right.py"], "at least one machine"),
    (["--ranks", "2", "--nodes", "2", "right.py"], "but not both"),
    (["--network", "carrier_pigeon", "right.py"], "choose one of ethernet_100g, ethernet_10g, "),
]


@pytest.mark.parametrize(("words", "said"), BAD, ids=[row[1] for row in BAD])
def test_bad_input_is_one_line_at_once(tmp_path: Path, monkeypatch, capsys, words, said):
    monkeypatch.chdir(tmp_path)
    write(tmp_path, "def", "wrong.py")
    write(tmp_path, "pass", "right.py")
    assert main(words) == 2
    assert said in capsys.readouterr().err.splitlines()[0]


def test_the_page_shows_what_is_said(tmp_path: Path, monkeypatch, capsys):
    page = (ROOT / "docs" / "rehearse.md").read_text()
    source, said = (re.search(rf"```{kind}\n(.*?)```", page, re.S) for kind in ("python", "text"))
    assert source and said
    (tmp_path / "ring.py").write_text(source[1])
    monkeypatch.chdir(tmp_path)
    assert main(["--ranks", "2", "ring.py"]) == 1
    assert capsys.readouterr().err.strip() == said[1].partition("\n")[2].strip()
