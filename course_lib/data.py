"""Real handwritten digits: a small set that comes with the course, and MNIST where asked for."""

from __future__ import annotations

import socket
from pathlib import Path

import numpy
import torch
from torch.utils.data import TensorDataset

from course_lib.errors import CourseError

DIGITS = Path(__file__).parent / "digits"
_PATIENCE = 15.0  # seconds for a server to answer


def load_digits(train: bool = True) -> TensorDataset:
    """1,442 (``train``) or 355 real images of handwritten digits, 8 × 8 pixels; no network needed.

    >>> images, labels = load_digits().tensors
    >>> images.shape, labels.shape
    (torch.Size([1442, 1, 8, 8]), torch.Size([1442]))

    ``images`` is float32 of shape (N, 1, 8, 8), 0 for paper to 1 for ink, in steps of 1/16;
    ``labels`` is int64 of shape (N,), from 0 to 9. Of each digit every fifth image is in the test
    set, the others are in the training set, both in the order of the source.

    Source: E. Alpaydin and C. Kaynak, "Optical Recognition of Handwritten Digits", UCI Machine
    Learning Repository, 1998, https://doi.org/10.24432/C50P49, licence CC BY 4.0; its test set,
    written as MNIST-format files by ``tools/make_digits.py`` of the course's repository.
    """
    part = "train" if train else "t10k"  # as in MNIST; torchvision would take seconds to import
    images, labels = (_read(DIGITS / "MNIST" / "raw" / f"{part}-{name}-ubyte")
                      for name in ("images-idx3", "labels-idx1"))  # fmt: skip
    return _dataset(images, labels, darkest=16)


def load_mnist(train: bool = True, root: str | Path = "~/.cache/course_lib") -> TensorDataset:
    """The 60,000 (``train``) or 10,000 images of MNIST, 28 × 28 pixels; downloads them once.

    The same kind of dataset as from ``load_digits``: float32 images of shape (N, 1, 28, 28) from
    0 to 1, int64 labels. ``root`` is the folder that keeps the 63 MB of files.

    Raises CourseError, at once or after 15 s, where they cannot be had.
    """
    from torchvision.datasets import MNIST

    folder, before = Path(root).expanduser(), socket.getdefaulttimeout()
    socket.setdefaulttimeout(_PATIENCE)  # torchvision waits for a silent server without end
    try:
        mnist = MNIST(str(folder), train=train, download=True)
        return _dataset(mnist.data, mnist.targets, darkest=255)
    except (RuntimeError, OSError, ValueError) as error:
        reason = str(error).strip().splitlines()[-1]
        raise CourseError(
            f"MNIST can be neither read from {folder} nor downloaded ({reason}): "
            "use load_digits(), which needs no network."
        ) from error
    finally:
        socket.setdefaulttimeout(before)


def _read(path: Path) -> torch.Tensor:
    """An IDX file of bytes: two zeros, the type, how many dimensions, their sizes, the data."""
    data = numpy.fromfile(path, numpy.uint8)
    start = 4 + 4 * data[3]
    return torch.from_numpy(data[start:].reshape(data[4:start].view(">i4")))


def _dataset(images: torch.Tensor, labels: torch.Tensor, darkest: int) -> TensorDataset:
    return TensorDataset(images.float().div(darkest).unsqueeze(1), labels.long())
