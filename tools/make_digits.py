"""Write the digits as MNIST-format (IDX) files: ``python tools/make_digits.py [FOLDER]``.

Needs scikit-learn, whose package holds a copy of the test set of "Optical Recognition of
Handwritten Digits" (E. Alpaydin and C. Kaynak, 1998, https://doi.org/10.24432/C50P49, CC BY 4.0).
The values stay as they are, 0 to 16. The files are not compressed: torchvision reads only
unpacked ones, and an installed package may lie in a folder where nothing can be unpacked.
"""

from __future__ import annotations

import struct
import sys
from pathlib import Path

import numpy
from sklearn.datasets import load_digits

FIFTH = 5  # of each digit, images 4, 9, 14, … are for testing


def is_test(labels: numpy.ndarray) -> numpy.ndarray:
    """Which images are for testing: every fifth of each digit, so that both sets are alike."""
    chosen = numpy.zeros(len(labels), dtype=bool)
    for digit in range(10):
        chosen[numpy.flatnonzero(labels == digit)[FIFTH - 1 :: FIFTH]] = True
    return chosen


def idx(array: numpy.ndarray) -> bytes:
    """An array of bytes in IDX: 0, 0, 8 for unsigned bytes, dimensions, sizes, then the values."""
    sizes = struct.pack(f">{array.ndim}I", *array.shape)
    return bytes([0, 0, 8, array.ndim]) + sizes + array.astype(numpy.uint8).tobytes()


def write(folder: Path) -> None:
    """Write the four files of MNIST, named and laid out as torchvision expects them."""
    raw = folder / "MNIST" / "raw"
    raw.mkdir(parents=True, exist_ok=True)
    digits = load_digits()
    test = is_test(digits.target)
    for name, part in (("train", ~test), ("t10k", test)):
        (raw / f"{name}-images-idx3-ubyte").write_bytes(idx(digits.images[part]))
        (raw / f"{name}-labels-idx1-ubyte").write_bytes(idx(digits.target[part]))


if __name__ == "__main__":
    digits = Path(__file__).resolve().parents[1] / "course_lib" / "digits"
    write(Path(sys.argv[1]) if len(sys.argv) > 1 else digits)
