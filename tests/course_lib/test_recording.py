"""Recording changes nothing: bad arguments end in the same error with it and without."""

from __future__ import annotations

import re
import time
from collections.abc import Callable

import pytest
import torch
import torch.distributed as dist

from course_lib import run
from course_lib.collectives import OP_OF_METHOD
from course_lib.recording import stuck_ranks as standing

X = torch.ones(2)

# By what is wrong: the call, and how the error begins; by rank 0 alone, or by both.
NO_RANK = "RuntimeError: there is no rank"
REFUSED: dict[str, tuple[Callable[[int], object], str]] = {
    "dst below 0": (lambda me: me or dist.send(X, -1), NO_RANK),
    "rank of a group": (lambda me: me or dist.irecv(X, group_src=-1), f"{NO_RANK} -1: ranks are 0"),
    "in a batch": (
        lambda me: me or dist.batch_isend_irecv([dist.P2POp(dist.isend, X, 2)]),
        f"{NO_RANK} 2: ranks are 0 to 1",
    ),
    "to itself": (lambda me: dist.send(X, me), "ValueError: Invalid dest"),
    "root too large": (lambda me: dist.broadcast(X, 2), "RuntimeError: Proc"),
    "no tensor": (lambda me: dist.all_reduce([1.0]), "TypeError: Invalid"),
    "no op": (lambda me: dist.all_reduce(X, op="sum"), "TypeError: "),
    "negative tag": (lambda me: dist.send(X, 1 - me, tag=-1), "RuntimeError"),
    "an output too few": (lambda me: dist.all_gather([X], X), "RuntimeError"),
    "ranks of no group": (lambda me: dist.new_group(1), "TypeError: ranks"),
}


def told() -> dict[str, str]:
    """What torch says of each."""
    words = {}
    for what, (call, _) in REFUSED.items():
        try:
            call(dist.get_rank())
        except Exception as error:
            words[what] = f"{type(error).__name__}: {error}".partition("\n")[0]
    return words


def test_what_torch_refuses_is_told_alike():
    recorded, bare = (run(told, world_size=2, record=record).results for record in (True, False))
    assert recorded == bare
    for what, (_, begins) in REFUSED.items():
        assert recorded[0][what].startswith(begins), what


def test_what_torch_refused_was_not_said(monkeypatch: pytest.MonkeyPatch):
    """Neither does a rank wait in such a call, nor does it meet a call of another rank."""

    def go_on() -> float:
        if dist.get_rank() == 0:
            for call in (lambda: dist.broadcast(X, 2), lambda: dist.isend(X, 1, tag=-1)):
                with pytest.raises(RuntimeError):
                    call()
            time.sleep(0.3)  # longer than it takes to tell a deadlock
        dist.all_reduce(X)
        return X.sum().item()

    monkeypatch.setattr(standing, "LOOK_SECONDS", 0.02)
    monkeypatch.setattr(standing, "DEADLOCK_SECONDS", 0.1)
    done = run(go_on, world_size=2)
    assert done.results == [4.0, 4.0]
    assert [e.op for e in done.trace.events] == ["all_reduce"] * 2


METHODS = {
    "send": ["tensors", "dstRank", "tag"],
    "recv": ["tensors", "srcRank", "tag"],
    "all_to_all_single": ["output", "input", "output_split_sizes", "input_split_sizes", "opts"],
}


@pytest.mark.parametrize("method", ["send", "recv", *OP_OF_METHOD])
def test_c10ds_methods_take_their_arguments_where_the_wrappers_look(method: str):
    """See Note [The arguments of c10d's methods] in wrappers.py."""
    documented = getattr(dist.ProcessGroup, method).__doc__
    way = re.search(rf"{method}\(self: \S+, (.*)\) -> ", documented)[1]
    names = re.findall(r"(?:^|, )(\w+): ", way)
    assert names == METHODS.get(method, [*names[:-1], "opts"])
