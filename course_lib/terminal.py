"""What ranks print, and what they would ask for: the terminal, as both engines stand in for it."""

from __future__ import annotations

import sys


def show(text: str) -> None:
    """Print from the cell's own thread, where Jupyter and nbval both look; what the stream cannot
    show is written as its code.
    """
    if text:
        encoding = getattr(sys.stdout, "encoding", None) or "utf-8"
        sys.stdout.write(text.encode(encoding, "backslashreplace").decode(encoding))
        sys.stdout.flush()


def arguments() -> list[str]:
    """The script's name and arguments; only a name in a notebook, whose kernel has its own."""
    is_script = hasattr(sys.modules["__main__"], "__file__")
    return list(sys.argv) if is_script else sys.argv[:1]
