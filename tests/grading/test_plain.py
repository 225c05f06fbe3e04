"""Values and tensors as plain data: there and back, and nothing believed on the way."""

from __future__ import annotations

import copy
import json
import math
import random
from fractions import Fraction
from typing import Any

import numpy
import pytest
import torch
from torch import nn

from course_lib.checks import lesson_05_gradient_averaging as lesson_05
from course_lib.checks import lesson_06_ddp as lesson_06
from course_lib.checks.cases import Case
from course_lib.checks.compare import same
from course_lib.grading.frames import Malformed
from course_lib.grading.parcels import Parcel
from course_lib.grading.plain import DTYPES, Opaque, decode, encode


def there_and_back(value: Any, template: Any = None) -> Any:
    return decode(json.loads(json.dumps(encode(value))), template)


@pytest.mark.parametrize(
    "value",
    [None, True, 0, -(10**30), 1.5, math.inf, 5e-324, "a\ud800é", range(3, 9, 2), [], [1, [2.0]],
     (1, "x"), {"a": [1], 2: None}, torch.arange(6).reshape(2, 3).t(), torch.tensor(3.5),
     torch.empty(0, 4), torch.tensor([math.nan, -0.0]), Fraction(1, 3), numpy.float32(0.1),
     numpy.int64(-3)],
)  # fmt: skip
def test_a_value_comes_back_as_it_was(value: Any) -> None:
    back = there_and_back(value)
    assert type(back) is type(value)
    assert same(back, value)


@pytest.mark.parametrize("name", sorted(DTYPES))
def test_every_dtype_comes_back(name: str) -> None:
    value = torch.tensor([0, 1, 1]).to(DTYPES[name])
    assert same(there_and_back(value), value)


def test_a_strided_tensor_brings_the_memory_around_it() -> None:
    base = torch.arange(9.0)
    back = there_and_back(base[1::2])
    assert back.stride() == (2,)
    assert back.untyped_storage().nbytes() == base.untyped_storage().nbytes()


def test_a_module_comes_back_in_the_judges_own() -> None:
    model = nn.Sequential(nn.Linear(2, 3), nn.BatchNorm1d(3))
    model[0].weight.grad = torch.ones(3, 2)
    mine = nn.Sequential(nn.Linear(2, 3), nn.BatchNorm1d(3))
    back = there_and_back(model, mine)
    assert same(back, model)
    assert back is not mine
    assert back.training
    assert not there_and_back(model.eval(), mine).training
    other = there_and_back(model, nn.Linear(2, 3))
    assert [name for name, _ in other.named_parameters()] == list(model.state_dict())
    assert not same(other, nn.Linear(2, 3))
    assert isinstance(there_and_back(model), Opaque)


def test_a_gradient_of_another_dtype_is_told_apart() -> None:
    model, mine = nn.Linear(2, 1), nn.Linear(2, 1)
    model.weight.grad = torch.ones(1, 2)
    model.weight.grad.data = model.weight.grad.data.double()
    assert there_and_back(model, mine).weight.grad.dtype == torch.float64


def test_an_optimizer_comes_back_with_its_momenta() -> None:
    def stepped(by: float) -> torch.optim.Optimizer:
        weight = nn.Parameter(torch.ones(2))
        weight.grad = torch.full((2,), by)
        optimizer = torch.optim.SGD([weight], lr=0.5, momentum=0.5)
        optimizer.step()
        return optimizer

    theirs, mine = stepped(3.0), stepped(1.0)
    (state,) = there_and_back(theirs, mine).state.values()
    assert same(state, {"momentum_buffer": torch.full((2,), 3.0)})
    assert [s["momentum_buffer"].tolist() for s in mine.state.values()] == [[1.0, 1.0]]
    assert isinstance(there_and_back(theirs), Opaque)


def test_what_a_model_notes_of_itself_is_what_it_was_there() -> None:
    """Writing values into the judge's own model must not count as having replaced its tensors."""
    case = Case(2, options={"model": "two layers"})
    mine = lesson_05.model_of(case, 0)
    for p in mine.parameters():
        p.grad = torch.ones_like(p)
    mine.hold()
    theirs = copy.deepcopy(mine)
    assert copy.deepcopy(there_and_back(copy.deepcopy(theirs), mine)).replaced == ()
    theirs.first.weight.grad = torch.zeros(2, 2)
    back = copy.deepcopy(there_and_back(copy.deepcopy(theirs), mine))
    assert back.replaced == ("first.weight.grad",)
    theirs.first.bias.requires_grad_(False)
    assert there_and_back(theirs, mine).first.bias.requires_grad is False


