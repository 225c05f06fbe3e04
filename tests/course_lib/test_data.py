"""The digits are the ones of the source, to the pixel."""

from __future__ import annotations

import hashlib
import importlib
import socket
import sys
from pathlib import Path
from types import ModuleType

import pytest
import torch
from torchvision.datasets import MNIST

from course_lib.data import DIGITS, load_digits

ROOT = Path(__file__).resolve().parents[2]
SHA256 = "abb45136c5ecabab6df1d021442e6176740158a81ad0bd164d50c394a7d38068"


@pytest.fixture
def no_network(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise AssertionError("the network was touched")

    monkeypatch.setattr(socket.socket, "connect", refuse)


@pytest.fixture(scope="module")
def make() -> ModuleType:
    """The script that wrote the files."""
    pytest.importorskip("sklearn")
    sys.path.append(str(ROOT / "tools"))
    return importlib.import_module("make_digits")


def files(folder: Path) -> dict[str, bytes]:
    return {p.name: p.read_bytes() for p in sorted((folder / "MNIST" / "raw").iterdir())}


def test_shapes_types_and_range(no_network: None) -> None:
    for train, count in ((True, 1442), (False, 355)):
        images, labels = load_digits(train).tensors
        assert images.shape == (count, 1, 8, 8)
        assert labels.shape == (count,)
        assert (images.min(), images.max()) == (0, 1)
        assert (images * 16 == (images * 16).round()).all()
        images.zero_()  # each call gives tensors of its own
        assert load_digits(train).tensors[0].max() == 1


def test_the_script_writes_the_committed_files(make: ModuleType, tmp_path: Path) -> None:
    load_digits()  # leaves no file behind
    content = files(DIGITS)
    assert len(content) == 4
    assert hashlib.sha256(b"".join(content.values())).hexdigest() == SHA256
    make.write(tmp_path)
    assert files(tmp_path) == content


def test_torchvision_reads_the_same_from_these_files() -> None:
    for train in (True, False):
        images, labels = load_digits(train).tensors
        mnist = MNIST(str(DIGITS), train=train)
        assert torch.equal(images.squeeze(1) * 16, mnist.data.float())
        assert torch.equal(labels, mnist.targets)
