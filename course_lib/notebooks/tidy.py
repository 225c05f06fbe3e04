"""Outputs as they are stored: nothing of the machine, nothing of the moment, nothing oversized.

The rules for text are those of notebooks/sanitize.cfg, which nbval reads, too. Its sections named
[written …] are applied here; the others only where nbval compares.
"""

from __future__ import annotations

import base64
import configparser
import io
import re
from pathlib import Path

from nbformat import NotebookNode

_SHOWN = ("text/plain", "text/markdown", "text/latex", "text/html", "image/svg+xml", "image/png")

Rules = list[tuple[re.Pattern[str], str]]


def read_rules(path: Path) -> Rules:
    """The rules of ``path`` that apply when outputs are written."""
    config = configparser.RawConfigParser(delimiters=(":",), comment_prefixes=("#",))
    config.read_string(path.read_text(encoding="utf-8"), source=path.name)
    written = [name for name in config.sections() if name.startswith("written")]
    return [(re.compile(config[name]["regex"]), config[name]["replace"]) for name in written]


def clean_text(text: str, rules: Rules) -> str:
    for pattern, replacement in rules:
        text = pattern.sub(replacement, text)
    return text


def tidy(notebook: NotebookNode, rules: Rules) -> None:
    """Clean every output of ``notebook`` in place."""
    for cell in notebook.cells:
        cell.metadata.pop("execution", None)
        if cell.cell_type == "code":
            cell.outputs = [_clean(output, rules) for output in _joined(cell.outputs)]


def _joined(outputs: list[NotebookNode]) -> list[NotebookNode]:
    """Streams of one name in one piece: where a kernel cuts them is chance."""
    first: dict[str, NotebookNode] = {}
    kept = []
    for output in outputs:
        if output.output_type == "stream" and output.name in first:
            first[output.name].text += output.text
        else:
            if output.output_type == "stream":
                first[output.name] = output
            kept.append(output)
    return kept


def _clean(output: NotebookNode, rules: Rules) -> NotebookNode:
    if output.output_type == "stream":
        output.text = clean_text(output.text, rules)
    elif output.output_type == "error":
        output.evalue = clean_text(output.evalue, rules)
        output.traceback = [clean_text(line, rules) for line in output.traceback]
    else:
        output.metadata = {k: v for k, v in output.metadata.items() if k in _SHOWN}  # display sizes
        output.data = {kind: output.data[kind] for kind in _SHOWN if kind in output.data}
        for kind, value in output.data.items():
            if kind == "image/png":
                output.data[kind] = smaller_png(value)
            else:
                output.data[kind] = clean_text(value, rules)
    return output


def smaller_png(encoded: str) -> str:
    """The picture with a palette of 256 colours, where that saves space: charts need no more."""
    from PIL import Image

    raw = base64.b64decode(encoded)
    with Image.open(io.BytesIO(raw)) as picture:
        if getattr(picture, "is_animated", False):
            return encoded
        flat = Image.new("RGB", picture.size, "white")
        flat.paste(picture, mask=picture.getchannel("A") if "A" in picture.getbands() else None)
    packed = io.BytesIO()
    flat.quantize(256, dither=Image.Dither.NONE).save(packed, "PNG", optimize=True)
    best = min(raw, packed.getvalue(), key=len)
    return base64.b64encode(best).decode() + "\n"
