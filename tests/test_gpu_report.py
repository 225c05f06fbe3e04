"""The report of a GPU machine, as far as a machine without one can tell."""

from __future__ import annotations

import importlib
import json
import sys
from pathlib import Path

import pytest
import torch

ROOT = Path(__file__).resolve().parents[1]
sys.path.append(str(ROOT / "tools"))  # ranks find it there, too
report = importlib.import_module("gpu_report")


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU here")
def test_without_a_gpu_it_says_so_in_one_line(tmp_path: Path, monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", ["gpu_report", f"--out={tmp_path / 'gpu'}"])
    assert report.main() == report.NO_GPU
    (line,) = capsys.readouterr().out.splitlines()
    assert "nothing was measured" in line
    assert not (tmp_path / "gpu").exists()


@pytest.mark.slow
def test_a_rehearsal_runs_and_claims_nothing(tmp_path: Path, monkeypatch):
    """All of its parts: tests/soak."""
    monkeypatch.setattr(report, "PARTS", (report.exercises, report.overlap, report.true_size))
    outcomes = rehearsed(tmp_path, monkeypatch)
    assert outcomes["06.1 train_ddp"] == "passed"
    assert outcomes["overlap under DDP"] == "not tried"
    assert outcomes["a step of a transformer"] == "passed"


def rehearsed(tmp_path: Path, monkeypatch) -> dict[str, str]:
    monkeypatch.setattr(report, "LESSONS", ("06",))
    monkeypatch.setattr(sys, "argv", ["gpu_report", "--rehearse", f"--out={tmp_path}"])
    assert report.main() == 0
    text = (tmp_path / "report.md").read_text()
    assert text.startswith("# Rehearsal on CPUs, 0 GPUs")
    record = json.loads((tmp_path / "report.json").read_text())
    assert record["machine"]["gpus"] == 0
    return {item["name"]: item["outcome"] for item in record["items"]}


def test_a_part_that_breaks_is_an_item_and_the_next_one_is_tried(monkeypatch):
    def broken(machine):
        raise RuntimeError("no such device\nand more")

    def fine(machine):
        yield report.Item("fine", "passed")

    monkeypatch.setattr(report, "PARTS", (broken, fine))
    items = report.collect(report.Machine(0))
    assert [(i.outcome, i.what) for i in items] == [
        ("failed", "RuntimeError: no such device"),
        ("passed", ""),
    ]
    text = report.text_of(report.Machine(2, ("A", "A"), (2, 29, 0)), items)
    assert text.startswith("# 2 GPUs: A\n")
    assert "## failed: 1" in text


def test_how_many_ranks_are_tried_and_what_counts_as_overlap():
    most = {(1, (2, 29, 7)): 1, (1, (2, 30, 0)): 2, (8, (2, 30, 0)): 8}
    assert {key: report.Machine(key[0], nccl=key[1]).most for key in most} == most
    assert report.common([(0, 10)], [(2, 4), (3, 6), (8, 20)]) == 6  # within the union
    assert report.common([(0, 1)], []) == 0


def test_a_gpu_of_unknown_figures_is_not_played():
    [item] = report.true_size(report.Machine(1, ("Tesla T4",)))
    assert item.outcome == "not tried" and "Tesla T4" in item.what
