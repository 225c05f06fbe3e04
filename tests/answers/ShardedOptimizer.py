"""Answers to ShardedOptimizer."""

import torch
import torch.distributed as dist
from torch import nn


class Pieces:
    """One piece per parameter; two calls a dtype."""

    def __init__(self, params, make, **options):
        self.params = list(params)
        n, rank = dist.get_world_size(), dist.get_rank()
        self.sizes = [-(-p.numel() // n) for p in self.params]
        self.own = [
            nn.Parameter(self.cut(p.detach(), k)[rank].clone())
            for p, k in zip(self.params, self.sizes, strict=True)
        ]
        self.made = make(self.own, **options)

    def cut(self, tensor, k):
        n = dist.get_world_size()
        flat = tensor.new_zeros(n * k)
        flat[: tensor.numel()] = tensor.flatten()
        return flat.view(n, k)

    def step(self):
        n = dist.get_world_size()
        there = torch.tensor([float(p.grad is not None) for p in self.params])
        dist.all_reduce(there)
        for dtype in sorted({p.dtype for p in self.params}, key=str):
            which = [i for i, p in enumerate(self.params) if p.dtype == dtype]
            sizes = [self.sizes[i] for i in which]
            whole = torch.cat(
                [self.cut(self.gradient(self.params[i]), self.sizes[i]) for i in which], dim=1
            )
            mine = whole.new_empty(whole.shape[1])
            dist.reduce_scatter_single(mine, whole.flatten(), dist.ReduceOp.AVG)
            del whole
            for i, piece in zip(which, mine.split(sizes), strict=True):
                self.own[i].grad = piece if there[i] > 0 else None
        self.made.step()
        self.made.zero_grad()
        for dtype in sorted({p.dtype for p in self.params}, key=str):
            which = [i for i, p in enumerate(self.params) if p.dtype == dtype]
            mine = torch.cat([self.own[i].detach() for i in which])
            whole = mine.new_empty(n * mine.numel())
            dist.all_gather_single(whole, mine)
            parts = whole.view(n, -1).split([self.sizes[i] for i in which], 1)
            for i, part in zip(which, parts, strict=True):
                p = self.params[i]
                p.data.copy_(part.reshape(-1)[: p.numel()].view_as(p))

    def gradient(self, p):
        return torch.zeros_like(p) if p.grad is None else p.grad

    def zero_grad(self):
        for p in self.params:
            p.grad = None


class OneByOne:
    """Two calls per parameter, with lists of tensors; the states are found by the pieces."""

    def __init__(self, params, make, **options):
        self.params = [*params]
        self.rank, self.n = dist.get_rank(), dist.get_world_size()
        self.pieces = [nn.Parameter(self.parts(p.data)[self.rank].clone()) for p in self.params]
        self.inner = make(self.pieces, **options)

    def parts(self, t):
        pad = -t.numel() % self.n
        return [*nn.functional.pad(t.reshape(-1), (0, pad)).chunk(self.n)]

    def step(self):
        have = torch.zeros(len(self.params), dtype=torch.int32)
        for i, p in enumerate(self.params):
            have[i] = p.grad is not None
        dist.all_reduce(have, op=dist.ReduceOp.MAX)
        for i, (p, piece) in enumerate(zip(self.params, self.pieces, strict=True)):
            if not have[i]:
                piece.grad = None
                continue
            grad = p.grad if p.grad is not None else torch.zeros_like(p)
            piece.grad = torch.empty_like(piece)
            dist.reduce_scatter(piece.grad, self.parts(grad))
            piece.grad /= self.n
        self.inner.step()
        for p, piece in zip(self.params, self.pieces, strict=True):
            into = [torch.empty_like(piece.data) for _ in range(self.n)]
            dist.all_gather(into, piece.data)
            with torch.no_grad():
                p.copy_(torch.cat(into)[: p.numel()].view(p.shape))
        self.zero_grad()

    def zero_grad(self):
        for p in self.params + self.pieces:
            p.grad = None


class InWords:
    """Ranks tell one another in a list of bools which gradients are there."""

    def __init__(self, params, make, **options):
        self.params, self.n = list(params), dist.get_world_size()
        self.pieces = [nn.Parameter(self.rows(p.data)[dist.get_rank()].clone())
                       for p in self.params]  # fmt: skip
        self.inner = make(self.pieces, **options)

    def rows(self, t):
        missing = -t.numel() % self.n
        return nn.functional.pad(t.reshape(-1), (0, missing)).view(self.n, -1)

    def step(self):
        said = [None] * self.n
        dist.all_gather_object(said, [p.grad is not None for p in self.params])
        for p, piece, *there in zip(self.params, self.pieces, *said, strict=True):
            if any(there):
                rows = self.rows(torch.zeros_like(p) if p.grad is None else p.grad)
                piece.grad = torch.empty_like(piece)
                dist.reduce_scatter_single(piece.grad, rows.view(-1), dist.ReduceOp.AVG)
        self.inner.step()
        self.inner.zero_grad()
        for p, piece in zip(self.params, self.pieces, strict=True):
            whole = piece.new_empty(self.n * piece.numel())
            dist.all_gather_single(whole, piece.detach())
            p.data.copy_(whole[: p.numel()].view_as(p))

    def zero_grad(self):
        for p in self.params:
            p.grad = None


WRONG = {
    "sum": ("Pieces", "13.sum", "gradients are added up, one thinks",
            ("mine, whole.flatten(), dist.ReduceOp.AVG", "mine, whole.flatten()")),
    "one_too_few": ("OneByOne", "13.one-too-few", "the others are n - 1, one counts oneself out",
                    ("piece.grad /= self.n", "piece.grad /= max(1, self.n - 1)")),
    "zeros_for_none": ("Pieces", "13.none-moves", "None counts as zero, it says",
                       ("piece if there[i] > 0 else None", "piece")),
    "zero_for_none": ("Pieces", "13.only-zero-on-all-ranks", "zeros move nothing, one thinks",
                      ("float(p.grad is not None)",
                       "float(p.grad is not None and bool(p.grad.any()))")),
    "skips_none": ("Pieces", "13.skips-none", "what has no gradient is left out",
                   ("for i, p in enumerate(self.params) if p.dtype == dtype]\n            sizes",
                    "for i, p in enumerate(self.params)\n                     if p.dtype == dtype "
                    "and p.grad is not None]\n            sizes")),
    "piece_is_a_view": ("Pieces", "13.holds-too-much", "a view keeps the whole alive",
                        ("self.cut(p.detach(), k)[rank].clone()", "self.cut(p.detach(), k)[rank]")),
    "reduces_all": ("OneByOne", "13.all-reduced", "all_reduce is the better known",
                    ("            dist.reduce_scatter(piece.grad, self.parts(grad))\n",
                     "            dist.all_reduce(grad)\n"
                     "            piece.grad.copy_(self.parts(grad)[self.rank])\n")),
    "generator_twice": ("Pieces", "13.only-a-generator", "params is a list, one thinks",
                        ("self.params = list(params)", "self.params = params")),
    "not_padded": ("OneByOne", "13.not-padded", "chunk makes n parts, one thinks",
                   ("nn.functional.pad(t.reshape(-1), (0, pad)).chunk", "t.reshape(-1).chunk")),
    "view_of_all": ("OneByOne", "13.only-channels-last", "a parameter lies row by row, one thinks",
                    ("nn.functional.pad(t.reshape(-1)", "nn.functional.pad(t.view(-1)")),
    "pads_float32": ("OneByOne", "13.only-bfloat16", "torch.zeros has one dtype, one forgets",
                     ("nn.functional.pad(t.reshape(-1), (0, pad))",
                      "torch.cat([t.reshape(-1), torch.zeros(pad)])"),
                     ("piece.grad = torch.empty_like(piece)",
                      "piece.grad = torch.empty(len(piece), dtype=p.dtype)")),
    "same_piece": ("OneByOne", "13.same-piece", "the first chunk is taken for one's own",
                   ("self.parts(p.data)[self.rank]", "self.parts(p.data)[0]")),
}  # fmt: skip
