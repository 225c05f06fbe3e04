"""Each kind by itself, cuts by their shapes, and input that is none."""

from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from course_lib import CourseError, compare_gradients, simulate

W = torch.arange(1.0, 25.0).reshape(6, 4)
NAN = torch.full((6, 4), math.nan)


def kinds(whole, *parts, **options):
    """The kinds of one tensor that the ranks hold so."""
    return [f.kind for f in compare_gradients({"w": whole}, [{"w": p} for p in parts], **options)]


@pytest.mark.parametrize(
    ("parts", "kind"),
    [
        ([W, W], "equal"),
        ([W[:1], W[1:]], "equal"),
        ([W[:0], W], "equal"),
        ([W[:3], W[3:], W[:3], W[3:]], "equal"),
        ([W[[0, 3]], W[[1, 4]], W[[2, 5]]], "equal"),
        ([W[:3, :2], W[:3, 2:], W[3:, :2], W[3:, 2:]], "equal"),
        ([W.flatten()[:7], W.flatten()[7:]], "equal"),
        ([*torch.cat([W.flatten(), torch.zeros(1)]).split(5)], "equal"),
        ([W.flatten(), None], "equal"),
        ([W.bfloat16(), W.half()], "equal"),
        ([W, None], "none"),
        ([0 * W, 0 * W], "none"),
        ([W.t(), W.t()], "shape"),
        ([2 * W, 2 * W], "factor"),
        ([W + W.sin(), -W.sin()], "sum-missing"),
        ([W + W.sin(), W - W.sin()], "mean-missing"),
        ([W / 4 + W.sin(), W / 4 - W.sin()], "sum-missing"),
        ([W[3:], W[:3]], "other-part"),
        ([W[:3], 2 * W[3:]], "some-ranks"),
        ([torch.cat([W[:4], 2 * W[4:]])] * 2, "some-rows"),
        ([W.sin(), W.sin()], "differs"),
        ([NAN, W], "differs"),
    ],
)
def test_each_kind(parts, kind):
    assert kinds(W, *parts) == [kind]


def test_fractions_are_told_and_whether_they_are_n():
    def text(times: float, n: int) -> str:
        return compare_gradients({"w": W}, [{"w": times * W}] * n)[0].text

    assert text(3, 3) == "3 times what it should be (3 is n), on every rank"
    assert text(1 / 9, 3) == "1/9 times what it should be (1/9 is 1/n²), on every rank"
    assert text(2, 3) == "2 times what it should be, on every rank"
    assert text(0.6180339, 3) == "0.618 times what it should be, on every rank"


def test_scalars_complex_numbers_and_empty_tensors():
    assert kinds(torch.tensor(3.0), torch.tensor(1.0), torch.tensor(2.0)) == ["sum-missing"]
    assert kinds(torch.tensor(3.0), torch.tensor(6.0), torch.tensor(6.0)) == ["factor"]
    assert kinds(torch.tensor(3.0), torch.tensor(3.7), torch.tensor(3.7)) == ["differs"]
    turned = torch.complex(W, W.sin())
    assert kinds(turned, turned[:3], turned[3:]) == ["equal"]
    assert kinds(turned, 2 * turned, 2 * turned) == ["factor"]
    assert kinds(turned, turned.conj(), turned.conj()) == ["differs"]
    assert kinds(W[:0], W[:0], W[:0]) == ["equal"]


def test_no_gradient_is_right_where_it_would_be_zero():
    assert kinds(0 * W, None, None) == ["equal"]
    assert kinds(None, None, 0 * W) == ["equal"]
    assert kinds(None, None, W) == ["none"]
    assert kinds(0 * W, W, W) == ["differs"]
    assert kinds(0 * W, 0 * W, None) == ["equal"]


def test_what_a_coarser_dtype_cannot_say_is_no_fault():
    assert kinds(W, W * 1.01, W * 1.01) == ["factor"]
    assert kinds(W, W * 1.01, W * 1.01, dtype=torch.bfloat16) == ["equal"]