def test_what_cases_record_comes_back_and_nothing_else_of_their_classes() -> None:
    shown = lesson_06.Shown([2, 0], torch.ones(2, 10), 40, torch.ones(3), False, True, stale=True)
    data = lesson_06.digits(Case(1, 3, options={"seed": 0}))
    data.seen.append(shown)
    back = there_and_back(data, lesson_06.digits(Case(1, 3, options={"seed": 0})))
    assert type(back) is lesson_06.Digits
    assert same(vars(back.seen[0]), vars(shown))
    weights = lesson_06.Weights({"w": torch.ones(2)}, (True,), {"w": None}, True)
    back = vars(there_and_back(weights))
    assert same([back[name] for name in vars(weights)], list(vars(weights).values()))
    assert isinstance(there_and_back(lesson_06.Account(torch.ones(1))), Opaque)


def test_a_range_that_nobody_can_look_through_is_no_range() -> None:
    assert isinstance(there_and_back(range(10**30)), Opaque)
    assert isinstance(there_and_back(range(0, -(10**9), -1)), Opaque)


class Yes(int):
    def __eq__(self, other: object) -> bool:
        return True

    __hash__ = None  # type: ignore[assignment]


def test_classes_do_not_travel() -> None:
    assert type(there_and_back(Yes(3))) is int
    assert isinstance(there_and_back(Yes), Opaque)
    assert isinstance(there_and_back(object()), Opaque)
    assert not same(there_and_back(object()), 3)


@pytest.mark.parametrize(
    "data",
    [3, 1.5, [], {}, {"int": 3}, {"int": "x"}, {"int": "9" * 500}, {"float": "y"}, {"list": 3},
     {"fraction": ["1", "0"]}, {"numpy": ["ndarray", {"int": "1"}]}, {"numpy": ["float32", {}]},
     {"what": 1}, {"list": [], "tuple": []}, {"range": ["1", "2", "0"]}, {"dict": [[1]]},
     {"record": ["judge.Judge", []]}, {"record": ["Account", [["labels", None]]]},
     {"record": ["Digits", [["seen", 3]]]}, {"record": 3},
     {"record": ["Digits", [["__class__", {"list": []}]]]},
     {"dtype": "object", "shape": [], "stride": [], "offset": 0, "bytes": ""},
     {"dtype": "float32", "shape": [10], "stride": [1], "offset": 0, "bytes": "AAAA"},
     {"dtype": "float32", "shape": [2**50], "stride": [0], "offset": 0, "bytes": "AAAAAA=="},
     {"dtype": "float32", "shape": [-1], "stride": [1], "offset": 0, "bytes": ""},
     {"dtype": "float32", "shape": [1], "stride": [1], "offset": 2**45, "bytes": "AAAAAA=="},
     {"dtype": "float32", "shape": [1], "stride": [1, 1], "offset": 0, "bytes": "AAAAAA=="}],
)  # fmt: skip
def test_what_is_no_value_is_malformed(data: Any) -> None:
    with pytest.raises(Malformed):
        decode(data)


def test_a_nest_without_end_is_malformed() -> None:
    nest: Any = None
    for _ in range(200):
        nest = {"list": [nest]}
    with pytest.raises(Malformed):
        decode(nest)


def test_tensors_of_one_storage_share_it_at_the_other_end() -> None:
    base = torch.arange(8.0)
    mine, data = Parcel.of([base[:4], base[2:6], torch.ones(2)])
    theirs = Parcel.opened(json.loads(json.dumps(data)))
    theirs.tensors[0][3] = 99.0
    assert theirs.tensors[1][1] == 99.0
    mine.update(theirs.changed())
    assert base.tolist() == [0, 1, 2, 99, 4, 5, 6, 7]
    assert theirs.changed() == {}
    base[7] = -1.0  # outside of what was named
    assert mine.changed() == {}


def test_bytes_that_claim_to_be_more_are_no_call() -> None:
    _, data = Parcel.of([torch.ones(1).expand(1 << 33)])
    with pytest.raises(Malformed):
        Parcel.opened(data)


def test_strides_and_emptiness_are_kept() -> None:
    tensors = [torch.arange(6)[::2], torch.empty(0, 3), torch.ones(2, 3).t(), torch.tensor(1.0)]
    opened = Parcel.opened(Parcel.of(tensors)[1])
    for mine, theirs in zip(tensors, opened.tensors, strict=True):
        assert same(theirs, mine)
        assert theirs.is_contiguous() == mine.is_contiguous()


@pytest.mark.parametrize("seed", range(40))
def test_a_parcel_with_a_part_exchanged_is_malformed_or_harmless(seed: int) -> None:
    rng = random.Random(seed)
    _, data = Parcel.of([torch.arange(6.0), torch.ones(2, 2)])
    row = data["tensors"][rng.randrange(2)]
    row[rng.randrange(5)] = rng.choice([-1, 99, "x", None, [], [2**60], [1, 2, 3], 1.5, {}, "int8"])
    try:
        opened = Parcel.opened(data)
    except Malformed:
        return
    assert sum(t.sum().item() for t in opened.tensors) is not None
