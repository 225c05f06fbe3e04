"""What travels to a rank and back arrives as it was: strides, foreign elements, dtypes, models."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

from course_lib.checks.cases import Case, tensor
from course_lib.checks.compare import show_apart
from course_lib.checks.kept import Kept


def memory(t: Tensor) -> list[int]:
    """Every byte of the memory that a tensor looks into, also those between its elements."""
    return torch.empty(0, dtype=torch.uint8).set_(t.untyped_storage()).tolist()


def assert_alike(got: Tensor, want: Tensor) -> None:
    assert type(got) is type(want)
    assert (got.dtype, got.shape, got.stride()) == (want.dtype, want.shape, want.stride())
    assert got.storage_offset() == want.storage_offset()
    assert got.requires_grad == want.requires_grad
    assert memory(got) == memory(want)
    assert not want.numel() or got.data_ptr() != want.data_ptr()


@pytest.mark.parametrize("dtype", ["float32", "float64", "bfloat16", "uint8", "int64", "bool",
                                   "complex64"])  # fmt: skip
@pytest.mark.parametrize("layout", ["contiguous", "strided", "transposed", "matrix", "scalar",
                                    "mixed"])  # fmt: skip
def test_a_tensor_of_every_kind(layout: str, dtype: str) -> None:
    for length in (1,) if layout == "scalar" else (0, 1, 6):
        want = tensor(Case(3, length, dtype, layout, numbers="random"), 1)
        assert_alike(Kept(want).value, want)


def test_gradients_are_there_and_are_asked_for_as_before() -> None:
    want = torch.ones(3, requires_grad=True)
    assert_alike(Kept(want).value, want)
    model = nn.Linear(2, 3)
    model.bias.requires_grad_(False)
    model.weight.grad = torch.ones(2, 3).t()
    got = Kept(model).value
    for name, p in model.named_parameters():
        assert_alike(got.get_parameter(name), p)
    assert_alike(got.weight.grad, model.weight.grad)
    assert got.bias.grad is None


def test_a_tensor_that_is_more_than_its_memory() -> None:
    complex_ones = torch.tensor([1 + 2j, 3 - 1j])
    assert torch.equal(Kept(complex_ones.conj()).value, complex_ones.conj())
    sparse = torch.eye(3).to_sparse()
    assert torch.equal(Kept(sparse).value.to_dense(), torch.eye(3))


def test_equal_where_the_values_are_bit_by_bit() -> None:
    word = "".join(["a", "word"])
    assert Kept([word, word]) == Kept(["".join(["a", "word"]), word])  # other bytes, equal values
    assert Kept(torch.tensor([float("nan")])) == Kept(torch.tensor([float("nan")]))
    assert Kept(torch.tensor([1.0])) != Kept(torch.tensor([2.0]))
    assert Kept(torch.tensor([1.0])) != Kept(torch.tensor([1]))


def test_what_differs_in_kind_alone_does_not_look_alike() -> None:
    for got, want in ((2.0, 2), ([1.0], [1]), (1.0, 1.0000001)):
        one, other = show_apart(got, want)
        assert one != other
