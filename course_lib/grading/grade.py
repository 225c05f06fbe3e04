"""python -m course_lib grade SUBMISSION.ipynb… --out DIR

    submission ── answers ──► transplant ── pytest --nbval ──► records ── marks ──► OUT
                   (text)      (strings)     (judge's kernel)   (one an exercise)

Each submission is graded in a folder of its own, by a pytest of its own; whatever becomes of it
costs no other one anything. A submission whose file, manifest, policy and lessons are those of a
finished folder is not graded again, so an interrupted run goes on where it was. Where only some of
its answers are new, only those are judged: see ``cells.py``.
"""

from __future__ import annotations

import hashlib
import itertools
import json
import os
import secrets
import shutil
import signal
import subprocess
import sys
import time
from argparse import Namespace
from collections import Counter
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from course_lib.grading import answers, feedback, manifest, marks, policy, report, transplant
from course_lib.grading.marks import Marked
from course_lib.grading.processes import VARIABLE, RankServer
from course_lib.load_factor import load_factor
from course_lib.notebooks.execute import clean_environment
from course_lib.notebooks.folders import Folders, replace_file
from course_lib.notebooks.lesson import LessonError
from course_lib.simulated import compat

SLACK = 60.0  # seconds for kernels to start and pictures to be drawn
LONGEST_NAME = 120  # bytes


@dataclass(frozen=True)
class Job:
    """What a run grades with."""

    out: Path
    folders: Folders
    manifest: manifest.Manifest
    policy: policy.Policy
    address: str
    code: str  # hash of what judges: other checks, other marks
    secret: str  # draws the cases


def main(args: Namespace) -> int:
    """Exit code 0 when every submission was graded, whatever its marks; 1 where one was not."""
    if (reason := compat.missing()) is not None:  # the judge's network is the simulator's
        raise LessonError(f"nothing can be graded here: {reason}")
    files = list(named(args.submissions))
    if not files:
        raise LessonError("no submission to grade")
    if (jobs := int(args.jobs)) < 1:
        raise LessonError("--jobs: a number of one or more")
    folders = Folders.found()
    release = manifest.read(Path(args.manifest or folders.learner / manifest.NAME))
    rules = policy.read(Path(args.policy) if args.policy else None)
    out = Path(args.out).resolve()
    out.mkdir(parents=True, exist_ok=True)
    with RankServer() as ranks:
        job = Job(out, folders, release, rules, ranks.address, code_digest(folders), _secret(out))
        graded = grade_all(job, files, jobs)
    results = [m for _, m in sorted(graded.items())]
    report.write_all(out, results, release, rules)
    print(report.summary(results))
    print(f"\nin {out}: grades.csv and summary.txt for you, feedback/ for students (a page each), "
          "oral/ (what to ask them), results/ and junit.xml for machines")  # fmt: skip
    return int(any(m.failed_to_grade for m in results))


def named(paths: Sequence[str]) -> Iterator[tuple[str, Path]]:
    """A name for each submission: its file's, with as many folders as tell them apart. It is safe
    as a file's name, whatever a student has called theirs."""
    files = list(dict.fromkeys(p for text in paths for p in _notebooks(Path(text))))
    depth = dict.fromkeys(files, 1)
    while True:
        names = {file: _name(file, depth[file]) for file in files}
        often = Counter(name.casefold() for name in names.values())
        alike = [f for f in files if often[names[f].casefold()] > 1 and depth[f] < len(f.parts) - 1]
        if not alike:
            break
        for file in alike:
            depth[file] += 1
    taken: set[str] = set()
    for file, name in names.items():
        numbered = (f"{name}-{n}" for n in itertools.count(2))
        while name.casefold() in taken:
            name = next(numbered)
        taken.add(name.casefold())
        yield name, file


def _name(file: Path, depth: int) -> str:
    words = [*file.parent.parts[len(file.parent.parts) - depth + 1 :], file.stem]
    safe = "__".join("".join(c if c.isalnum() or c in "-_." else "_" for c in w) for w in words)
    return safe.encode()[:LONGEST_NAME].decode(errors="ignore").lstrip(".") or "_"


def _notebooks(path: Path) -> list[Path]:
    """Files below a folder as they are, links too: what reads them refuses those."""
    if path.is_dir():
        if path.is_symlink():
            raise LessonError(f"{path} is a link: name the folder that it leads to")
        found = sorted(path.resolve().rglob("*.ipynb"))
        return [p for p in found if ".ipynb_checkpoints" not in p.parts]
    if not path.exists():
        raise LessonError(f"{path}: there is no such file")
    return [path.resolve()]


def code_digest(folders: Folders) -> str:
    """What decides about marks besides manifest and policy."""
    package = Path(__file__).resolve().parents[1]
    digest = hashlib.sha256()
    for file in [*sorted(package.rglob("*.py")), *sorted(folders.solutions.glob("*.ipynb"))]:
        digest.update(file.read_bytes())
    return digest.hexdigest()[:16]


def _secret(out: Path) -> str:
    """What draws the cases: made once for a folder of marks, so that marks stay as they are."""
    file = out / "work" / ".secret"
    if not file.exists():
        file.parent.mkdir(exist_ok=True)
        replace_file(file, secrets.token_hex(16))
    return file.read_text()


