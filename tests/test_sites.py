"""Which files are the reader's own."""

import sysconfig
from pathlib import Path

import pytest

from course_lib import sites

PYTHON = "python" + sysconfig.get_python_version()


@pytest.mark.parametrize(
    "library",
    [
        Path.home() / ".local/lib" / PYTHON / "site-packages/torch/nn/modules/module.py",
        "/usr/lib/python3/dist-packages/numpy/core.py",
        sysconfig.get_paths()["purelib"] + "/torch/nn/modules/module.py",
        sysconfig.get_paths()["stdlib"] + "/threading.py",
        sites.__file__,
        "<frozen importlib._bootstrap>",
    ],
)
def test_frames_of_libraries_are_not_the_readers(library):
    assert not sites.is_readers(str(library))


@pytest.mark.parametrize("own", [Path.home() / "course/work/train.py", "relative.py", "<stdin>"])
def test_files_of_the_readers_are(own):
    assert sites.is_readers(str(own))
