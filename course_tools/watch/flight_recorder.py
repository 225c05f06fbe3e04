"""Reads the dumps of torch's own Flight Recorder, and says which rank has not made which call.

torch keeps each rank's last calls (``TORCH_FR_BUFFER_SIZE``). On a timeout, or when asked, it dumps
them into one file per rank: ``TORCH_FR_DUMP_TEMP_FILE``, followed by the rank's number. A dump is
plain data, as a pickle or as JSON. No other pickle is opened here.

>>> print(judge(dumps_in(Path("/shared/dumps"))))

A dump knows less than a log of ``watch``. It has the calls with their sizes and dtypes, whether
each is done, and lines if stack traces were asked for. It has no root and no reduce op, and does
not say who *waits*.
Format: torch/csrc/distributed/c10d/FlightRecorder.hpp, version 2.10 (torch 2.15).
"""

from __future__ import annotations

import json
import math
import pickle
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch

from course_lib.collectives import COLLECTIVES, OP_OF_METHOD
from course_lib.diagnosis.deadlock import find_lost
from course_lib.diagnosis.lines import call_text, error_text, ranks_text
from course_lib.diagnosis.matching import CallMatcher
from course_lib.trace import Event, Line
from course_lib.user_code import line_at

_INTEGERS = {"Long": "int64", "Int": "int32", "Short": "int16", "Char": "int8", "Byte": "uint8"}
_FLOATS = {"Float": "float32", "Double": "float64", "Half": "float16"}
_DTYPES = _INTEGERS | _FLOATS  # C++ names in torch's words; the other names differ in case alone
_Groups = dict[str, tuple[int, ...]]
_Entry = dict[str, Any]
_HEAD = 100_000  # bytes, at the beginning of a file, in which a dump can be recognized


def dumps_in(folder: Path) -> list[Path]:
    """The dumps among a folder's files, in the order of their ranks."""
    files = (path for path in folder.iterdir() if path.is_file() and _rank_of(path) is not None)
    return sorted(filter(_is_dump, files), key=lambda path: (_rank_of(path), path.name))


def _is_dump(path: Path) -> bool:
    with path.open("rb") as file:
        head = file.read(_HEAD)
    return head.startswith((b"\x80", b"{")) and b"comm_lib_version" in head


def _rank_of(path: Path) -> int | None:
    """The rank, with which the name of its dump ends: ``dump_3``, ``dump_3.json``."""
    found = re.search(r"(\d+)(\.json|\.pickle|\.pkl)?$", path.name)
    return int(found[1]) if found else None


class _PlainUnpickler(pickle.Unpickler):
    """Makes plain containers alone: a pickle that names a class or a function is no dump."""

    def find_class(self, module: str, name: str) -> Any:
        raise pickle.UnpicklingError(f"it asks for {module}.{name}, which no dump does")


@dataclass
class _Dump:
    """The dump of one rank, and the Events that are made of its entries."""

    rank: int
    entries: list[_Entry]
    config: dict[str, dict[str, str]]
    events: list[Event] = field(default_factory=list)
    under_way: list[Event] = field(default_factory=list)

    @property
    def is_cut(self) -> bool:
        """Whether its first calls are lost: torch keeps only so many."""
        return bool(self.entries) and self.entries[0]["record_id"] > 0


def _read_dump(path: Path) -> _Dump:
    with path.open("rb") as file:
        is_json = file.read(1) == b"{"
        file.seek(0)
        content = json.load(file) if is_json else _PlainUnpickler(file).load()
    entries = sorted(content.get("entries", []), key=lambda e: e["record_id"])
    return _Dump(_rank_of(path) or 0, entries, content["pg_config"])


def judge(paths: list[Path]) -> str:
    """Say what these dumps, one per rank, tell about their job, and what they cannot tell.

    If a rank has two, the later one counts.
    """
    read, said = {}, []
    for path in sorted(paths, key=lambda path: path.stat().st_mtime):
        try:
            read[_rank_of(path)] = _read_dump(path)
        except (pickle.UnpicklingError, ValueError, KeyError, EOFError, TypeError) as error:
            said.append(f"{path.name} is no dump that can be read: {error}")
    dumps = [dump for _, dump in sorted(read.items())]
    if dumps:
        matcher = CallMatcher()
        matcher.groups = _find_groups(dumps)
        _match_calls(dumps, matcher)
        said = [*_report(dumps, matcher), *said, *_warn(dumps, matcher.groups)]
    return "\n".join(said)


# ---- from entries to calls -----------------------------------------------------------------------


def _find_groups(dumps: Sequence[_Dump]) -> _Groups:
    """Each group's ranks, as far as they are known.

    gloo's dumps give no ranks. The first group has all of them; of another group, those are known
    that called something in it.
    """
    known: dict[str, set[int]] = {}
    listed = {g: json.loads(c["ranks"]) for d in dumps for g, c in d.config.items()}
    world = {*(d.rank for d in dumps), *(r for ranks in listed.values() for r in ranks)}
    for dump in dumps:
        for name, description in (entry["process_group"] for entry in dump.entries):
            seen = known.setdefault(name, {*listed.get(name, ())})
            if name not in listed:
                seen |= world if description == "default_pg" else {dump.rank}
    return {name: tuple(sorted(ranks)) for name, ranks in known.items()}


def _match_calls(dumps: Sequence[_Dump], matcher: CallMatcher) -> None:
    """Give the calls to the matcher; if first calls are lost, from where all dumps have them."""
    cut = any(dump.is_cut for dump in dumps)
    starts = {name: _find_first_known(name, dumps) for name in matcher.groups}
    for dump in dumps:
        for entry in dump.entries:
            is_early = entry["collective_seq_id"] < starts[entry["process_group"][0]]
            # Messages meet by counting them, so after a loss nobody knows which meets which.
            if (cut if entry["is_p2p"] else is_early) or _call_name(entry) == "coalesced":
                continue
            dump.events.append(event := _make_event(entry, dump, matcher.groups))
            if not _is_done(entry):
                dump.under_way.append(event)
            matcher.add(event)


