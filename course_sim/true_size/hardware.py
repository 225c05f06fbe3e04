"""What a GPU can do: the figures that kernels are charged by."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from typing import Any, Self

_GIB = 2**30  # what data sheets of GPUs call a GB of memory


@dataclass(frozen=True)
class GPU:
    """A modelled GPU, for ``simulate(…, backend="nccl", gpu=GPU.h100())``.

    A kernel takes the longer of two times: its FLOPs over the peak of its dtype, and the bytes that
    it reads and writes over the memory's bandwidth. No kernel reaches either, so each is taken
    times an efficiency. The three efficiencies are guesses that were made before the first run and
    fitted to nothing.

    Args:
        flops: dense peak in FLOP/s by dtype, as "bfloat16"; "tf32" is for float32 where
            ``torch.set_float32_matmul_precision`` allows that. From the vendor's data sheet, whose
            figures with sparsity are halved.
        memory: bytes. More may be alive than that: the run says so.
        bandwidth: of that memory, in bytes/s, from the data sheet.
        matmul_efficiency: share of the peak that matrix products reach. Large bfloat16 ones on an
            H100 are commonly measured at 600 to 700 of 989 TFLOP/s.
        attention_efficiency: the same for fused attention, 0.6 of that of matrix products.
        memory_efficiency: share of the bandwidth that all other kernels reach, as a copy does.
        launch: seconds of the host for each kernel; 5 µs is what PyTorch takes for a small
            operator.

    Raises ValueError for a figure that is not above zero, and an efficiency above 1.

    >>> GPU.h100(memory=96 * 2**30, bandwidth=2.4e12)
    """

    flops: Mapping[str, float]
    memory: float
    bandwidth: float
    matmul_efficiency: float = 0.62
    attention_efficiency: float = 0.6 * 0.62
    memory_efficiency: float = 0.85
    launch: float = 5e-6

    def __post_init__(self) -> None:
        given = {each.name: getattr(self, each.name) for each in fields(self)}
        rates = {f"flops[{name!r}]": rate for name, rate in given.pop("flops").items()}
        for name, value in (given | rates).items():
            most = 1 if name.endswith("efficiency") else math.inf
            if not (isinstance(value, (int, float)) and 0 < value <= most and value < math.inf):
                limit = " and at most 1" if most == 1 else ""
                raise ValueError(f"GPU({name}={value!r}): give a number above 0{limit}")

    @classmethod
    def a100(cls, **other: Any) -> Self:
        """NVIDIA A100 SXM, 80 GB: the A100's data sheet. ``other`` figures take their places."""
        flops = _rates(fp64=19.5e12, fp32=19.5e12, tf32=156e12, half=312e12, byte=624e12)
        return replace(cls(flops, 80 * _GIB, 2.039e12), **other)

    @classmethod
    def h100(cls, **other: Any) -> Self:
        """NVIDIA H100 SXM, 80 GB: the H100's data sheet. ``other`` figures take their places."""
        return replace(cls(_HOPPER, 80 * _GIB, 3.35e12), **other)

    @classmethod
    def h200(cls, **other: Any) -> Self:
        """NVIDIA H200 SXM, 141 GB: the H200's data sheet. ``other`` figures take their places."""
        return replace(cls(_HOPPER, 141 * _GIB, 4.8e12), **other)


def _rates(fp64: float, fp32: float, tf32: float, half: float, byte: float) -> dict[str, float]:
    """Peaks in FLOP/s by dtype, from the lines of a data sheet. ``half`` is for both floats of 16
    bits, ``byte`` for int8.
    """
    halves = dict.fromkeys(("bfloat16", "float16"), half)
    return {"float64": fp64, "float32": fp32, "tf32": tf32, **halves, "int8": byte}


_HOPPER = {
    **_rates(fp64=67e12, fp32=67e12, tf32=494.5e12, half=989.5e12, byte=1979e12),
    **dict.fromkeys(("float8_e4m3fn", "float8_e5m2"), 1979e12),
}
