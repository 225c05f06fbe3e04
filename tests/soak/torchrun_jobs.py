"""Jobs under torchrun, with watch and without: what they print, how they end. Right ones are in
tests/soak/jobs, broken ones in tests/programs: in jobs, and those of docs/errors.md.

Each script says in its docstring what has to be told of it; nothing, where it says nothing:

    told: a regular expression        what the message has, besides all lines that end in "# told"
    ranks: 3                          2 where it says nothing
    agents: 2                         so many torchruns, with a rank each
    options: --max-restarts=1         of torchrun
    logs: shared                      by the agents, as nodes may do in a folder of the network
    asked: SIGTERM                    what torchrun gets once all ranks have printed "ready"

A broken one prints "cause" and the time just before it does what is wrong.
"""

from __future__ import annotations

import ast
import atexit
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from processes import marked
from programs import page
from watched_jobs import free_port

TESTS = Path(__file__).resolve().parents[1]
RIGHT, BROKEN = TESTS / "soak" / "jobs", TESTS / "programs" / "jobs"
HOUSE = TESTS.parent
MARK = "COURSE_LIB_JOB"  # in the environment of every process that a job here starts
LONGEST = 90.0  # seconds that a job may take
QUIET = 4.0  # seconds without a call, while somebody waits, until watch says where all stand


@dataclass
class Job:
    path: Path
    told: str = ""
    ranks: int = 2
    agents: int = 1
    options: str = ""
    asked: str = ""
    logs: str = ""

    @classmethod
    def of(cls, path: Path) -> Job:
        text = ast.get_docstring(ast.parse(path.read_text())) or ""
        job = cls(path)
        for name, value in re.findall(
            r"^(told|ranks|agents|options|asked|logs): (.*)$", text, re.M
        ):
            setattr(job, name, type(getattr(job, name))(value))
        return job

    @property
    def is_broken(self) -> bool:
        return self.path.parent != RIGHT

    @property
    def lines(self) -> list[str]:
        """Those that have to be named."""
        lines = self.path.read_text().splitlines()
        marked = (n for n, line in enumerate(lines, 1) if line.endswith("# told"))
        return [f"{self.path.name}, line {n}" for n in marked]

    def commands(self, watched: bool) -> list[list[str]]:
        watch = ["-m", "course_lib.watch"] if watched else []
        where = ["--standalone", f"--nproc-per-node={self.ranks}"]
        if self.agents > 1:
            ends = f"--master-addr=127.0.0.1 --master-port={free_port()}"
            where = [f"--nnodes={self.agents}", "--nproc-per-node=1", *ends.split()]
        torchrun = [sys.executable, "-m", "torch.distributed.run", *where, *self.options.split()]
        return [
            [*torchrun, *([f"--node-rank={n}"] if self.agents > 1 else []), *watch, str(self.path)]
            for n in range(self.agents)
        ]


def right_jobs() -> list[Job]:
    return [Job.of(path) for path in sorted(RIGHT.glob("*.py"))]


def broken_jobs() -> list[Job]:
    """The scripts, and the programs of docs/errors.md, written to files."""
    folder = Path(tempfile.mkdtemp(prefix="course-jobs-"))
    atexit.register(shutil.rmtree, folder)
    for title in page.WATCHED:
        name = re.sub(r"\W+", "_", title)
        (folder / f"{name}.py").write_text(page.script(title))
    return [Job.of(path) for place in (BROKEN, folder) for path in sorted(place.glob("*.py"))]


@dataclass
class Course:
    """The course that a job took. ``told_after`` is seconds from cause to sentence, None where
    there was none.
    """

    codes: list[int] = field(default_factory=list)
    out: list[tuple[float, str]] = field(default_factory=list)
    err: list[tuple[float, str]] = field(default_factory=list)
    told_after: float | None = None
    seconds: float = 0.0
    left: list[str] = field(default_factory=list)
    logs: list[str] = field(default_factory=list)  # kept of a job of which something was told

    @property
    def printed(self) -> str:
        return "".join(line for _, line in self.out)

    @property
    def characters(self) -> str:
        """What the ranks printed, in no order: under torchrun, lines of two ranks mix."""
        return "".join(sorted(self.printed))

    @property
    def said(self) -> str:
        return "".join(line for _, line in self.err)

    @property
    def is_silent(self) -> bool:
        """But for torchrun, which names what it ran."""
        return not re.search(r"^course_lib\.watch(?! FAILED)", self.said, re.M)

    def has_told(self, job: Job) -> bool:
        return bool(re.search(job.told, self.said)) and all(x in self.said for x in job.lines)

    def wrong_with(self, job: Job) -> list[str]:
        """What is not as it has to be under watch; [] if all is."""
        wrong = [f"left: {self.left}"] if self.left else []
        if not job.told and self.logs:
            wrong.append(f"left: {self.logs}")
        if not job.told:
            return wrong + ([] if self.is_silent else ["not silent"])
        if not re.search(job.told, self.said):
            wrong.append("told nothing" if self.is_silent else "told something else")
        wrong += [f"did not name {line}" for line in job.lines if line not in self.said]
        kinds = re.findall(r"^course_lib\.watch.*: (\w+): ", self.said, re.M)
        blocks = sum(kind != "Waiting" for kind in kinds) or len(kinds)
        if blocks != 1:
            wrong.append(f"told {blocks} times")
        return wrong


