"""make site: the course as static pages, in build/site; open index.html, no server is needed.

    README.md, notebooks/, docs/  ──►  build/site-source  ──Sphinx──►  build/site
                                       pages, solved lessons, learners' notebooks to download

Sphinx, with MyST-NB and the theme Furo: all three are packages, so nothing is fetched while
building, and the search works from a disk, without a server. The lessons' outputs are the stored
ones; nothing is executed. A link that leads nowhere is an error.
"""

from __future__ import annotations

import argparse
import json
import re
import shutil
import sys
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import replace
from functools import partial
from pathlib import Path

from sphinx.application import Sphinx

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT), str(ROOT / "tools")]

from pipelines import pipelines  # noqa: E402  # it lies beside this file

from course_check.copies.progress import Best, Map  # noqa: E402
from course_staff.authoring.copies import drop_dead_links, with_living_links  # noqa: E402
from course_staff.authoring.wheel import make_wheel  # noqa: E402

OUT = ROOT / "build" / "site"
STEPPER = "04_ring_all_reduce"  # whose first stepper the front page shows, as it was recorded
PAGES = {  # what a link to a file of the repository leads to
    "notebooks/README.md": "glossary.md",
    "docs/errors.md": "errors.md",
    "docs/gradients.md": "gradients.md",
    "docs/rehearse.md": "rehearse.md",
    "course_staff/grading/README.md": "instructors.md",
    "course_sim/README.md": "simulator.md",
}
TO_PLAY = {"15_pipeline": "[Play GPipe and 1F1B](../pipelines.md) with other numbers."}
OWN = ["map.md", "pipelines.md"]  # pages that are made here
SETTINGS = {
    "project": "Distributed training, taught by doing it",
    "html_title": "Distributed training, taught by doing it",
    "extensions": ["myst_nb", "mathml"],  # mathml.py lies beside this file
    "html_math_renderer": "mathml",
    "myst_enable_extensions": ["dollarmath"],
    "html_theme": "furo",
    "nb_execution_mode": "off",
    "nb_code_prompt_show": "Show a solution",
    "nb_code_prompt_hide": "Hide the solution",
    "nb_render_markdown_format": "myst",
    "myst_heading_anchors": 3,
    "html_extra_path": ["extra"],
    "html_static_path": ["static"],
    "html_css_files": ["course.css"],
    "html_copy_source": False,
    "html_show_copyright": False,
    "exclude_patterns": ["extra", "course_*/**/*.md"],
}
# Code has lines of up to 100 characters, and the theme's page has room for 90: the rest is margin.
# On a narrow screen code and pictures keep their size, and scroll sideways within their box: lines
# that wrap would lose Python's indentation, and the names in a timeline could not be read.
# Pictures are drawn on white. In the dark they are turned round, and the hues are turned back; so
# is the veil over a part of one.
STYLE = """\
.math { overflow-x: auto; margin: 1em 0; }
pre { white-space: pre; overflow-x: auto; }
.cell_output .output { overflow-x: auto; }
@media (min-width: 67em) { .content { width: 51em; padding: 0 0.5em; } }
@media (max-width: 46em) {
  .cell_output img { max-width: none; min-width: 44em; }
  .cell_output .course-window img { min-width: 0; }
}
@media screen {
  body[data-theme="dark"] article :is(img, .course-window > div > div) {
    filter: invert(0.9) hue-rotate(180deg);
  }
}
@media screen and (prefers-color-scheme: dark) {
  body:not([data-theme="light"]) article :is(img, .course-window > div > div) {
    filter: invert(0.9) hue-rotate(180deg);
  }
}
@media print {
  pre { white-space: pre-wrap; overflow-wrap: anywhere; }
  details.hide > * { display: block; }
}
"""
# The theme's pages lack three things for people who hear a page or have no mouse: a heading's
# level, a way to scroll code by keys, and a button whose name is what it shows.
ACCESSIBLE = {
    '<p class="caption" role="heading">': '<p class="caption" role="heading" aria-level="2">',
    "<pre>": '<pre tabindex="0">',
    '<summary aria-label="Toggle hidden content">': "<summary>",
}
MOST_OF_A_PICTURES_TEXT = 400  # characters that stand for a picture