def grade_all(job: Job, files: list[tuple[str, Path]], jobs: int) -> dict[str, Marked]:
    """All submissions, some at a time, each with a line as soon as it is done."""
    graded: dict[str, Marked] = {}
    start = time.monotonic()
    with ThreadPoolExecutor(jobs) as pool:
        futures = {pool.submit(grade_one, job, name, file): name for name, file in files}
        try:
            for number, future in enumerate(_as_completed(futures), 1):
                marked, fresh = future.result()
                graded[marked.name] = marked
                left = (time.monotonic() - start) / number * (len(files) - number)
                more = "" if fresh else ", graded before"
                print(
                    f"[{number}/{len(files)}] {marked.name}: {marked.said}{more}"
                    + (f"   (about {left:.0f} s left)" if left > 5 else ""),
                    flush=True,
                )
        except KeyboardInterrupt:
            print("\ninterrupted: what is being graded is brought to its end; "
                  "the same command goes on from here", flush=True)  # fmt: skip
            pool.shutdown(wait=True, cancel_futures=True)
            raise
    return graded


def _as_completed(futures: Any) -> Iterator[Any]:
    from concurrent.futures import as_completed

    return as_completed(futures)


def grade_one(job: Job, name: str, file: Path) -> tuple[Marked, bool]:
    """One submission, and whether it was graded now. Never raises."""
    folder = job.out / "work" / name
    stamp = _stamp(job, file)
    done = folder / "done.json"
    if done.exists() and json.loads(done.read_text()).get("stamp") == stamp:
        return marks.loaded(name, done), False
    shutil.rmtree(folder, ignore_errors=True)
    (folder / "records").mkdir(parents=True)
    try:
        marked = _graded(job, name, file, folder)
    except Exception as error:  # a fault of ours: it is told, and costs nobody else's marks
        trouble = f"the grader came to grief: {type(error).__name__}: {error}"
        return marks.Marked(name, "", [], problem=trouble, trouble=trouble), True
    replace_file(done, json.dumps({"stamp": stamp, "marked": marked.as_json()}))
    return marked, True


def _graded(job: Job, name: str, file: Path, folder: Path) -> Marked:
    submission = answers.read(file, job.manifest)
    trouble = ""
    if submission.lesson and any(not a.problem for a in submission.answers.values()):
        trouble = _run(job, folder, submission)
    marked = marks.mark(name, submission, job.manifest, job.policy, folder / "records", trouble)
    replace_file(job.out / "feedback" / f"{name}.html", feedback.page(marked, job.manifest))
    return marked


def _stamp(job: Job, file: Path) -> str:
    try:
        content = hashlib.sha256(file.read_bytes()).hexdigest()
    except OSError:
        content = "unreadable"
    return " ".join([content, job.manifest.digest, job.policy.digest, job.code])


def _run(job: Job, folder: Path, submission: answers.Submission) -> str:
    """pytest --nbval on the transplanted notebook; what went wrong with that, if anything did."""
    items = job.manifest.lessons[submission.lesson]
    lesson = transplant.pristine(job.folders.solutions / f"{submission.lesson}.ipynb")
    # The policy's seconds are those of an idle machine: no right answer is to lose marks because
    # others compute beside it.
    stretch = load_factor()
    room = folder / "room"
    room.mkdir()
    notebook = transplant.write(
        room, transplant.transplant(submission, items, lesson),
        {"records": str(folder / "records"), "verdicts": str(job.out / "work" / ".verdicts"),
         "code": job.code, "secret": job.secret, "limits": job.policy.limits.as_json(),
         "timing": {"play": job.policy.play_seconds, "exercise": job.policy.exercise_seconds},
         "stretch": stretch, "pictures": job.policy.pictures,
         "context": transplant.context(lesson, items)},
    )  # fmt: skip
    seconds = stretch * job.policy.submission_seconds
    cell_seconds = stretch * 2 * job.policy.exercise_seconds + SLACK
    command = [
        sys.executable, "-P", str(Path(__file__).with_name("plugin.py")),
        "-q", "-p", "no:cacheprovider", "--noconftest",
        "--color=no", "--nbval", "--nbval-current-env", "-c", os.devnull, f"--rootdir={room}",
        f"--nbval-cell-timeout={cell_seconds}", f"--junitxml={folder / 'nbval.xml'}", str(notebook),
    ]  # fmt: skip
    package = Path(__file__).resolve().parents[2]
    environment = clean_environment(package, room) | {VARIABLE: job.address}
    with open(folder / "nbval.log", "wb") as log:
        process = subprocess.Popen(command, cwd=room, env=environment, stdin=subprocess.PIPE,
                                   stdout=log, stderr=subprocess.STDOUT,
                                   start_new_session=True)  # fmt: skip
        try:
            code = process.wait(seconds + SLACK)
        except BaseException as error:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
            if not isinstance(error, subprocess.TimeoutExpired):
                raise
            return f"nbval was ended after {seconds + SLACK:.0f} s"
        finally:
            assert process.stdin is not None
            process.stdin.close()
    return "" if code in (0, 1) else f"nbval ended with code {code}: see nbval.log"