def test_rounding_that_is_left_where_terms_cancel_is_no_fault():
    whole = {"w": W, "key.bias": torch.tensor([1e-7, -2e-7])}
    got = {"w": W, "key.bias": torch.tensor([3e-7, 1e-7])}
    found = compare_gradients(whole, [got, got])
    assert repr(found) == "All equal (2 of 2), each within 0.01% (float32) of its largest entry."


def test_all_equal_says_within_what_for_each_dtype():
    mixed = {"a": W, "b": W.bfloat16(), "c": W.double(), "d": None}
    assert repr(compare_gradients(mixed, [mixed])) == (
        "All equal (4 of 4), each within 0.01% (float32) or 3% (bfloat16) or 5e-07% (float64) of "
        "its largest entry."
    )


def test_names_that_some_ranks_have_and_names_that_only_ranks_have():
    found = compare_gradients({"a": W, "b": W, "c": W}, [{"a": W}, {"b": 2 * W, "d": W}])
    assert [f.name for f in found] == [*"abcd"]
    assert [f.kind for f in found] == ["equal", "factor", "none", "none"]
    assert found[3].text == "there is one on rank 1, and no tensor of this name in one process"
    assert repr(found).startswith("Not equal (3 of 4):\n  b   factor   2 times")


def test_a_run_tells_which_calls_had_a_tensor_of_the_shape():
    def job():
        import torch.distributed as dist

        both = {"a": torch.ones(2), "b": torch.arange(3.0)}
        dist.all_reduce(both["a"])
        return both

    job_run = simulate(job, world_size=2)
    a, b = compare_gradients({"a": torch.ones(2), "b": 2 * torch.arange(3.0)}, job_run)
    assert a.text.split(". ")[1].startswith("Collectives with a tensor of its shape: all_reduce, ")
    assert b.text.endswith("No recorded collective had a tensor of its shape")


@pytest.mark.parametrize(
    ("whole", "parts", "says"),
    [
        ([W], [{"w": W}], "whole gradients are a list: give a dict"),
        ({"w": W}, [W], "rank 0's gradients are a Tensor: give a dict"),
        ({"w": W}, [{"w": W.long()}], "rank 0's 'w' is no tensor of floating-point numbers"),
        ({"w": W}, [], "parts is empty"),
        ({"w": W}, [{"module.w": W}], "('w', 'module.w'): name them alike"),
    ],
)
def test_what_are_no_gradients_is_refused_in_a_line(whole, parts, says):
    with pytest.raises(CourseError) as caught:
        compare_gradients(whole, parts)
    assert says in str(caught.value)


@settings(max_examples=40, deadline=None)
@given(
    sizes=st.lists(st.integers(0, 4), min_size=1, max_size=6).filter(sum),
    dim=st.integers(0, 1),
    seed=st.integers(0, 99),
    times=st.sampled_from([1, 2, 3, 0.5, -1]),
    dtype=st.sampled_from([torch.float64, torch.float32, torch.bfloat16]),
)
def test_blocks_of_any_sizes_are_found_and_their_factor_is(sizes, dim, seed, times, dtype):
    shape = (sum(sizes), 3) if dim == 0 else (3, sum(sizes))
    whole = torch.randn(shape, generator=torch.Generator().manual_seed(seed)).to(dtype)
    blocks = [block * times for block in whole.split(sizes, dim)]
    assert kinds(whole, *blocks) == ["equal" if times == 1 else "factor"]


@settings(max_examples=25, deadline=None)
@given(n=st.integers(2, 8), seed=st.integers(0, 99))
def test_shares_of_any_number_of_ranks_are_found(n, seed):
    shares = list(torch.randn(n, 5, 3, generator=torch.Generator().manual_seed(seed)))
    total = sum(shares)
    assert kinds(total, *shares) == ["sum-missing"]
    assert kinds(total / n, *shares) == ["mean-missing"]
    assert kinds(total, *[total] * n) == ["equal"]
