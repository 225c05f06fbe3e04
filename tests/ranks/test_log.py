"""The diary of a rank: whole records whatever happens."""

from __future__ import annotations

import marshal
import os

from course_lib.recording.log import Reader, Writer, nameless_file


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
