"""The diary of a rank: whole records whatever happens, and the truth about what had no room."""

from __future__ import annotations

import marshal
import os

import torch.distributed as dist

from course_lib import run, span
from course_lib.ranks import recorder
from course_lib.ranks.log import Reader, Writer, nameless_file


def test_a_reader_finds_whole_records_while_they_are_written():
    fd = nameless_file("test")
    try:
        writer, reader = Writer(fd), Reader(fd)
        assert list(reader.read()) == []
        for number in range(2000):
            writer.append("span", number, "x" * 80)
            if number % 1000 == 0:
                assert list(reader.read())[-1] == ("span", number, "x" * 80)
        os.truncate(fd, os.fstat(fd).st_size - 1)  # as if its last byte were not written yet
        assert list(reader.read())[-1][1] == number - 1
        os.pwrite(fd, marshal.dumps(("span", number, "x" * 80))[-1:], os.fstat(fd).st_size)
        assert list(reader.read()) == [("span", number, "x" * 80)]
    finally:
        os.close(fd)


def test_a_run_that_says_too_much_tells_that_its_trace_is_cut_short():
    def chatter() -> int:
        recorder.active_recorder._log._room = 1 << 18
        for _ in range(300):
            dist.barrier()
            with span("x" * 1000):
                pass
        return 300

    said = run(chatter, world_size=1)
    assert said.results == [300]
    assert said.trace.note == "the log was full: later events are missing"
    assert 100 < len(said.trace.events) < 300