def main() -> int:
    parser = argparse.ArgumentParser(description="Build the course's static site.")
    parser.add_argument("--out", type=Path, default=OUT, help="where to (default: build/site)")
    out = parser.parse_args().out
    source = out.with_name(f"{out.name}-source")
    for folder in (source, out):
        shutil.rmtree(folder, ignore_errors=True)
    write_source(source)
    site = Sphinx(source, None, out, source / ".doctrees", "html", confoverrides=SETTINGS,
                  status=None, warning=sys.stderr, warningiserror=True)  # fmt: skip
    site.build()
    for page in out.rglob("*.html"):
        text = page.read_text(encoding="utf-8")
        for old, new in ACCESSIBLE.items():
            text = text.replace(old, new)
        page.write_text(text, encoding="utf-8")
    size = sum(path.stat().st_size for path in out.rglob("*") if path.is_file())
    print(f"{out / 'index.html'}: {len(list(out.rglob('*.html')))} pages, {size / 1e6:.1f} MB")
    return int(bool(site.statuscode))


def write_source(source: Path) -> None:
    """The pages that Sphinx reads, from nothing."""
    for folder in ("lessons", "extra/learners", "static"):
        (source / folder).mkdir(parents=True)
    (source / "static" / "course.css").write_text(STYLE, encoding="utf-8")
    shutil.copytree(ROOT / "figures", source / "figures", ignore=shutil.ignore_patterns("*.py"))
    shutil.copytree(ROOT / "course_tools" / "jobs", source / "course_tools" / "jobs")
    names = [path.stem for path in sorted((ROOT / "notebooks" / "solutions").glob("*.ipynb"))]
    learners = source / "extra" / "learners"
    wheel = make_wheel(ROOT, learners).name
    for name in names:
        shutil.copy(ROOT / "notebooks" / f"{name}.ipynb", learners)
        notebook = lesson(json.loads(solved(name).read_text(encoding="utf-8")), name, wheel)
        (source / "lessons" / f"{name}.ipynb").write_text(json.dumps(notebook), encoding="utf-8")
    for copy in learners.glob("*.ipynb"):
        drop_dead_links(copy)
    pages = {
        "index": front(names),
        "map": lesson_map(),
        "pipelines": to_play(),
        "glossary": "# Glossary\n" + after("## Words", read("notebooks/README.md")),
        "errors": read("docs/errors.md").replace("../notebooks/", "lessons/"),
        "gradients": read("docs/gradients.md").replace("../notebooks/", "lessons/"),
        "rehearse": read("docs/rehearse.md"),
        "instructors": read("course_staff/grading/README.md"),
        "simulator": read("course_sim/README.md"),
    }
    for name, text in pages.items():
        there = {*PAGES.values(), *OWN, *(f"lessons/{name}.ipynb" for name in names)}
        leads = partial(page_for, there)
        (source / f"{name}.md").write_text(with_living_links(text, leads), encoding="utf-8")


def lesson(notebook: dict, name: str, wheel: str) -> dict:
    """A solved lesson as a page: links as seen from here, and the learner's notebook to take."""
    notebook["cells"] = [c for c in notebook["cells"] if not c["id"].endswith("-install")]
    for cell in notebook["cells"]:
        if cell["cell_type"] == "markdown":
            text = "".join(cell["source"])
            for file, page in PAGES.items():
                text = text.replace(f"](../../{file})", f"](../{page})")
            cell["source"] = text.replace("../../", "../")
            if "●" in text:  # it states an exercise, and the map leads here
                cell["source"] = f'<span id="{cell["id"]}"></span>\n\n' + cell["source"]
        elif cell["metadata"].get("role") == "answer":  # a solution is shown when it is asked for
            cell["metadata"]["tags"] = ["hide-input"]
        if told := pictures_in_words(cell):
            cell["metadata"]["mystnb"] = {"image": {"alt": told}}
    take = f'<a href="../learners/{name}.ipynb" download>Take the notebook</a>'
    library = f'<a href="../learners/{wheel}" download>the library</a>'
    cover = notebook["cells"][0]
    cover["source"] += (
        f"\n\n{take} and {library}, into one folder, to work on it yourself; this page has it "
        "solved, with outputs."
    )
    cover["source"] += f"\n\n{TO_PLAY[name]}" if name in TO_PLAY else ""
    return notebook


