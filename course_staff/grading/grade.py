"""python -m course_lib grade SUBMISSION.ipynb… --out DIR

    submission ── answers ──► notebook ── pytest --nbval ──► records ── marks ──► OUT
                   (text)     (strings)    (judge's kernel)   (one an exercise)

Each submission is graded in a folder of its own, by a pytest of its own; whatever becomes of it
costs no other one anything. An exercise whose record was made from the same answers, by the same
lessons and checks, is not judged again: an interrupted run goes on where it was, and another policy
costs nothing.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import secrets
import shutil
import signal
import subprocess
import sys
from argparse import Namespace
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime
from pathlib import Path

from course_check.copies.folders import Folders, LessonError, replace_file
from course_lib.progress_line import ProgressLine
from course_lib.versions import PACKAGES
from course_sim.isolation import compat
from course_staff import manifest
from course_staff.authoring.execute import clean_environment
from course_staff.grading import answers, exports, feedback, grading_notebook, marks, policy
from course_staff.grading.load_factor import load_factor
from course_staff.grading.marks import Marked
from course_staff.grading.processes import VARIABLE, RankServer
from course_staff.grading.students import Student, read_roster, safe, whose
from course_staff.manifest import digest_of

SLACK = 60.0  # seconds for kernels to start and pictures to be drawn
LONGEST_NAME = 120  # bytes


@dataclass(frozen=True)
class Grading:
    """What a run grades with."""

    out: Path
    folders: Folders
    manifest: manifest.Manifest
    policy: policy.Policy
    roster: list[Student] | None
    exercise: str  # the only one to be judged again; empty: all
    ranks: RankServer
    code: str  # hash of what judges: other checks, other marks
    secret: str  # draws the cases


def main(args: Namespace) -> int:
    """Exit code 0 when every submission was graded, whatever its marks; 1 where one was not, or not
    wholly: then its points are unknown."""
    if (reason := compat.missing()) is not None:  # the judge's network is the simulator's
        raise LessonError(f"nothing can be graded here: {reason}")
    files = dict(named(args.submissions))
    if not files:
        raise LessonError("no submission to grade")
    folders = Folders.found()
    release = manifest.read(Path(args.manifest or folders.learner / manifest.NAME))
    exercises = [i.exercise for items in release.lessons.values() for i in items]
    if args.exercise and args.exercise not in exercises:
        raise LessonError(f"no exercise {args.exercise}; there are {', '.join(exercises)}")
    rules = policy.read(Path(args.policy)) if args.policy else policy.Policy()
    roster = read_roster(Path(args.roster)) if args.roster else None
    out = Path(args.out).resolve()
    out.mkdir(parents=True, exist_ok=True)
    with RankServer() as ranks:
        code = code_digest(folders)
        again = args.exercise or ""
        job = Grading(out, folders, release, rules, roster, again, ranks, code, _secret(out))
        results = grade_all(job, files, args.jobs)
    exports.write_all(out, results)
    print(exports.summary(results))
    where = "CSV for you and your LMS, feedback/ for students, oral/ for a talk with them"
    print(f"\nin {out}: {where}")
    return int(any(m.trouble for m in results))


# What JupyterLab, `update` and the map put beside a learner's copies, which may come in one folder.
_BESIDE = re.compile(r"(^|/)(\.ipynb_checkpoints/|map$|backup/.+\.\d{4}-\d\d-\d\d-\d{6}-\d+$)")


def named(paths: Sequence[str]) -> Iterator[tuple[str, Path]]:
    """A name for each submission: its path below the folder that was named, or the folder and the
    name of a file that was named alone. It is safe as a file's name, whatever students call theirs.
    """
    taken: set[str] = set()
    for path in map(Path, paths):
        if not path.exists() or (path.is_dir() and path.is_symlink()):
            what = "is a link: name the folder that it leads to" if path.exists() else "is no file"
            raise LessonError(f"{path} {what}")
        if path.is_file() and path.suffix != ".ipynb":
            raise LessonError(f"{path} is no notebook: name submissions, or folders that hold them")
        root = path.resolve() if path.is_dir() else path.resolve().parent.parent
        # Links, too, as they are: what reads them refuses them.
        for file in sorted(root.rglob("*.ipynb")) if path.is_dir() else [path.resolve()]:
            parts = file.relative_to(root).with_suffix("").parts
            if _BESIDE.search("/".join(parts)):
                continue
            name = "__".join(map(safe, parts)).encode()[-LONGEST_NAME:].decode(errors="ignore")
            name = name.lstrip(".") or "_"
            if name.casefold() in taken:
                name += "-" + digest_of(str(file))
            taken.add(name.casefold())
            yield name, file


def code_digest(folders: Folders) -> str:
    """What decides about marks besides manifest and policy."""
    house = Path(__file__).resolve().parents[2]
    packages = [house / name for name in PACKAGES]
    files = [file for package in packages for file in sorted(package.rglob("*.py"))]
    files += sorted(folders.solutions.glob("*.ipynb"))
    return digest_of([hashlib.sha256(file.read_bytes()).hexdigest() for file in files])


def _secret(out: Path) -> str:
    """What draws the cases: made once for a folder of marks, so that marks stay as they are."""
    file = out / "work" / ".secret"
    if not file.exists():
        replace_file(file, secrets.token_hex(16))
    return file.read_text()


def grade_all(job: Grading, files: dict[str, Path], jobs: int) -> list[Marked]:
    """All submissions, some at a time, each with a line as soon as it is done."""
    graded: list[Marked] = []

    def progress() -> str:
        return f"{len(graded)} of {len(files)} submissions graded"

    with ProgressLine(progress) as line, ThreadPoolExecutor(jobs) as pool:
        futures = [pool.submit(grade_one, job, name, file) for name, file in files.items()]
        try:
            for number, future in enumerate(as_completed(futures), 1):
                marked, fresh = future.result()
                graded.append(marked)
                more = "" if fresh else ", graded before"
                line.hide()
                print(f"[{number}/{len(files)}] {marked.name}: {marked.said}{more}", flush=True)
        except KeyboardInterrupt:
            line.hide()
            said = "what is being graded is brought to its end; the same command goes on from here"
            print(f"\ninterrupted: {said}", flush=True)
            pool.shutdown(wait=True, cancel_futures=True)
            raise
    return sorted(graded, key=lambda marked: marked.name)


def grade_one(job: Grading, name: str, file: Path) -> tuple[Marked, bool]:
    """One submission, and whether anything of it was judged now. Never raises."""
    try:
        return _graded(job, name, file)
    except Exception as error:  # a fault of ours: it is told, and costs nobody else's marks
        trouble = f"the grader came to grief: {type(error).__name__}: {error}"
        return Marked(name, "", [], problem=trouble, trouble=trouble), True


def _graded(job: Grading, name: str, file: Path) -> tuple[Marked, bool]:
    folder = job.out / "work" / name
    handed_in = folder / "submitted.json"  # when which answers were first seen
    new = not handed_in.exists()
    times = {} if new else json.loads(handed_in.read_text())
    submission = answers.read(file, job.manifest)
    digest = digest_of(asdict(submission))
    student = whose(name, job.roster)
    submitted = _submitted(times, digest, student, file)
    (folder / "records").mkdir(parents=True, exist_ok=True)
    replace_file(handed_in, json.dumps(times))  # before anything can go wrong: the time stays
    by = depends_on(submission, digest_of([job.code, job.policy.judging]))
    stale = [n for n in by if _is_stale(folder, n, by[n], job.exercise in ("", n))]
    trouble = _run(job, folder, submission, stale, by) if stale else ""
    rules = replace(job.policy, due=student.due) if student and student.due else job.policy
    late = rules.lateness(submitted)
    marked = marks.mark(name, submission, job.manifest, rules, folder / "records", trouble, late)
    marked = replace(marked, student=student, submitted=submitted)
    copy = marks.seen(marked, rules, datetime.now(UTC))
    replace_file(job.out / "feedback" / f"{name}.html", feedback.page(copy, job.manifest))
    replace_file(job.out / "results" / f"{name}.json", feedback.gradescope(copy))
    return marked, bool(new or stale)


def depends_on(submission: answers.Submission, rules: str) -> dict[str, str]:
    """By exercise that is judged, what its record depends on, in two words: a digest of this answer
    and those before it, which it may use, and the ``rules``, which are a digest of all else."""
    texts: list[str] = []
    by = {}
    for name, found in submission.answers.items():
        if not found.problem:
            texts.append(found.source)
            by[name] = f"{digest_of([submission.lesson, *texts])} {rules}"
    return by


def _is_stale(folder: Path, exercise: str, by: str, again: bool) -> bool:
    """Whether an exercise has no record of these answers. Or, if it may be judged ``again``, none
    that was made by these rules. ``by`` is what depends_on says of it."""
    file = folder / "records" / f"{exercise}.json"
    made = json.loads(file.read_text()).get("by", "") if file.exists() else ""
    return made != by and (again or made.split()[:1] != by.split()[:1])


def _submitted(times: dict[str, str], digest: str, student: Student | None, file: Path) -> datetime:
    """When this was handed in. That is noted in ``times`` when these answers are first seen, and
    stays, however often they are graded and wherever the file is copied. A roster's word holds."""
    if student and student.submitted:
        times[digest] = student.submitted.isoformat()
    elif digest not in times:
        times[digest] = datetime.fromtimestamp(file.lstat().st_mtime, UTC).isoformat()
    return datetime.fromisoformat(times[digest])


