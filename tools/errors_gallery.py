"""Run the examples of docs/errors.md and docs/gradients.md, and write below each what was said.

    python tools/errors_gallery.py                      write the errors' page
    python tools/errors_gallery.py docs/gradients.md    write another one
    python tools/errors_gallery.py --check              compare, change nothing
    python tools/errors_gallery.py --check --only 3     compare only every third example

An example is a block of Python on the page; the block of text after it is what a notebook shows
for this cell, in IPython. Nothing in it was typed: to add an example, write its prose and code,
with an empty block of text. Every text is the same each time, which is a promise of the library as
much as of this page.
"""

from __future__ import annotations

import argparse
import contextlib
import difflib
import io
import re
import sys
from collections.abc import Sequence
from itertools import count
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PAGE = ROOT / "docs" / "errors.md"

EXAMPLE = re.compile(r"(?<=^```python\n)(.*?)^```\n\n```text\n(.*?)(?=^```)", re.M | re.S)
HEADING = re.compile(r"^## (\w+)$|^### (.+)$", re.M)


class Notebook:
    """Runs cells as a notebook does, each in a fresh namespace."""

    PREPARED = "import torch\nimport torch.distributed as dist\nfrom course_lib import *\n"

    def __init__(self) -> None:
        from IPython.core.interactiveshell import InteractiveShell
        from traitlets.config import Config

        settings = Config()
        settings.HistoryManager.enabled = False  # writes no file
        self._shell = InteractiveShell.instance(config=settings)

    def said_of(self, code: str) -> str:
        """The text that a notebook shows for this cell: of an error, or of a result."""
        self._shell.reset(new_session=True)
        hidden = io.StringIO()  # what ranks print is not what this page is about
        with contextlib.redirect_stdout(hidden), contextlib.redirect_stderr(hidden):
            self._shell.run_cell(self.PREPARED)
            result = self._shell.run_cell(code.strip(), store_history=True)
        error = result.error_in_exec
        if error is None:
            return repr(result.result)
        if not hasattr(error, "_render_traceback_"):
            return repr(error)
        return "\n".join(error._render_traceback_())


def provoked(page: str, every: int = 1) -> str:
    """The page with what its examples say now, all of them or one in ``every``.

    Where a chapter is a class of errors, fails where an error is not of this class.
    """
    notebook, numbers = Notebook(), count()

    def as_said_now(found: re.Match[str]) -> str:
        if next(numbers) % every:
            return found[0]
        headings = HEADING.findall(page[: found.start()])
        chapter, title = [name for name, _ in headings if name][-1:], headings[-1:]
        text = notebook.said_of(found[1])
        if chapter and not text.startswith(f"{chapter[0]}: "):
            raise SystemExit(f"{title[0][1]}: this is no {chapter[0]}:\n{text}")
        return f"{found[1]}```\n\n```text\n{text}\n"

    return EXAMPLE.sub(as_said_now, page)


def main(argv: Sequence[str] | None = None) -> int:
    options = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    options.add_argument("--check", action="store_true", help="compare, change nothing")
    options.add_argument("--only", type=int, default=1, metavar="N", help="every N-th example")
    options.add_argument("page", nargs="?", type=Path, default=PAGE)
    asked = options.parse_args(argv)
    written = asked.page.read_text(encoding="utf-8")
    now = provoked(written, asked.only)
    if not asked.check:
        asked.page.write_text(now, encoding="utf-8")
    elif now != written:
        print(*difflib.unified_diff(written.splitlines(), now.splitlines(), n=1), sep="\n")
        return 1
    return 0


if __name__ == "__main__":
    sys.path.insert(0, str(ROOT))
    sys.exit(main())