def play(job: Job, folder: Path, watched: bool = True) -> Course:
    """The job's course in a folder of its own. A job that would hang is ended once all is told."""
    scratch = folder / "tmp"
    scratch.mkdir(parents=True)
    environ = os.environ | {
        "TORCH_DISABLE_SHARE_RDZV_TCP_STORE": "1",  # or gloo's restarts stand still, on torch 2.15
        MARK: str(folder),
        "TMPDIR": str(scratch),
        "PYTHONPATH": str(HOUSE),
        "COURSE_LIB_QUIET": str(QUIET),
        "OMP_NUM_THREADS": "1",
    }
    if job.logs:
        environ["COURSE_LIB_LOGS"] = str(folder / "logs")
    course, began = Course(), time.time()
    started = [
        subprocess.Popen(
            command,
            cwd=folder,
            env=environ,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            start_new_session=True,
        )
        for command in job.commands(watched)
    ]
    pipes = [(p.stdout, course.out) for p in started] + [(p.stderr, course.err) for p in started]
    readers = [threading.Thread(target=_read, args=pipe, daemon=True) for pipe in pipes]
    for reader in readers:
        reader.start()
    try:
        _accompany(job, started, course, began + LONGEST)
    finally:
        for process in started:
            process.kill()
            course.codes.append(process.wait())
        course.seconds = time.time() - began
    for reader in readers:
        reader.join(2)
    course.told_after = _told_after(job, course)
    course.left = _left(folder)
    course.logs = [path.name for path in (folder / "tmp").glob("course_lib-watch-*")]
    return course


def _read(pipe, lines: list[tuple[float, str]]) -> None:
    for line in iter(pipe.readline, b""):
        lines.append((time.time(), line.decode(errors="replace")))


def _accompany(job: Job, started: list[subprocess.Popen], course: Course, end: float) -> None:
    """Until all have ended: ask them to, where the job says so, and where all is told."""
    asked = False
    while any(process.poll() is None for process in started) and time.time() < end:
        ready = course.printed.count("ready") == job.ranks
        if not asked and ((job.asked and ready) or (job.is_broken and course.has_told(job))):
            asked = True
            _wait_for_all(started, 0.0 if job.asked else 3.0)  # it may end by itself
            for process in started:
                with suppress(ProcessLookupError):  # the group, as torchrun does
                    os.killpg(process.pid, signal.Signals[job.asked or "SIGTERM"])
        time.sleep(0.02)


def _wait_for_all(started: list[subprocess.Popen], seconds: float) -> None:
    end = time.monotonic() + seconds
    while any(process.poll() is None for process in started) and time.monotonic() < end:
        time.sleep(0.02)


def _told_after(job: Job, course: Course) -> float | None:
    causes = [float(at) for at in re.findall(r"\d{10}\.\d{1,7}", course.printed)]
    said = ""
    for at, line in sorted(course.err):
        said += line
        if job.told and causes and re.search(job.told, said):
            return at - max((cause for cause in causes if cause <= at), default=at)
    return None


def _left(folder: Path, seconds: float = 1.0) -> list[str]:
    """Processes and files that are there a second after the job's end."""
    end = time.monotonic() + seconds
    while (left := [*marked(MARK, folder), *_files(folder)]) and time.monotonic() < end:
        time.sleep(0.02)
    return [f"process {one}" if isinstance(one, int) else one for one in left]


def _files(folder: Path) -> list[str]:
    kept = ("torchinductor_", "torchelastic_", "course_lib-watch-")  # torch's own, and the logs
    return [path.name for path in (folder / "tmp").iterdir() if not path.name.startswith(kept)]
