"""Real handwritten digits, which come with the course."""

from __future__ import annotations

from pathlib import Path

import numpy
import torch
from torch.utils.data import TensorDataset

DIGITS = Path(__file__).parent / "digits"


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
    images, labels = (
        _read(DIGITS / "MNIST" / "raw" / f"{part}-{name}-ubyte")
        for name in ("images-idx3", "labels-idx1")
    )
    return TensorDataset(images.float().div(16).unsqueeze(1), labels.long())


def _read(path: Path) -> torch.Tensor:
    """An IDX file of bytes: two zeros, the type, how many dimensions, their sizes, the data."""
    data = numpy.fromfile(path, numpy.uint8)
    start = 4 + 4 * data[3]
    return torch.from_numpy(data[start:].reshape(data[4:start].view(">i4")))
