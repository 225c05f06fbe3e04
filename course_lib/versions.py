"""The oldest Python and the oldest torch that the course runs on, and what to do about older ones.

Read where nothing else can be imported, so with nothing that Python 3.10 lacks.
"""

import sys

OLDEST_PYTHON = (3, 11)
OLDEST_TORCH = (2, 15)
UPGRADE = "pip install --upgrade torch torchvision, then start a new kernel"


def old_python() -> str:
    """What is wrong with this Python, in a sentence; "" if nothing is."""
    if sys.version_info >= OLDEST_PYTHON:
        return ""
    return (
        f"course_lib needs Python {_dotted(OLDEST_PYTHON)} or later, and this is Python "
        f"{sys.version.split()[0]}: make an environment with a newer one, and install it there"
    )


def old_torch(version: str) -> str:
    """What is wrong with this version of torch, in a sentence; "" if nothing is."""
    version = version.split("+")[0]  # the rest says for which CUDA it is
    if tuple(int(part) for part in version.split(".")[:2]) >= OLDEST_TORCH:
        return ""
    return f"torch {_dotted(OLDEST_TORCH)} or later is needed, and this is {version}: {UPGRADE}"


def _dotted(version: "tuple[int, ...]") -> str:
    return ".".join(map(str, version))
