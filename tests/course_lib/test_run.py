"""run(): what goes in, what comes back, and in which order it is shown."""

import functools
import importlib
import os
import sys
import threading

import pytest
import torch
import torch.distributed as dist

from course_lib import CourseError, RankFailed, pickling, run, simulate

FACTOR = 10


def test_four_ranks_talk_by_default():
    def add_up(x):
        x += dist.get_rank()
        dist.all_reduce(x)
        return dist.get_rank(), x.tolist()

    x = torch.zeros(3)
    done = run(add_up, x)
    assert done.results == [(rank, [6.0] * 3) for rank in range(4)]
    assert x.tolist() == [0.0] * 3  # a rank has its own memory
    assert (done.world_size, done.backend) == (4, "gloo")
    assert 0 < done.seconds < 30


def test_functions_closures_classes_and_modules_travel():
    class Scale(torch.nn.Module):
        def __init__(self, by):
            super().__init__()
            self.by = torch.nn.Parameter(torch.tensor(float(by)))

        def forward(self, x):
            return self.by * x

    def make(offset):
        def inner(model):
            return model(torch.tensor(dist.get_rank() + FACTOR + offset)), model

        return inner

    results = run(functools.partial(make(1), Scale(2)), world_size=2).results
    assert [float(value) for value, _ in results] == [22.0, 24.0]
    assert type(results[0][1]).__name__ == "Scale"
    assert results[0][1].by.requires_grad


def test_what_is_one_object_stays_one_and_a_view_comes_back_without_its_storage():
    x = torch.zeros(1_000_000)
    same, result = run(lambda a, b: (a is b is x, a[3:5]), x, x, world_size=1).results[0]
    assert same
    assert result.untyped_storage().nbytes() == 8


def test_ranks_start_in_the_callers_surroundings(tmp_path, monkeypatch):
    monkeypatch.setenv("COURSE_TEST_WORD", "heard")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path, str(tmp_path)])
    (tmp_path / "neighbour_module.py").write_text("VALUE = 7\n")

    def look():
        import neighbour_module

        return os.environ["COURSE_TEST_WORD"], os.getcwd(), neighbour_module.VALUE

    assert run(look, world_size=1).results == [("heard", str(tmp_path), 7)]


def test_output_is_in_rank_order_and_the_same_every_time(capsys):
    def talk():
        rank = dist.get_rank()
        print("first from", rank, flush=True)
        print("second, on standard error", file=sys.stderr)
        dist.barrier()
        print("no newline", end="")

    texts = {run(talk).output for _ in range(3)}
    assert len(texts) == 1
    (text,) = texts
    expected = ""
    for rank in range(4):
        expected += f"[{rank}] first from {rank}\n[{rank}] second, on standard error\n"
        expected += f"[{rank}] no newline\n"
    assert text == expected
    assert capsys.readouterr().out == expected * 3


def test_time_stamps_are_cut_and_bytes_that_are_no_utf8_escaped():
    def warn():
        os.write(2, b"[W1120 18:50:23.123456789 Some.cpp:7] careful\n\xff\xfe!\n")

    assert run(warn, world_size=1).output == "[0] [W Some.cpp:7] careful\n[0] \\xff\\xfe!\n"


def test_long_output_is_cut_with_a_notice_and_does_not_block():
    def shout():
        for _ in range(1000):
            print("x" * 9999)

    output = run(shout, world_size=2).output
    assert len(output) < 250_000
    assert "100,000 of 10,000,000 bytes shown" in output


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"world_size": True}, "world_size=True"),
        ({"backend": "mpi"}, "'gloo' or 'nccl'"),
        ({"timeout": 0}, "seconds above zero"),
    ],
)
def test_a_world_that_cannot_be_is_refused_in_one_line(arguments, words):
    with pytest.raises(CourseError) as caught:
        run(lambda: None, **arguments)
    assert words in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.skipif(torch.cuda.is_available(), reason="this machine has a GPU")
def test_nccl_without_a_gpu_is_refused_with_the_way_out():
    with pytest.raises(CourseError, match="use backend='gloo'"):
        run(lambda: None, backend="nccl")


def test_more_ranks_than_gpus_are_refused_with_the_way_out(monkeypatch):
    monkeypatch.setattr(dist, "is_nccl_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    with pytest.raises(CourseError) as caught:
        run(lambda: None, backend="nccl", world_size=3)
    assert str(caught.value) == (
        "world_size=3 asks for 3 GPUs, this machine has 2: use backend='gloo' or world_size=2"
    )


@pytest.mark.parametrize("start", [run, simulate])
def test_an_argument_that_is_named_is_told_to_go_by_position(start):
    name = start.__name__
    with pytest.raises(CourseError) as caught:
        start(lambda x: x, 1, y=3, world_size=2)
    assert str(caught.value) == (
        f"{name}() got an unexpected keyword argument 'y'. What fn takes goes by position: "
        f"{name}(fn, a, b) calls fn(a, b) in each rank"
    )


def test_an_argument_that_cannot_be_sent_is_named_before_anything_starts():
    with pytest.raises(CourseError, match=r"^argument 0 \(lock\) cannot be sent"):
        run(lambda x: x, threading.Lock())


class Odd:
    """It can be pickled, and nobody can unpickle it."""

    def __reduce__(self):
        return int, ("no number",)


def test_what_does_not_unpickle_is_named_on_both_sides():
    why = r"\(ValueError: invalid literal for int\(\) with base 10: 'no number'\)"
    both, odd = "^ranks 0 and 1 could not unpickle", Odd()
    with pytest.raises(RankFailed, match=rf"{both} argument 1 \(Odd\) {why}: pass plain data"):
        run(lambda a, b: None, 1, odd, world_size=2)
    with pytest.raises(RankFailed, match=rf"{both} the function {why}: pass plain data"):
        run(lambda: odd, world_size=2)
    with pytest.raises(RankFailed, match=rf"^rank 0 returned a list, .* here {why}: .*data$"):
        run(lambda: [Odd()], world_size=2)


def test_what_is_too_large_to_send_is_named(monkeypatch):
    monkeypatch.setattr(pickling, "LARGEST", 2_000_000)
    large = bytes(3_000_000)
    size = r"\(TooLarge: {} MB or more, and 2 MB are allowed\): create it inside"
    with pytest.raises(CourseError, match=r"^argument 1 \(Tensor\) cannot .* " + size.format(4)):
        run(lambda a, b: None, 1, torch.zeros(1_000_000))
    with pytest.raises(CourseError, match=r"^large \(bytes\) cannot be sent .* " + size.format(3)):
        run(lambda: large)


def test_what_ranks_have_imported_of_torch_is_there_for_the_next_ones(tmp_path, monkeypatch):
    """Only of torch: the reader may change a module of his own between two runs."""
    (tmp_path / "readers_own.py").write_text("")
    monkeypatch.syspath_prepend(tmp_path)
    names = ["torch.utils.mobile_optimizer", "readers_own"]

    def known_before():
        known = [name in sys.modules for name in names]
        for name in names:
            importlib.import_module(name)
        return known

    assert run(known_before, world_size=2).results == [[False, False]] * 2
    assert run(known_before, world_size=2).results == [[True, False]] * 2
