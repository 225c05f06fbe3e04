"""The command line: python -m course_lib COMMAND.

Each command lives in a package that uses this one, and is imported when it is called: the second of
the three arrows that point upward (CONTRIBUTING.md). A command's ``main`` takes the parsed
arguments and returns the exit code; it raises CourseError or ValueError with one clear line if it
was asked for something impossible.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NoReturn

from course_lib.versions import PACKAGES, not_installed, old_python

# ---- the commands -------------------------------------------------------------------------------


def run_doctor(args: argparse.Namespace) -> int:
    from course_tools.doctor import main

    return main(args)


def run_check(args: argparse.Namespace) -> int:
    from course_check.again import check_on_each_save
    from course_check.check_command import main
    from course_exercises.catalogue import find

    if args.again:
        check_on_each_save(lambda: main(args, find), Path(args.file))
    return main(args, find)


def run_update(args: argparse.Namespace) -> int:
    from course_check.copies.update import main

    return main(args)


def run_progress(args: argparse.Namespace) -> int:
    from course_check.copies.progress import main

    return main(args)


def run_watch(words: Sequence[str]) -> int:
    from course_tools.watch.watch_command import main

    return main(words)


def run_rehearse(words: Sequence[str]) -> int:
    from course_tools.rehearse.rehearse_command import main

    return main(words)


def run_build(args: argparse.Namespace) -> int:
    from course_staff.manifest import main  # builds the lessons, and then what they are worth

    return main(args)


def run_grade(args: argparse.Namespace) -> int:
    from course_staff.grading.grade import main

    return main(args)


def run_release(args: argparse.Namespace) -> int:
    from course_staff.authoring.release import main

    return main(args)


SCRIPTS = {"watch": run_watch, "rehearse": run_rehearse}  # what follows may be a script's own
FOR_STAFF = ("build", "grade", "release")


# ---- what is typed -------------------------------------------------------------------------------


class _Parser(argparse.ArgumentParser):
    """argparse, with one line for a mistake."""

    def error(self, message: str) -> NoReturn:
        self.exit(2, f"{self.prog}: {message} (see {self.prog} --help)\n")


def parser() -> argparse.ArgumentParser:
    """All commands with their options; ``watch`` and ``rehearse`` have parsers of their own."""
    top = _Parser(prog="python -m course_lib", description="What the course can do from a shell.")
    commands = top.add_subparsers(metavar="COMMAND", required=True)

    def command(name: str, run: Callable, help: str) -> argparse.ArgumentParser:
        sub = commands.add_parser(name, help=help, description=help)
        sub.set_defaults(command=name, run=run)
        return sub

    command("doctor", run_doctor, "what this machine can run, and how to mend what is missing")

    job = "torchrun … -m course_lib.watch train.py"
    command("watch", run_watch, f"says what goes wrong in a torchrun job: {job}")

    script = "python -m course_lib.rehearse --ranks 8 train.py"
    command("rehearse", run_rehearse, f"plays a script for GPUs on modelled ones: {script}")

    check = command("check", run_check, "check one exercise in a file or a notebook")
    check.add_argument("exercise", metavar="EXERCISE", help="the exercise's name, as my_share")
    check.add_argument("file", metavar="FILE", help="a module or a notebook that defines it")
    how = check.add_mutually_exclusive_group()
    how.add_argument("--json", action="store_true", help="print the verdict as JSON")
    how.add_argument("--again", action="store_true", help="and again on each save, until Ctrl-C")

    update = command("update", run_update, "carry your answers in work/ into newer lessons")
    update.add_argument("--missing", action="store_true", help="only add copies that are missing")

    command("progress", run_progress, "which exercises are solved, and which comes next")

    _add_instructors_commands(command)
    return top


def _add_instructors_commands(command: Callable[..., argparse.ArgumentParser]) -> None:
    build = command("build", run_build, "lessons -> both copies of each, and the manifest")
    build.add_argument("lessons", metavar="LESSON", nargs="*", help="numbers (default: all)")
    build.add_argument("--check", action="store_true", help="only say what differs from its source")
    build.add_argument("--force", action="store_true", help="execute what has not changed, too")

    grade = command("grade", run_grade, "marks and feedback for submitted notebooks")
    what = "notebooks, or folders of them"
    grade.add_argument("submissions", metavar="SUBMISSION", nargs="+", help=what)
    grade.add_argument("--out", required=True, help="the folder for marks and feedback")
    grade.add_argument("--manifest", help="the release's (default: notebooks/manifest.json)")
    grade.add_argument("--policy", help="a file of TOML: what the instructor decides")
    grade.add_argument("--roster", help="a file of CSV: whose submission is whose")
    grade.add_argument("--exercise", help="judge this one again, and no other")
    grade.add_argument("--jobs", type=int, default=2, help="submissions at a time (default: 2)")

    release = command("release", run_release, "a folder for students: nothing that solves")
    release.add_argument("--lessons", required=True, help="numbers, as 00,01")
    release.add_argument("--manifest", required=True, help="the file for the release's manifest")
    release.add_argument("--out", required=True, help="the folder to make")


def _staff_is_here() -> bool:
    """Whether what makes and grades the course lies beside the library, as in its repository; from
    then on it can be imported."""
    house = Path(__file__).resolve().parents[1]
    sys.path.append(str(house))
    return (house / "course_staff").is_dir()


def main(argv: Sequence[str] | None = None) -> int:
    """Run a command; returns its exit code. An error that is no fault of ours is one line."""
    words = sys.argv[1:] if argv is None else argv
    if words and words[0] in FOR_STAFF and not _staff_is_here():
        print(
            f"python -m course_lib {words[0]}: for instructors; it needs the whole course: run it "
            "in a clone of its repository",
            file=sys.stderr,
        )
        return 2
    try:
        if words and words[0] in SCRIPTS:
            return SCRIPTS[words[0]](words[1:])
        args = parser().parse_args(words)
        if args.command != "doctor" and (problem := old_python()):
            print(problem, file=sys.stderr)
            return 2
        code = args.run(args)
        sys.stdout.flush()  # here, where a reader that has gone can still be answered
        return code
    except KeyboardInterrupt:
        return 130
    except BrokenPipeError:  # `| head` has read enough: nothing is left to be said, or flushed
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except ModuleNotFoundError as error:
        if (package := str(error.name).partition(".")[0]) in PACKAGES:
            raise
        print(f"python -m course_lib {words[0]}: {not_installed(package)}", file=sys.stderr)
        return 2
    except Exception as error:
        from course_lib.errors import CourseError

        if not isinstance(error, CourseError | ValueError):
            raise
        print(f"python -m course_lib {words[0]}: {error}", file=sys.stderr)
        return 2


if __name__ == "__main__":
    sys.exit(main())
