"""The time model, against closed forms."""

from __future__ import annotations

import pytest
import torch
import torch.distributed as dist

from course_lib import CourseError, compute
from course_sim import Network, simulate
from course_sim.costs import messages

A, B = 3e-6, 1 / 7e9
NET = Network(latency=A, bandwidth=1 / B)
N, S = 64, 4096  # ranks, bytes


def exactly(value):
    return pytest.approx(value, rel=1e-9, abs=0)


def star():
    x, n, rank = torch.ones(S // 4), dist.get_world_size(), dist.get_rank()
    if rank:
        dist.send(x, 0)
        dist.recv(x, 0)
        return x[0].item()
    inboxes = [torch.zeros(S // 4) for _ in range(1, n)]
    works = [dist.irecv(inbox, 1 + k) for k, inbox in enumerate(inboxes)]
    for work, inbox in zip(works, inboxes, strict=True):
        work.wait()
        x += inbox
    for work in [dist.isend(x, peer) for peer in range(1, n)]:
        work.wait()
    return x[0].item()


def ring(elements):
    """Chunked ring all-reduce of n chunks of ``elements`` each."""
    n, rank = dist.get_world_size(), dist.get_rank()
    x = torch.arange(n * elements, dtype=torch.float32) % 7 + rank
    chunks, inbox = x.view(n, elements), torch.empty(elements)
    right, left = (rank + 1) % n, (rank - 1) % n
    for step in range(n - 1):
        sending = dist.isend(chunks[(rank - step) % n], right)
        dist.irecv(inbox, left).wait()
        sending.wait()
        chunks[(rank - step - 1) % n] += inbox
    for step in range(n - 1):
        sending = dist.isend(chunks[(rank + 1 - step) % n], right)
        dist.irecv(chunks[(rank - step) % n], left).wait()
        sending.wait()
    return x


def test_a_star_whose_root_posts_everything_at_once_pays_latency_once_each_way():
    sim = simulate(star, world_size=N, network=NET)
    assert sim.seconds == exactly(2 * (A + (N - 1) * S * B))
    assert sim.results == [float(N)] * N


def test_ring_takes_its_formula_and_sends_no_byte_too_many():
    n, elements = 32, 64
    sim = simulate(ring, elements, world_size=n, network=NET)
    nbytes = n * elements * 4
    assert sim.seconds == exactly(2 * (n - 1) * (A + nbytes / n * B))
    right = (torch.arange(n * elements, dtype=torch.float32) % 7) * n + n * (n - 1) / 2
    assert all(torch.equal(result, right) for result in sim.results)
    assert {sim.trace.bytes_sent(r) for r in range(n)} == {2 * (n - 1) * nbytes // n}


def late(nbytes, seconds, late_rank=1):
    """One message, to a recv or from a send that comes late."""
    x, rank = torch.zeros(nbytes, dtype=torch.uint8), dist.get_rank()
    if rank == late_rank:
        compute(seconds)
    dist.send(x, 1) if rank == 0 else dist.recv(x, 0)


LARGE = 16_000_000


def test_links_are_full_duplex():
    assert simulate(both_ways, world_size=2, network=NET).seconds == exactly(A + S * B)


@pytest.mark.parametrize("late_rank", [0, 1])
def test_bytes_begin_to_move_when_both_sides_are_there(late_rank):
    sim = simulate(late, LARGE, 2.0, late_rank, world_size=2, network=NET)
    [send], [recv] = sim.trace.ops("send"), sim.trace.ops("recv")
    assert send.completed == exactly(2 + LARGE * B)
    assert recv.completed == exactly(2 + A + LARGE * B)


def test_jitter_is_drawn_by_seed_and_only_delays():
    network = Network(latency=A, bandwidth=1 / B, jitter=0.5)
    times = {simulate(both_ways, world_size=2, network=network, seed=k).seconds for k in range(5)}
    assert len(times) == 5
    assert all(A + S * B <= t <= 1.5 * (A + S * B) for t in times)


def test_a_buffered_send_waits_for_nobody():
    sim = simulate(late, LARGE, 2.0, world_size=2, network=NET, buffered=True)
    assert sim.trace.ops("send")[0].completed == exactly(LARGE * B)
    assert sim.trace.ops("recv")[0].completed == 2.0  # the bytes are there already


def both_ways():
    x, y = torch.zeros(S // 4), torch.zeros(S // 4)
    work = dist.isend(x, 1 - dist.get_rank())
    dist.recv(y, 1 - dist.get_rank())
    work.wait()


def nodes_exchange(per_node):
    """Every rank of node 0 sends to its counterpart in node 1."""
    x, rank = torch.zeros(S // 4), dist.get_rank()
    dist.send(x, rank + per_node) if rank < per_node else dist.recv(x, rank - per_node)


def test_ranks_of_a_node_share_its_uplink_and_have_links_of_their_own_inside():
    outside = Network(latency=1e-5, bandwidth=1e9)
    network = Network.cluster(2, 4, intra=NET, inter=outside)
    sim = simulate(nodes_exchange, 4, world_size=8, network=network)
    assert sim.seconds == exactly(1e-5 + 4 * S / 1e9)
    assert simulate(both_ways, world_size=2, network=network).seconds == exactly(A + S * B)


def to_everyone(turned):
    """All sends and recvs at once; turned: no two ranks begin with the same one."""
    n, rank = dist.get_world_size(), dist.get_rank()
    peers = [(rank + k) % n for k in range(1, n)] if turned else [r for r in range(n) if r != rank]
    x = torch.zeros(n, S // 4)
    works = [dist.isend(x[rank], r) for r in peers] + [dist.irecv(x[r], r) for r in peers]
    for work in works:
        work.wait()


def test_a_ranks_messages_leave_in_the_order_of_its_sends():
    """Whichever recv was posted first: that is the order in which all links are always in use."""
    turned, same = (
        simulate(to_everyone, way, world_size=8, network=NET, seed=7).seconds
        for way in (True, False)
    )
    assert turned == exactly(A + 7 * S * B)
    assert same == exactly(A + 13 * S * B)  # seven at rank 0, and six behind them


def one_collective(op, nbytes):
    n, x = dist.get_world_size(), torch.zeros(nbytes // 4)
    if op == "all_reduce":
        dist.all_reduce(x)
    elif op == "broadcast":
        dist.broadcast(x, 1)
    elif op == "all_gather_single":
        dist.all_gather_single(x, torch.zeros(nbytes // 4 // n))
    elif op == "all_to_all_single":
        dist.all_to_all_single(x, torch.zeros(nbytes // 4))
    else:
        dist.barrier()


@pytest.mark.parametrize(
    "op", ["all_reduce", "broadcast", "all_gather_single", "all_to_all_single", "barrier"]
)
@pytest.mark.parametrize("nbytes", [64, 1 << 20])
def test_collectives_are_charged_by_the_textbook(op, nbytes):
    """Thakur, Rabenseifner and Gropp 2005, for 8 ranks."""
    many, all_but_own = nbytes * B, 7 / 8 * nbytes * B
    right = {
        "all_reduce": min(3 * (A + many), 6 * A + 2 * all_but_own),
        "broadcast": min(3 * (A + many), 10 * A + 2 * all_but_own),
        "all_gather_single": 3 * A + all_but_own,
        "all_to_all_single": 7 * A + all_but_own,
        "barrier": 3 * A,
    }
    assert simulate(one_collective, op, nbytes, world_size=8, network=NET).seconds == exactly(
        right[op]
    )


@pytest.mark.parametrize(
    ("op", "right"),
    [
        ("all_reduce", 14 * (A + 4096 / 8 * B)),
        ("broadcast", 3 * (A + 4096 * B)),
        ("all_gather_single", 7 * (A + 4096 / 8 * B)),
        ("barrier", 3 * A),
    ],
)
def test_collectives_can_run_as_messages(op, right):
    network = Network(latency=A, bandwidth=1 / B, collectives="messages")
    assert simulate(one_collective, op, 4096, world_size=8, network=network).seconds == exactly(
        right
    )


@pytest.mark.parametrize("op", ["broadcast", "reduce", "gather", "scatter", "barrier"])
@pytest.mark.parametrize("n", [1, 5, 8])
def test_the_messages_of_a_collective_reach_everyone(op, n):
    """Whoever has to have heard of somebody has, along the messages."""
    heard = [{r} for r in range(n)]
    for step in messages(op, n, 100.0, root=n // 2):
        before = [set(h) for h in heard]
        for src, dst, _ in step:
            heard[dst] |= before[src]
    root = n // 2
    if op in ("reduce", "gather"):
        assert heard[root] == set(range(n))
    elif op == "barrier":
        assert all(h == set(range(n)) for h in heard)
    else:
        assert all(root in h for h in heard)


@pytest.mark.parametrize("words", [{"latency": -1.0}, {"bandwidth": "fast"}, {"collectives": "x"}])
def test_an_impossible_network_is_refused(words):
    with pytest.raises(ValueError, match="Network"):
        Network(**words)


def test_a_world_larger_than_its_cluster_is_refused():
    with pytest.raises(CourseError, match="does not fit on 2 nodes"):
        simulate(dist.barrier, world_size=9, network=Network.cluster(2, 4))


def told_by_the_others():
    """What comes by message, and by collective."""
    n, rank, x, inbox = dist.get_world_size(), dist.get_rank(), torch.ones(3), torch.ones(3)
    work = dist.isend(x, (rank + 1) % n)
    dist.recv(inbox, (rank - 1) % n)
    work.wait()
    dist.all_reduce(x)
    return inbox.tolist(), x.tolist()


def test_zeros_may_come_in_place_of_what_was_sent():
    plain = simulate(told_by_the_others, world_size=2)
    blank = simulate(told_by_the_others, world_size=2, network=Network(zeros=True))
    assert plain.results == [([1.0] * 3, [2.0] * 3)] * 2
    assert blank.results == [([0.0] * 3, [0.0] * 3)] * 2
    assert blank.trace == plain.trace
