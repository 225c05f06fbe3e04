"""What a rank hands over, and what is said of pieces whose places are known."""

from __future__ import annotations

import pytest
import torch
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import Replicate, Shard, distribute_tensor
from torch.distributed.tensor.placement_types import _StridedShard

from course_lib import CourseError, compare_gradients, gradients, simulate
from course_tools.gradient_comparison import Piece

W = torch.arange(1.0, 97.0).reshape(24, 4)
HELD = [
    [*range(4 * r, 4 * r + 4), 12 + 2 * r, 13 + 2 * r, 18 + 2 * r, 19 + 2 * r] for r in range(3)
]


def leaf(grad):
    p = torch.zeros_like(grad).requires_grad_()
    p.grad = grad
    return p


def placed(t, indices, dim=0):
    return gradients({"w": leaf(t)}, places={"w": {dim: indices}})


def told(whole, parts):
    (finding,) = compare_gradients({"w": whole}, parts)
    return finding.kind, finding.text


def placements(rows, lengths, how):
    mesh = init_device_mesh("cpu", lengths, mesh_dim_names=("a", "b")[: len(lengths)])
    whole = torch.arange(1.0, 1 + rows * 5).reshape(rows, 5)
    p = nn.Parameter(distribute_tensor(torch.zeros(rows, 5), mesh, how))
    p.grad = distribute_tensor(whole, mesh, [Replicate()] * len(lengths)).redistribute(mesh, how)
    return gradients({"w": p})["w"]


@pytest.mark.parametrize(
    ("how", "rows"),
    [
        ((Shard(0), Shard(0)), 1),
        ((Shard(0), Shard(1)), 7),
        ((Replicate(), Shard(0)), 7),
        ((_StridedShard(0, split_factor=2), Shard(0)), 8),
        ((Shard(0), _StridedShard(0, split_factor=2)), 8),
    ],
    ids=str,
)
def test_a_place_is_where_dtensor_put_the_piece(how, rows):
    whole = torch.arange(1.0, 1 + rows * 5).reshape(rows, 5)
    pieces = simulate(placements, rows, (2, 2), how, world_size=4).results
    for piece in pieces:
        mine = whole
        for dim, runs in enumerate(piece.place):
            mine = mine.index_select(
                dim, torch.tensor([i for a, b in runs for i in range(a, b)], dtype=int)
            )
        assert piece.tensor.equal(mine)
    assert [dict(p.mesh) for p in pieces] == [{"a": r // 2, "b": r % 2} for r in range(4)]
    assert told(whole, [{"w": piece} for piece in pieces])[0] == "equal"


def test_a_piece_is_small_and_plain_and_read_again_by_torch_load(tmp_path):
    big = 1 + torch.arange(1e6).sqrt()
    p = leaf(big[:4].clone())
    p.grad = big[:4]
    files = [tmp_path / f"rank-{rank}.pt" for rank in range(2)]
    for rank, file in enumerate(files):
        torch.save(gradients({"w": p}, places={"w": {0: range(4 * rank, 4 * rank + 4)}}), file)
    assert max(file.stat().st_size for file in files) < 10_000
    parts = [torch.load(file, mmap=True) for file in files]
    assert isinstance(parts[0]["w"], Piece)
    assert told(big[:4].repeat(2), parts)[0] == "equal"
    assert told(torch.cat([2 * big[:4], 3 * big[:4]]), parts)[0] == "some-ranks"
    p.grad += 1
    assert gradients({"w": p})["w"].equal(p.grad)


def test_rows_of_fused_layers_that_are_not_equally_long():
    rows = [torch.tensor(held) for held in HELD]
    parts = [placed(W[r], held) for r, held in zip(rows, HELD, strict=True)]
    assert told(W, parts)[0] == "equal"
    parts[1] = placed(W[rows[2]], HELD[1])
    assert told(W, parts)[0] == "differs" or "rank 1" in told(W, parts)[1]
    parts = [placed(W[held], HELD[(r + 1) % 3]) for r, held in enumerate(HELD)]
    assert told(W, parts)[0] == "other-part"


def test_rows_that_are_shares_beside_rows_that_are_right():
    own, shared = W[:12], W[12:]
    noise = [shared.sin(), shared.cos(), -shared.sin() - shared.cos()]
    parts = [
        placed(
            torch.cat([own[4 * r : 4 * r + 4], shared / 3 + noise[r]]),
            [*range(4 * r, 4 * r + 4), *range(12, 24)],
        )
        for r in range(3)
    ]
    kind, text = told(W, parts)
    assert kind == "some-rows"
    assert text.startswith("rows 12, 13, 14") and "shares whose sum is right" in text
    assert text.endswith("the others are right")


def test_shares_along_one_mesh_dimension_and_means_along_the_other():
    place = (((0, 24),), ((0, 4),))

    def parts(value):
        return [
            {"w": Piece(value(a, b), place, {"dp": a, "tp": b})} for a in (0, 1) for b in (0, 1)
        ]

    sign = (1, -1)
    kind, text = told(W, parts(lambda a, b: W / 2 + sign[b] * W.sin()))
    assert (kind, "sum over tp is right" in text) == ("sum-missing", True)
    kind, text = told(W, parts(lambda a, b: W + sign[a] * W.sin()))
    assert (kind, "mean over dp is right" in text) == ("mean-missing", True)
    kind, text = told(W, parts(lambda a, b: W / 4 + sign[a] * W.sin() + sign[b] * W.cos()))
    assert (kind, " over " in text) == ("sum-missing", False)


def test_entries_that_no_rank_has_and_a_rank_without_its_gradient():
    assert told(W, [placed(W[:4], range(4))]) == ("shape", "80 of its 96 entries are on no rank")
    half = placed(W[:12], range(12))
    without = {"w": Piece(None, (((12, 24),), ((0, 4),)))}
    assert told(W, [half, without]) == ("none", "no gradient on rank 1")
    assert told(torch.cat([W[:12], 0 * W[12:]]), [half, without])[0] == "equal"
    assert told(W[:4], [placed(W[:4], range(4, 8))])[0] == "shape"


@pytest.mark.slow
def test_names_are_those_without_wrappers():
    class Wrapper(nn.Module):
        def __init__(self, module):
            super().__init__()
            self.module = module

    class Named(nn.Module):  # has a child of this name, and is no wrapper
        def __init__(self):
            super().__init__()
            self.module, self.other = nn.Linear(1, 1, bias=False), nn.Linear(1, 1, bias=False)

    compiled = torch.compile(nn.Sequential(Wrapper(nn.Linear(1, 1, bias=False)), Named()))
    assert [*gradients(Wrapper(compiled))] == ["0.weight", "1.module.weight", "1.other.weight"]


def test_places_that_do_not_fit_are_refused_in_a_line():
    with pytest.raises(CourseError, match="names 'v', which is no parameter"):
        gradients({"w": leaf(W)}, places={"v": {0: range(24)}})
    with pytest.raises(CourseError, match="3 indices of 'w' in dimension 0"):
        gradients({"w": leaf(W)}, places={"w": {0: range(3)}})
