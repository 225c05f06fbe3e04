"""What the READMEs say is so: examples, links of every page, commands, the table of lessons."""

import os
import re
import subprocess
import sys
import tempfile
from functools import partial
from pathlib import Path

import nbformat
import pytest
from nbclient import NotebookClient

from course_lib.__main__ import parser
from course_staff.authoring.execute import listening_in

ROOT = Path(__file__).parents[1]
PACKAGE = ROOT / "course_lib"
README, LIBRARY = (folder / "README.md" for folder in (ROOT, PACKAGE))
PARTS = ("", "docs", "notebooks", "notebooks/solutions", "course_*", "course_*/*", "tests/soak")
PAGES = [
    path
    for part in PARTS
    for kind in ("md", "ipynb")
    for path in sorted(ROOT.glob(f"{part}/*.{kind}".lstrip("/")))
]


# Where somebody types what a page says. CHANGELOG tells what there was.
TYPED = [
    page
    for page in sorted(ROOT.glob("**/*.md"))
    if page.relative_to(ROOT).parts[0] not in (".venv", "build", "work", "CHANGELOG.md")
]
_BLOCK = re.compile(r"^```(\w*)\n(.*?)^```", re.S | re.M)
_PROGRAM = re.compile(r"(?:^|[;&|] )(python3?|pytest|pip) ")


def typed(page: Path) -> list[str]:
    """The lines of shell on a page, and what looks like one within its text."""
    text = page.read_text(encoding="utf-8")
    shell = [block for language, block in _BLOCK.findall(text) if language == "bash"]
    lines = [line for block in shell for line in block.splitlines()]
    lines += re.findall(r"`([^`\n]+)`", _BLOCK.sub("", text))
    return [line.partition("  #")[0].strip() for line in lines]


@pytest.mark.parametrize("page", TYPED, ids=lambda page: str(page.relative_to(ROOT)))
def test_no_command_asks_for_an_environment_that_is_active(page: Path):
    """A bare ``python`` is another Python than the course's wherever nobody has activated it."""
    bare = [line for line in typed(page) if _PROGRAM.search(line)]
    assert [line for line in bare if line != "python3 -m venv .venv"] == []


def test_a_bare_python_is_seen(tmp_path: Path):
    page = tmp_path / "page.md"
    page.write_text("`python -m course_lib doctor`\n```bash\nmake lab\ncd x && pytest -q\n```\n")
    assert [bool(_PROGRAM.search(line)) for line in typed(page)] == [False, True, True]


def test_every_command_of_the_course_is_one():
    lines = [line for page in TYPED for line in typed(page)]
    words = [line.split("-m course_lib ")[1].split() for line in lines if "-m course_lib " in line]
    assert len(words) > 8
    for given in words:
        if "…" not in "".join(given):
            assert parser().parse_args(given).command == given[0]


def block(language: str, page: Path = README) -> str:
    (found,) = re.findall(rf"```{language}\n(.*?)```", page.read_text(), re.S)
    return found


def links(page: Path) -> list[str]:
    """Those that lead to a file of the course."""
    text = page.read_text()
    if page.suffix == ".ipynb":
        cells = nbformat.reads(text, as_version=4).cells
        text = "\n".join(cell.source for cell in cells if cell.cell_type == "markdown")
    found = re.findall(r"""(?:\]\(|(?:src|href)=["'])([^)"'#\s]+)""", text)
    return [
        link for link in found if "://" not in link and not link.startswith(("mailto:", "data:"))
    ]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_link_leads_somewhere(page: Path):
    assert [link for link in links(page) if not (page.parent / link).exists()] == []


@pytest.mark.slow
def test_the_example_ends_as_shown():
    notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(block("python"))])
    client = partial(NotebookClient, notebook, timeout=120, allow_errors=True)
    with tempfile.TemporaryDirectory() as short:
        client(resources={"metadata": {"path": str(ROOT)}}, config=listening_in(short)).execute()
    (error,) = (o for o in notebook.cells[0].outputs if o.output_type == "error")
    assert "\n".join(error.traceback) == block("text").strip()


@pytest.mark.slow
def test_the_plain_launcher_of_the_library_runs(tmp_path: Path):
    script = tmp_path / "plain.py"
    script.write_text(block("python", LIBRARY))
    done = subprocess.run([sys.executable, script], capture_output=True, text=True, timeout=120)
    assert done.stdout == "[[1.0, 1.0, 1.0], [1.0, 1.0, 1.0]]\n", done.stderr


def test_the_tables_have_every_file_and_no_other():
    listed = [link for link in links(README) if re.fullmatch(r"notebooks/\d\d_\w+\.ipynb", link)]
    assert listed == sorted(
        str(path.relative_to(ROOT)) for path in ROOT.glob("notebooks/[0-9]*.ipynb")
    )
    rooms = ("launching", "recording", "diagnosis")
    files = {f"{room}/{path.name}" for room in rooms for path in (PACKAGE / room).glob("*.py")}
    assert files - set(links(LIBRARY)) == {f"{room}/__init__.py" for room in rooms}


def test_make_grade_passes_on_what_the_pages_say():
    page = (ROOT / "course_staff" / "grading" / "README.md").read_text()
    commands = re.findall(r"make grade ([A-Z][^\n`]+)", README.read_text() + page)
    assert any("MANIFEST=" in command for command in commands)
    outside = {name: value for name, value in os.environ.items() if "MAKE" not in name}
    for command in [*commands, "SUBMISSIONS=inbox/ POLICY=policy.toml ROSTER=roster.csv"]:
        given = dict(word.split("=") for word in command.split())
        words = ["make", "-n", "-o", "requirements.txt", "grade", *command.split()]
        done = subprocess.run(words, cwd=ROOT, env=outside, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
        line = done.stdout.replace("\\\n", " ").strip().splitlines()[-1]
        args = parser().parse_args(line.split()[3:])
        assert args.submissions == [given.pop("SUBMISSIONS")]
        assert args.out == given.pop("OUT", "build/grades")
        asked = {name: value for name, value in vars(args).items() if name.upper() in given}
        assert asked == {name.lower(): value for name, value in given.items()}


@pytest.mark.slow
def test_nbval_by_itself_finds_the_lessons_without_our_plugins():
    """By nothing but what requirements.txt brings. What it then finds: test_lessons.py."""
    (command,) = re.findall(r"`\S+python (-m pytest --nbval [^`]+)`", README.read_text())
    alone = ["--disable-plugin-autoload", "-p", "nbval.plugin", "-p", "no:cacheprovider"]
    words = [sys.executable, *command.split(), *alone, "--collect-only", "-q"]
    done = subprocess.run(words, cwd=ROOT, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stdout + done.stderr
    found = set(re.findall(r"^notebooks/solutions/(\w+\.ipynb)", done.stdout, re.M))
    assert found == {path.name for path in ROOT.glob("notebooks/[0-9]*.ipynb")}