def _run(
    job: Grading,
    folder: Path,
    submission: answers.Submission,
    wanted: list[str],
    by: dict[str, str],
) -> str:
    """Run pytest --nbval on the grading notebook; returns what went wrong with that, or ""."""
    for exercise in wanted:
        (folder / "records" / f"{exercise}.json").unlink(missing_ok=True)
    room = folder / "room"
    shutil.rmtree(room, ignore_errors=True)
    (room / "tmp").mkdir(parents=True)  # what a kernel that is killed leaves goes with the room
    items = job.manifest.lessons[submission.lesson]
    solved = job.folders.solutions / f"{submission.lesson}.ipynb"
    settings = {"records": str(folder / "records"), "secret": job.secret, "by": by}
    path = grading_notebook.write(
        room, submission, items, solved, wanted, job.policy.judging | settings
    )
    # The policy's seconds are those of an idle machine: no right answer is to lose marks because
    # others compute beside it.
    stretch, limits = load_factor(), job.policy.limits
    seconds = stretch * limits.submission_seconds
    cell_seconds = stretch * 2 * limits.exercise_seconds + SLACK
    command = [
        *(sys.executable, "-P", str(Path(__file__).with_name("plugin.py")), str(path)),
        f"--rootdir={room}",
        f"--nbval-cell-timeout={cell_seconds}",
        f"--junitxml={folder / 'nbval.xml'}",
    ]
    environment = clean_environment(Path(__file__).resolve().parents[2], room)
    environment |= {VARIABLE: job.ranks.address, "TMPDIR": str(room / "tmp")}
    with open(folder / "nbval.log", "wb") as log:
        process = subprocess.Popen(
            command,
            cwd=room,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
    try:
        process.wait(seconds + SLACK)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        return f"nbval was ended after {seconds + SLACK:.0f} s"
    lost = [name for name in wanted if not (folder / "records" / f"{name}.json").exists()]
    return f"no verdict about {', '.join(lost)}: see nbval.log" if lost else ""
