"""What a collective costs: by formula, or as the messages that its algorithm sends.

With n ranks, S bytes, α and β, and ⌈lg n⌉ = L, a library that chooses well takes the cheapest of

    broadcast        binomial tree            L·(α + Sβ)
                     scatter + all-gather     (L + n − 1)·α + 2(n−1)/n·Sβ
    reduce           binomial tree            L·(α + Sβ)
                     reduce-scatter + gather  2L·α + 2(n−1)/n·Sβ
    all_reduce       recursive doubling       L·(α + Sβ)
                     Rabenseifner             2L·α + 2(n−1)/n·Sβ
                     ring                     2(n−1)·α + 2(n−1)/n·Sβ
    all_gather       recursive doubling       L·α + (n−1)/n·Sβ
    reduce_scatter   recursive halving        L·α + (n−1)/n·Sβ
    gather, scatter  binomial tree            L·α + (n−1)/n·Sβ
    all_to_all       pairwise                 (n−1)·α + (n−1)/n·Sβ
    barrier          dissemination            L·α

S is the larger of what a rank reads and writes, the largest over the ranks; adding costs nothing.
Where n is no power of two, recursive algorithms are charged L rounds. Source: Thakur, Rabenseifner
and Gropp, "Optimization of Collective Communication Operations in MPICH", IJHPCA 19(1), 2005.
"""

from __future__ import annotations

from collections.abc import Iterator

from course_lib.collectives import MAKE_GROUPS

Step = list[tuple[int, int, float]]  # messages that go at once: source, destination, bytes

_BLOCKS = ("all_gather", "reduce_scatter", "gather", "scatter")  # or what begins so


def textbook_seconds(op: str, n: int, nbytes: float, alpha: float, beta: float) -> float:
    """Seconds that a collective takes once its last rank has called it."""
    if n <= 1 or op in MAKE_GROUPS:
        return 0.0
    rounds, most = (n - 1).bit_length(), (n - 1) / n * nbytes * beta
    tree = rounds * (alpha + nbytes * beta)
    if op == "broadcast":
        return min(tree, (rounds + n - 1) * alpha + 2 * most)
    if op == "reduce" or op.startswith("all_reduce"):
        return min(tree, 2 * rounds * alpha + 2 * most)
    if op.startswith("all_to_all"):
        return (n - 1) * alpha + most
    if op.startswith(_BLOCKS):
        return rounds * alpha + most
    return rounds * alpha


def messages(op: str, n: int, nbytes: float, root: int) -> Iterator[Step]:
    """The same collective as messages between group ranks, step by step: rings, and trees for
    what has a root. A rank enters a step when the one before has ended for it.
    """
    if n <= 1 or op in MAKE_GROUPS:
        return
    if op.startswith(("all_reduce", "all_gather", "reduce_scatter")):
        for _ in range((n - 1) * (2 if op.startswith("all_reduce") else 1)):
            yield [(r, (r + 1) % n, nbytes / n) for r in range(n)]
    elif op.startswith("all_to_all"):
        for distance in range(1, n):
            yield [(r, (r + distance) % n, nbytes / n) for r in range(n)]
    elif op in ("broadcast", "scatter"):
        yield from _tree(n, nbytes, root, shrinking=op == "scatter")
    elif op in ("reduce", "gather"):
        for step in reversed(list(_tree(n, nbytes, root, shrinking=op == "gather"))):
            yield [(child, parent, size) for parent, child, size in step]
    else:
        for k in range((n - 1).bit_length()):
            yield [(r, (r + (1 << k)) % n, 0.0) for r in range(n)]


def _tree(n: int, nbytes: float, root: int, shrinking: bool) -> Iterator[Step]:
    """A binomial tree from the root down; ``shrinking`` where a child gets its subtree's blocks."""
    for k in reversed(range((n - 1).bit_length())):
        step = []
        for r in range(0, n, 1 << (k + 1)):
            child = r + (1 << k)
            if child < n:
                below = min(1 << k, n - child) / n if shrinking else 1.0
                step.append(((r + root) % n, (child + root) % n, nbytes * below))
        yield step
