"""The diary of a rank: whole records whatever happens."""

from __future__ import annotations

import marshal
import os

import torch

from course_lib.recording import recorder
from course_lib.recording.log import CALL_FIELDS, Reader, Writer, nameless_file


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


def test_a_call_is_written_down_with_each_field_in_its_place(monkeypatch):
    """See Note [An issued record]: the recorder writes by position what readers read by name."""
    fd = nameless_file("test")
    call = recorder.CurrentCall()
    call.tag, call.reduce_op = 7, "MAX"
    monkeypatch.setattr(recorder, "current_call", call)
    monkeypatch.setattr(recorder, "_find_caller", lambda: (None, ""))
    monkeypatch.setattr(recorder, "sharded_module", lambda frame: "layers.3")
    recording = recorder.Recorder(Writer(fd), "cpu")
    monkeypatch.setattr(recording, "now", lambda: 0.5)
    short, long = torch.ones(2, dtype=torch.int16), torch.ones(6, dtype=torch.int16)
    recording.write_call("reduce_scatter", "group", 3, [long[:2], long[2:]], [short], is_async=True)
    (record,) = Reader(fd).read()
    os.close(fd)
    assert record[0] == "issued"
    assert dict(zip(CALL_FIELDS, record[1:], strict=True)) == {
        "op": "reduce_scatter",
        "peer": 3,
        "group": "group",
        "nbytes": 12,
        "dtype": "int16",
        "shape": (2,),
        "issued": 0.5,
        "completed": None,
        "line": -1,
        "tag": 7,
        "reduce_op": "MAX",
        "async_op": True,
        "waited": True,
        "bytes_in": 12,
        "bytes_out": 4,
        "contiguous": True,
        "seq": 0,
        "called": None,
        "in_splits": (2, 4),
        "out_splits": (2, 2),
        "stream": None,
        "within": "layers.3",
    }
