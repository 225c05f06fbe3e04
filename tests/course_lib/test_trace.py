"""What run() records: every call, with its size, peer, line and times."""

import json
import threading

import torch
import torch.distributed as dist

from course_lib import run, span
from course_lib.recording import recorder
from course_lib.trace import Event, Trace


def test_point_to_point_is_recorded_with_peer_size_tag_and_line():
    """A recv from any source learns its peer."""

    def talk():
        x = torch.zeros(5, dtype=torch.float64)
        if dist.get_rank() == 0:
            dist.send(x, dst=1, tag=3)
        else:
            dist.recv(x, tag=3)
        other = 1 - dist.get_rank()
        ops = [(dist.isend, x), (dist.irecv, torch.empty_like(x))]
        batch = [dist.P2POp(op, tensor, other, tag=7) for op, tensor in ops]
        for work in dist.batch_isend_irecv(batch):
            work.wait()

    trace = run(talk, world_size=2).trace
    send, recv = trace.of(0)[0], trace.of(1)[0]
    assert (send.op, send.peer, send.nbytes, send.dtype) == ("send", 1, 40, "float64")
    assert send.shape == (5,)
    assert (recv.op, recv.peer, recv.tag, recv.group) == ("recv", 0, 3, "0")
    assert send.line.source == "dist.send(x, dst=1, tag=3)"
    assert send.line.function == "talk"
    assert 0 <= send.issued <= send.completed
    assert not send.async_op
    batched = {(e.op, e.tag, e.async_op) for e in trace.events if e not in (send, recv)}
    assert batched == {("send", 7, True), ("recv", 7, True)}


def test_asynchronous_calls_complete_when_waited_for():
    """By ``wait()``, by the future, and where gloo's Work has no future."""

    def talk():
        other, ones = 1 - dist.get_rank(), torch.ones(2)
        inbox = torch.empty(2)
        works = [dist.isend(ones, other), dist.irecv(inbox, other)]
        works.append(dist.reduce_scatter(torch.empty(2), [ones, ones], async_op=True))
        for work in works:
            work.wait()
        dist.all_reduce(ones, async_op=True).get_future().wait()

    events = run(talk, world_size=2).trace.events
    assert len(events) == 8
    for event in events:
        assert event.async_op
        assert event.waited
        assert event.completed >= event.issued


RECORDED = [
    ("broadcast", 1, None, 16),
    ("all_reduce", None, "MAX", 16),
    ("reduce", 1, "SUM", 16),
    ("all_gather", None, None, 32),
    ("gather", 0, None, 32),
    ("scatter", 0, None, 32),
    ("reduce_scatter", None, "SUM", 32),
    ("reduce_scatter_single", None, "SUM", 16),
    ("all_to_all", None, None, 32),
    ("barrier", None, None, 0),
]


def test_every_collective_is_recorded_by_its_name():
    def talk():
        n, r = dist.get_world_size(), dist.get_rank()
        x = torch.ones(4)
        outs = [torch.empty(4) for _ in range(n)]
        dist.broadcast(x, src=1)
        dist.all_reduce(x, op=dist.ReduceOp.MAX)
        dist.reduce(x, dst=1)
        dist.all_gather(outs, x)
        dist.gather(x, outs if r == 0 else None, dst=0)
        dist.scatter(x, outs if r == 0 else None, src=0)
        dist.reduce_scatter(torch.empty(4), outs)
        dist.reduce_scatter_single(torch.empty(2), x)
        dist.all_to_all(outs, [x, x])
        dist.barrier()

    events = run(talk, world_size=2).trace.of(0)
    assert [(e.op, e.peer, e.reduce_op, e.nbytes) for e in events] == RECORDED
    assert all(e.completed is not None for e in events)


def test_ddp_shows_its_bucket_all_reduces():
    def train():
        model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(8, 4))
        model(torch.ones(2, 8)).sum().backward()

    reduces = run(train, world_size=2).trace.ops("all_reduce")
    assert sorted((e.rank, e.nbytes) for e in reduces) == [(0, 4 * 36), (1, 4 * 36)]
    assert all(e.async_op and e.waited and e.completed for e in reduces)


def test_what_is_done_is_written_down_before_the_rank_ends():
    """gloo's thread tells the recorder a moment after those who wait have gone on. Here that moment
    lasts until rank 0, at its end, has written down what is done."""

    def talk():
        word = torch.zeros(1)
        if dist.get_rank() == 1:
            dist.recv(word, 0)
            return dist.all_reduce(torch.ones(1))
        mine = recorder.active_recorder
        settled = threading.Event()

        def settle(usual=mine.write_done_futures):
            mine._write_done = done
            usual()
            settled.set()

        def late(*args):
            settled.wait()
            done(*args)

        done, mine._write_done, mine.write_done_futures = mine._write_done, late, settle
        work = dist.all_reduce(torch.ones(1), async_op=True)
        dist.send(word, 1)  # only now can it be done: gloo's thread will tell, not this one
        return work.get_future().wait()

    (event,) = (e for e in run(talk, world_size=2).trace.ops("all_reduce") if e.rank == 0)
    assert event.completed is not None
    assert event.completed >= event.issued


def test_spans_are_recorded():
    def work():
        with span("forward"):
            torch.ones(10).sum()

    spans = run(work, world_size=2).trace.spans
    assert {(one.rank, one.name) for one in spans} == {(0, "forward"), (1, "forward")}
    assert spans[0].start <= spans[0].end


def test_record_false_records_nothing_and_says_so():
    trace = run(lambda: dist.barrier(), world_size=2, record=False).trace
    assert trace.events == []
    assert "record=False" in trace.note


def test_messages_pair_each_send_with_its_recv_in_order():
    def event(rank, op, peer, seq, at):
        return Event(rank, op, peer, "0", 4, "float32", (1,), at, at + 1, None, seq=seq)

    sends = [event(0, "send", 1, seq, float(seq)) for seq in (0, 1)]
    trace = Trace([*sends, event(1, "recv", 0, 0, 5.0)])
    first, second = trace.messages
    assert (first.src, first.dst, first.recv.issued) == (0, 1, 5.0)
    assert second.recv is None
    assert trace.bytes_sent(0) == 8


def test_the_saved_file_is_what_perfetto_reads(tmp_path):
    def talk():
        dist.send(torch.ones(1), 1) if dist.get_rank() == 0 else dist.recv(torch.ones(1), 0)

    path = run(talk, world_size=2).trace.save(tmp_path / "trace.json")
    events = json.loads(path.read_text())["traceEvents"]
    boxes = [e for e in events if e["ph"] == "X"]
    assert {(b["pid"], b["name"]) for b in boxes} == {(0, "send"), (1, "recv")}
    assert all(b["dur"] >= 0 and b["ts"] >= 0 for b in boxes)
    arrows = [e["ph"] for e in events if e["ph"] in "sf"]
    assert sorted(arrows) == ["f", "s"]
