"""The simulator is cut at the bytes: an exchange gets no memory of a rank, and needs none."""

from __future__ import annotations

import pickle

import pytest
import test_agreement as agreement
import test_hazards as hazards
import torch
from random_programs import execute, make_program

from course_lib import Hazard
from course_sim import Network, simulate
from course_sim.exchange.collective import Collectives
from course_sim.exchange.mail import Mail
from course_sim.tensor_memory import equal


def without_memory(tensors):
    return [torch.empty(t.shape, dtype=t.dtype, device="meta") for t in tensors]


@pytest.fixture
def far_away(monkeypatch):
    """What reaches the exchange is what another process could have sent. Returns how often."""
    calls: list[str] = []
    send, recv, issue = Mail.send, Mail.recv, Collectives.issue

    def far_send(mail, rank, like, data, *more):
        calls.append("send")
        return send(mail, rank, *without_memory([like]), data, *more)

    def far_recv(mail, rank, like, *more):
        calls.append("recv")
        return recv(mail, rank, *without_memory([like]), *more)

    def far_issue(self, rank, passed, *more):
        calls.append(passed.op)
        flat = [
            t.detach().clone(memory_format=torch.contiguous_format).view(-1) for t in passed.given
        ]
        first = passed.first if passed.first is None else without_memory([passed.first])[0]
        ins, outs = without_memory(passed.ins), without_memory(passed.outs)
        passed = passed._replace(ins=ins, outs=outs, given=flat, first=first)
        return issue(self, rank, passed, *more)

    for owner, name, far in [
        (Mail, "send", far_send),
        (Mail, "recv", far_recv),
        (Collectives, "issue", far_issue),
    ]:
        monkeypatch.setattr(owner, name, far)
    return calls


PROGRAMS = [
    (agreement.every_kind_of_call, (), 3),
    *((execute, (make_program(k),), None) for k in range(3)),
]


@pytest.mark.parametrize(("program", "args", "n"), PROGRAMS)
def test_the_run_is_the_same_where_the_exchange_is_elsewhere(program, args, n, request):
    words = {"world_size": n or args[0]["n"], "network": Network(jitter=0.5), "seed": 3}
    near = simulate(program, *args, **words)
    calls = request.getfixturevalue("far_away")
    far = simulate(program, *args, **words)
    assert calls and equal(near.results, far.results)
    assert pickle.dumps(near.trace) == pickle.dumps(far.trace)


@pytest.mark.parametrize("program", [hazards.inbox_written, hazards.outgoing_is_inbox])
def test_so_are_hazards(program, request):
    texts = []
    for _ in range(2):
        with pytest.raises(Hazard) as caught:
            simulate(program, world_size=2)
        texts.append(str(caught.value))
        request.getfixturevalue("far_away")
    assert texts[0] == texts[1]
