"""What is wrong with the Python that runs this: too old, too old a torch, or another environment.

Each says it in a sentence that ends with what to do. Read where nothing else can be imported, so
with nothing that Python 3.10 lacks.
"""

import sys
from pathlib import Path

# The course's own packages: what learners get, and what makes and grades the course.
FOR_LEARNERS = ("course_lib", "course_sim", "course_check", "course_tools", "course_exercises")
PACKAGES = (*FOR_LEARNERS, "course_staff")

OLDEST_PYTHON = (3, 11)
OLDEST_TORCH = (2, 15)
UPGRADE = "pip install --upgrade torch torchvision, then start a new kernel"


def old_python() -> str:
    """What is wrong with this Python, in a sentence; "" if nothing is."""
    if sys.version_info >= OLDEST_PYTHON:
        return ""
    return (
        f"course_lib needs Python {_join(OLDEST_PYTHON)} or later, and this is Python "
        f"{sys.version.split()[0]}: make an environment with a newer one, and install it there"
    )


def old_torch(version: str) -> str:
    """What is wrong with this version of torch, in a sentence; "" if nothing is."""
    version = version.split("+")[0]  # the rest says for which CUDA it is
    if tuple(int(part) for part in version.split(".")[:2]) >= OLDEST_TORCH:
        return ""
    return f"torch {_join(OLDEST_TORCH)} or later is needed, and this is {version}: {UPGRADE}"


def other_python() -> str:
    """The environment that ``make lab`` or the README's steps have made, where this Python is not
    the one in it: "this folder has .venv: use .venv/bin/python"; "" where there is no other."""
    course = Path(__file__).resolve().parents[1]
    for folder in (Path.cwd(), course):
        made = folder / ".venv"
        if (made / "bin" / "python").exists() and made.resolve() != Path(sys.prefix).resolve():
            where, at = ("this folder", "") if folder == Path.cwd() else (str(folder), f"{folder}/")
            return f"{where} has .venv: use {at}.venv/bin/python"
    return ""


def not_installed(package: str) -> str:
    """That this Python lacks a package, and what to do about it."""
    remedy = other_python() or f"{sys.executable} -m pip install {package}"
    return f"{package} is not installed for {sys.executable}: {remedy}"


def _join(version: "tuple[int, ...]") -> str:
    return ".".join(map(str, version))