def _find_first_known(group: str, dumps: Sequence[_Dump]) -> float:
    """The number of a group's first collective that every dump still has."""
    first = 0.0
    for dump in (dump for dump in dumps if dump.is_cut):
        own = (e["collective_seq_id"] for e in dump.entries if e["process_group"][0] == group)
        first = max(first, next(own, math.inf))
    return first


def _is_done(entry: _Entry) -> bool:
    """gloo leaves a call "scheduled", and retires it when it is done; NCCL also at a timeout."""
    return (entry["retired"] and _is_of_gloo(entry)) or entry["state"] == "completed"


def _is_of_gloo(entry: _Entry) -> bool:
    return entry["profiling_name"].startswith("gloo:")


def _call_name(entry: _Entry) -> str:
    """``all_reduce`` of "gloo:all_reduce", ``send`` of "nccl:send 0->1"."""
    return entry["profiling_name"].rpartition(":")[2].partition(" ")[0]


def _find_op(entry: _Entry) -> str:
    """The op as the reader knows it: gloo renames some, but torch's own frames have the name."""
    name = "barrier" if "barrier" in _call_name(entry) else _call_name(entry)
    frames = entry.get("frames", ())
    called = (f["name"] for f in frames if f["filename"].endswith("distributed_c10d.py"))
    return next((op for op in called if op in COLLECTIVES), OP_OF_METHOD.get(name, name))


def _make_event(entry: _Entry, dump: _Dump, groups: _Groups) -> Event:
    group = entry["process_group"][0]
    read, written = entry["input_sizes"], entry["output_sizes"]
    dtypes = entry["input_dtypes"] or entry["output_dtypes"]
    dtype = _DTYPES.get(dtypes[0], dtypes[0].lower()) if dtypes else None
    size = getattr(getattr(torch, dtype or "", None), "itemsize", 1)
    bytes_in, bytes_out = (size * sum(map(math.prod, sizes)) for sizes in (read, written))
    peer = None
    if ends := re.search(r"(\d+)(->|<-)(\d+)$", entry["profiling_name"]):  # ranks of the group
        peer = groups[group][int(ends[3])]
    return Event(
        dump.rank,
        _find_op(entry),
        peer,
        group,
        max(bytes_in, bytes_out),
        dtype,
        tuple((read or written or [()])[0]),
        entry["time_created_ns"] / 1e9,
        None,
        _find_line(entry),
        bytes_in=bytes_in,
        bytes_out=bytes_out,
        seq=len(dump.events),
    )


def _find_line(entry: _Entry) -> Line | None:
    """The reader's line, if the dump has a stack."""
    frames = entry.get("frames", ())
    lines = (line_at(f["filename"], f["line"], f["name"]) for f in frames)
    return next(filter(None, lines), None)


# ---- what is said --------------------------------------------------------------------------------


def _report(dumps: Sequence[_Dump], matcher: CallMatcher) -> Iterator[str]:
    """Report calls that do not fit, or whose counterparts are missing."""
    if mismatch := matcher.mismatch():
        yield f"Mismatch: {mismatch}"
        return
    stuck = {d.rank: e for d in dumps for e in reversed(d.under_way) if matcher.find_missing(e)}
    if not stuck:
        calls = sum(len(dump.events) for dump in dumps)
        yield f"{calls} calls in the dumps of {_ranks(dumps)}; each met its counterpart."
        return
    absent = {rank: matcher.find_missing(event) for rank, event in stuck.items()}
    awaited = sorted({rank for ranks in absent.values() for rank in ranks})
    rows = [
        (f"rank {r} has called {call_text(e)}; {ranks_text(absent[r])} did not", e.line)
        for r, e in sorted(stuck.items())
    ]
    rows += [
        (f"rank {d.rank}'s last call is {call_text(d.events[-1])}", d.events[-1].line)
        for d in dumps
        if d.rank in awaited and d.rank not in stuck and d.events
    ]
    advice = f"Look for what keeps {ranks_text(awaited)} from making that call."
    if lost := find_lost(matcher, stuck, ()):
        advice = f"If each waits for its call, {ranks_text(lost)} wait for one another: a deadlock."
    yield error_text("Calls under way lack their counterparts.", rows, advice)


def _ranks(dumps: Sequence[_Dump]) -> str:
    return ranks_text([dump.rank for dump in dumps])


def _warn(dumps: Sequence[_Dump], groups: _Groups) -> Iterator[str]:
    """Warn of what such dumps cannot tell."""
    entries = [entry for dump in dumps for entry in dump.entries]
    world = {rank for ranks in groups.values() for rank in ranks}
    if without := world - {dump.rank for dump in dumps}:
        yield f"There is no dump of {ranks_text(without)}."
    if cut := [dump for dump in dumps if dump.is_cut]:
        kept = max(len(dump.entries) for dump in cut)
        yield (
            f"{_ranks(cut)} kept only the last {kept} calls. So messages were not matched, and "
            "collectives only from the first that all ranks kept. TORCH_FR_BUFFER_SIZE keeps more."
        )
    if any(map(_is_of_gloo, entries)):
        yield (
            "gloo's dumps have no send and no recv. Of a group other than the first they know only "
            "those members that have called something."
        )
    if not any("frames" in entry for entry in entries):
        yield "These dumps have no stacks, so no lines can be named."
    yield "Flight Recorder's dumps have no roots and no reduce ops. They do not say who waits."
