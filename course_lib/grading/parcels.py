"""The memory of a call's tensors, carried to the other end, kept in step there, and carried back.

A call names some tensors; those that lie in one storage share it at the other end, too, so what
is one buffer here is one buffer there. Only the stretch that the tensors touch travels.

    rank                                judge
    Parcel.of(tensors) ── sent ──────►  Parcel.opened: tensors like these, in memory of its own
    changed()          ── at wait() ─►  update()      (written to too early? then here too)
    update()           ◄───────────────  changed()     (what has arrived)
"""

from __future__ import annotations

import base64
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from course_lib.grading.frames import Malformed
from course_lib.grading.plain import DTYPES, _sizes, _text, memory, span, window

MOST_BYTES = 8 << 20  # of a call, in memory and laid out
_NAMES = {dtype: name for name, dtype in DTYPES.items()}


class Parcel:
    """Some tensors and their pieces of memory."""

    def __init__(self, tensors: list[Tensor], pieces: list[tuple[Any, int, int]]) -> None:
        self.tensors = tensors
        self._pieces = pieces  # (storage, first byte, bytes)
        self._known = [memory(*piece) for piece in pieces]

    @property
    def nbytes(self) -> int:
        return sum(count for _, _, count in self._pieces)

    # -- beside the student's code -------------------------------------------------------------

    @classmethod
    def of(cls, tensors: Sequence[Tensor]) -> tuple[Parcel, dict[str, Any]]:
        """The parcel, and what to send of it."""
        with torch._C.DisableTorchFunctionSubclass():
            plain = [t.detach().as_subclass(Tensor) for t in tensors]
        spans: dict[int, list[int]] = {}
        for t in plain:
            first, stop = (
                n * t.element_size() for n in span(t.shape, t.stride(), int(t.storage_offset()))
            )
            if stop > first:
                known = spans.setdefault(t.untyped_storage()._cdata, [first, stop])
                known[:] = [min(known[0], first), max(known[1], stop)]
        numbers = {key: number for number, key in enumerate(spans)}
        storages = {t.untyped_storage()._cdata: t.untyped_storage() for t in plain}
        pieces = [(storages[key], first, stop - first) for key, (first, stop) in spans.items()]
        parcel = cls(list(plain), pieces)
        rows = []
        for t in plain:
            at = numbers.get(t.untyped_storage()._cdata, -1)
            empty = t.numel() == 0
            first = 0 if empty or at < 0 else pieces[at][1]
            offset = 0 if empty else t.storage_offset() * t.element_size() - first
            kind = [_NAMES[t.dtype], list(t.shape), list(t.stride())]
            rows.append([-1 if empty else at, *kind, offset])
        return parcel, {"pieces": [_text_of(b) for b in parcel._known], "tensors": rows}

    # -- with the judge --------------------------------------------------------------------------

    @classmethod
    def opened(cls, data: Any) -> Parcel:
        """Tensors of the judge's own, as described; Malformed where nothing is."""
        try:
            blocks = [_bytes_of(text) for text in data["pieces"]]
            if sum(map(len, blocks)) > MOST_BYTES or len(data["tensors"]) > 4096:
                raise Malformed("a call with too much memory")
            storages = [torch.frombuffer(bytearray(b), dtype=torch.uint8) for b in blocks]
            tensors = [_tensor(row, storages) for row in data["tensors"]]
            if sum(t.nbytes for t in tensors) > MOST_BYTES:  # strides of 0 make much of little
                raise Malformed("a call with too much memory")
        except (TypeError, ValueError, KeyError, IndexError, RuntimeError) as error:
            raise Malformed(f"a call whose tensors are none: {type(error).__name__}") from None
        return cls(tensors, [(s.untyped_storage(), 0, len(s)) for s in storages])

    # -- at both ends ------------------------------------------------------------------------------

    def changed(self) -> dict[str, str]:
        """What is no longer as the other end knows it."""
        out = {}
        for number, piece in enumerate(self._pieces):
            now = memory(*piece)
            if now != self._known[number]:
                out[str(number)] = _text_of(now)
                self._known[number] = now
        return out

    def update(self, news: Any) -> None:
        """Write what the other end has."""
        if type(news) is not dict:
            raise Malformed("news that are none")
        for key, text in news.items():
            number, data = int(key), _bytes_of(text)
            storage, first, count = self._pieces[number]
            if len(data) != count:
                raise Malformed("news of another size")
            window(storage, first, count).copy_(
                torch.frombuffer(bytearray(data), dtype=torch.uint8)
            )
            self._known[number] = data


def _tensor(row: Any, storages: list[Tensor]) -> Tensor:
    at, name, shape, stride, offset = row
    dtype, shape, stride = DTYPES[name], _sizes(shape), _sizes(stride)
    if at == -1:
        if 0 not in shape:
            raise Malformed("a tensor without memory")
        return torch.empty(shape, dtype=dtype)
    (offset,) = _sizes([offset])
    size = torch.empty(0, dtype=dtype).element_size()
    storage = storages[at]
    _, stop = span(shape, stride, 0)
    if offset % size or offset + stop * size > len(storage) or 0 in shape:
        raise Malformed("a tensor that does not fit into its memory")
    return torch.empty(0, dtype=dtype).set_(
        storage.untyped_storage(), offset // size, tuple(shape), tuple(stride)
    )


def _text_of(data: bytes) -> str:
    return base64.b64encode(data).decode()


def _bytes_of(text: Any) -> bytes:
    return base64.b64decode(_text(text, MOST_BYTES * 2), validate=True)
