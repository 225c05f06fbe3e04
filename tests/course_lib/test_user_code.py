"""Which files are the reader's own."""

import sys
import sysconfig
from dataclasses import dataclass, field
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


@pytest.mark.parametrize("name", ["<stdin>", "<command-12>", "<string>", "Untitled-1", "", "my.py"])
@pytest.mark.parametrize("module", ["__main__", "answer", None])
def test_input_is_the_readers_whatever_a_front_end_calls_it(name, module):
    assert user_code.is_user_code(name, module)


def test_code_that_a_library_makes_for_itself_is_not_the_readers():
    folder = "/tmp/torchinductor_me/ab/cab.py"  # where torch's compiler puts what it has made
    assert not user_code.is_user_code(folder, "torch._inductor.runtime.compile_tasks.cab")
    assert not user_code.is_user_code("<string>", "torch.fx.graph")
    assert not user_code.is_user_code("<string>", "collections")
    assert user_code.is_user_code(folder, "__main__")


def caller() -> str:
    """The function of the reader's, as which this file counts, that has called."""
    return user_code.line_of(user_code.find_frame(sys._getframe(1))).function


def test_frames_that_libraries_make_for_the_reader_are_passed_over():
    @dataclass
    class Config:
        found: str = field(default_factory=caller)

    def made_by_dataclass():
        return Config().found

    assert made_by_dataclass() == "made_by_dataclass"


def test_a_script_of_this_library_is_the_readers_where_watch_starts_it():
    path = str(Path(user_code.__file__).parents[1] / "course_tools" / "jobs" / "train.py")
    assert not user_code.is_user_code(path)
    user_code.claim_place(path)
    assert user_code.is_user_code(path)
    user_code.claim(print)  # nobody's place any more
    assert not user_code.is_user_code(path)


@pytest.mark.parametrize("end", ["", "/"])
def test_where_pip_has_put_a_package_beside_the_readers_files(end, tmp_path, monkeypatch):
    (tmp_path / "lib-1.0.dist-info").mkdir()
    record = "lib/__init__.py,sha256=0,1\nalone.py,,\n"
    (tmp_path / "lib-1.0.dist-info/RECORD").write_text(record)
    monkeypatch.syspath_prepend(f"{tmp_path}{end}")
    names = ("lib/part.py", "alone.py", "library.py", "train.py", "own/lib/part.py")
    mine = [name for name in names if user_code.is_user_code(str(tmp_path / name))]
    assert mine == ["library.py", "train.py", "own/lib/part.py"]


def test_files_of_one_name_are_told_apart_by_their_folders(monkeypatch):
    monkeypatch.setattr(user_code, "path_parts", 3)
    files = ("/home/me/job/ring/comm.py", "/home/me/job/tree/comm.py")
    shown = [user_code.line_at(file, 3, "commit").where for file in files]
    assert shown == ["job/ring/comm.py", "job/tree/comm.py"]
