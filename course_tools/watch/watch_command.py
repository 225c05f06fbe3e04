"""Runs a script under torchrun, unchanged, and says what goes wrong in the job."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import NoReturn

from course_lib.trace import many_events
from course_tools.watch import parent, watched_rank
from course_tools.watch.flight_recorder import dumps_in, judge
from course_tools.watch.job import Job
from course_tools.watch.job_folder import append_exit, job_folder, process_began, start_of
from course_tools.watch.parent import Parent
from course_tools.watch.reader import Watcher
from course_tools.watch.reports import report_error, say
from course_tools.watch.script import add_script, claim_script

_USAGE = """torchrun … -m course_lib.watch [--keep FOLDER] [--json] [--end] SCRIPT.py ARGUMENTS…
       torchrun … -m course_lib.watch [OPTIONS] -m MODULE ARGUMENTS…
       python -m course_lib.watch --read FOLDER… [--json]"""


def make_parser() -> argparse.ArgumentParser:
    made = argparse.ArgumentParser(prog="course_lib.watch", usage=_USAGE, description=__doc__)
    made.add_argument(
        "--read",
        nargs="+",
        type=Path,
        metavar="FOLDER",
        help="say what went wrong in a job that has ended, from the logs it kept",
    )
    made.add_argument(
        "--keep", metavar="FOLDER", help="keep the logs in this folder (default: $COURSE_LIB_LOGS)"
    )
    made.set_defaults(keep=os.environ.get("COURSE_LIB_LOGS"))
    made.add_argument("--json", action="store_true", help="say it as one JSON object, for tools")
    made.add_argument("--end", action="store_true", help="end a job that can never go on")
    add_script(made)
    return made


def main(argv: Sequence[str]) -> int:
    options = make_parser().parse_args(argv)
    if options.read:
        return read_afterwards(options.read, options.json)
    if not options.words:
        make_parser().error("name the script to run")
    if "RANK" not in os.environ:
        make_parser().error("RANK is not set: start this command with torchrun")
    folder, number = job_folder(options.keep), int(os.environ["RANK"])
    claim_script(options.words, options.is_module)
    if waiting := parent.fork():
        _stay(waiting, folder, number, options)
    watched_rank.run(options.words, options.is_module, number, folder)
    return 0


def _stay(waiting: Parent, folder: Path, number: int, options: argparse.Namespace) -> NoReturn:
    """Stay in the parent until the rank has ended. An error of ours must not disturb the job."""
    try:
        if os.environ.get("LOCAL_RANK", "0") == "0":
            _read_along(waiting, folder, number, options)
        else:
            code = waiting.wait_for_end()
            with suppress(FileNotFoundError):  # the reader has ended, and removed the logs
                append_exit(folder, number, code, waiting.asked_at)
    except Exception as error:
        say(f"course_lib.watch has failed, and the job goes on: {type(error).__name__}: {error}\n")
        waiting.wait_for_end()
    waiting.end()


def _read_along(waiting: Parent, folder: Path, number: int, options: argparse.Namespace) -> None:
    """Read all ranks' logs until the rank has ended; then remove them, unless they are kept."""
    size = int(os.environ["WORLD_SIZE"])
    here = int(os.environ.get("LOCAL_WORLD_SIZE", size))
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    job = Job([folder], size, process_began() - 1.0)
    watcher = Watcher(waiting, job, range(number, number + here), options.json, options.end)
    with many_events():
        watcher.watch()
    if not options.keep:
        watcher.clear()


def read_afterwards(folders: Sequence[Path], as_json: bool) -> int:
    """Say what was wrong with a job that has ended; with its last start, unless one is named."""
    if absent := [str(folder) for folder in folders if not folder.is_dir()]:
        print(f"there is no folder {', '.join(absent)}", file=sys.stderr)
        return 2
    starts = [_last_start(folder) for folder in folders]
    found = {int(log.stem.removeprefix("rank-")) for f in starts for log in f.glob("rank-*.log")}
    if dumps := [dump for folder in folders for dump in dumps_in(folder)]:
        print(judge(dumps))
    if not found and dumps:
        return 0
    if not found:
        print(f"there are no logs in {', '.join(map(str, folders))}", file=sys.stderr)
        return 2
    job = Job(starts, max(found) + 1)
    job.read()
    members = {r for group in job.matcher.groups.values() for r in group}
    absence = job.matcher.absence() if members <= found else None
    all_returned = all(rank.returned for rank in job.ranks)
    if error := job.verdict() or (absence if all_returned else None):
        print(report_error(error, job, as_json).strip())
        return 1
    calls, dropped = len(job.matcher.known), job.dropped
    kept = f" The logs are bounded: {dropped} calls before them were dropped." if dropped else ""
    print(f"{calls} calls of {len(found)} ranks, and nothing wrong is found in them.{kept}")
    if absence:
        print(f"When the job was ended: {absence}")
    return 0


def _last_start(folder: Path) -> Path:
    starts = sorted(folder.glob("restart-*"), key=start_of)
    return starts[-1] if starts else folder