def pictures_in_words(cell: dict) -> str:
    """What a cell's pictures show, as their text says it; "" if it has none."""
    shown = [output["data"] for output in cell.get("outputs", ()) if "data" in output]
    texts = ["".join(data.get("text/plain", "")) for data in shown if "image/png" in data]
    words = " ".join("; ".join(texts).split())
    short = words[:MOST_OF_A_PICTURES_TEXT].rpartition(" ")[0]
    return words if len(words) <= MOST_OF_A_PICTURES_TEXT else f"{short} …"


def front(names: list[str]) -> str:
    """The front page: the README, with a stepper to play before anything is installed."""
    readme = re.sub(r"notebooks/(\d\d_\w+\.ipynb)", r"lessons/\1", read("README.md"))
    promise, rest = readme.split("\n![", 1)
    cells = json.loads(solved(STEPPER).read_text(encoding="utf-8"))["cells"]
    outputs = [output for cell in cells for output in cell.get("outputs", ())]
    pictures = ("".join(output.get("data", {}).get("text/html", "")) for output in outputs)
    player = next(html for html in pictures if "course-steps" in html)
    titles = dict(pair[::-1] for pair in re.findall(r"\[(.+)\]\(lessons/(\w+)\.ipynb\)", rest))
    return f"""{promise}

```{{raw}} html
{player}
```

*Four ranks, as recorded in [lesson 04](lessons/{STEPPER}.ipynb). Play it.*

## Start
{after("## Start", rest)}
{contents("Lessons", (f"{name[:2]} {titles[name]} <lessons/{name}>" for name in names))}
{contents("Beside them", [*OWN, *PAGES.values()])}
"""


def lesson_map() -> str:
    """The learner's map of lessons and exercises, without what somebody has solved."""
    known = replace(Map.found(), best=defaultdict(Best))._repr_markdown_()
    table = [line for line in known.splitlines() if line.startswith("|")]
    text = "\n".join(table).replace("○\N{NO-BREAK SPACE}", "")
    goal = r"\[(\w+)\]\((\d\d_\w+)\.ipynb#cell-id=([\w-]+)\)"
    text = re.sub(goal, r'<a href="lessons/\2.html#\3">\1</a>', text)
    text = re.sub(r"\((\d\d_\w+\.ipynb)\)", r"(lessons/\1)", text)
    return f"# All lessons\n\nMinutes with the required exercise; ★ easy to ★★★ hard.\n\n{text}\n"


def to_play() -> str:
    """GPipe beside 1F1B, with stages and micro-batches to choose."""
    return f"""# Play a pipeline

One training step of a model that is cut across its layers, as the simulator recorded it: forward
takes 1 ms on a stage, backward 2 ms, and a message no time. Above is GPipe, below 1F1B, with a row
for each stage. Narrow boxes are forward passes, wide ones backward, each with the number of its
micro-batch. Where a row is hatched, the stage idles. A stroke between rows is a message, from its
send to its receive. Choose numbers, then play, or step with ← and →: at each moment you read what
the stages are doing, and how many micro-batches are alive on each.

```{{raw}} html
{pipelines()}
```

[Lesson 15](lessons/15_pipeline.ipynb) says why stages idle, and writes both.
"""


def contents(caption: str, pages: Iterable[str]) -> str:
    return "\n".join(["```{toctree}", ":hidden:", f":caption: {caption}", *pages, "```"])


def solved(name: str) -> Path:
    return ROOT / "notebooks" / "solutions" / f"{name}.ipynb"


def read(file: str) -> str:
    return (ROOT / file).read_text(encoding="utf-8")


def page_for(pages: set[str], link: str) -> str | None:
    """Where a link to a file of the repository leads on the site; None where it has no page."""
    target = PAGES.get(link, link)
    return target if target.startswith(("http", "#")) or target in pages else None


def after(heading: str, text: str) -> str:
    return text.split(f"{heading}\n", 1)[1]


if __name__ == "__main__":
    sys.exit(main())
