"""Which files are the reader's own."""

import sysconfig
from pathlib import Path

import pytest

from course_lib import user_code

PYTHON = "python" + sysconfig.get_python_version()


@pytest.mark.parametrize(
    "library",
    [
        Path.home() / ".local/lib" / PYTHON / "site-packages/torch/nn/modules/module.py",
        "/usr/lib/python3/dist-packages/numpy/core.py",
        sysconfig.get_paths()["purelib"] + "/torch/nn/modules/module.py",
        sysconfig.get_paths()["stdlib"] + "/threading.py",
        user_code.__file__,
        "<frozen importlib._bootstrap>",
    ],
)
def test_frames_of_libraries_are_not_the_readers(library):
    assert not user_code.is_user_code(str(library))


@pytest.mark.parametrize("own", [Path.home() / "course/work/train.py", "relative.py", "<stdin>"])
def test_files_of_the_readers_are(own):
    assert user_code.is_user_code(str(own))
