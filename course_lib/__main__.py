"""The command line: python -m course_lib COMMAND. Each command's code is loaded when it is called.

A new command is one entry in COMMANDS: its name, its handler as "module:function", what it does,
and its arguments. A handler takes the parsed arguments and returns the exit code; it raises
CourseError or ValueError with one clear line where it was asked for something impossible.
"""

from __future__ import annotations

import argparse
import importlib
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple, NoReturn


class Argument(NamedTuple):
    """One argument of a command, in the words of ``ArgumentParser.add_argument``."""

    name: str
    settings: dict[str, Any]


class Command:
    """A handler, a line of help, and arguments."""

    def __init__(self, handler: str, help: str, *arguments: Argument):
        self.handler, self.help, self.arguments = handler, help, arguments


def _argument(name: str, help: str, **settings: Any) -> Argument:
    return Argument(name, {"help": help, **settings})


def _flag(name: str, help: str) -> Argument:
    return _argument(name, help, action="store_true")


COMMANDS = {
    "doctor": Command(
        "course_lib.doctor:main",
        "what this machine can run, and how to mend what is missing",
    ),
    "build": Command(
        "course_lib.grading.manifest:main",
        "lessons -> learner and solution notebooks, and the manifest that marks come from",
        _argument("lessons", "numbers or names (default: all)", nargs="*", metavar="LESSON"),
        _flag("--check", "change nothing; fail where notebooks have drifted from their source"),
        _flag("--force", "execute solutions again, also where nothing has changed"),
    ),
    "bench": Command(
        "course_lib.bench:main",
        "every budget as a ratio against its reference, measured now",
        _flag("--json", "print each row as a line of JSON"),
        _flag("--quick", "fewer repeats"),
        _flag("--all", "what takes minutes, too: 1,024 ranks, each lesson under nbval, all tests"),
    ),
    "update": Command(
        "course_lib.notebooks.update:main",
        "carry your answers in work/ into newer lessons",
        _flag("--missing", "only add copies that are missing"),
    ),
    "check": Command(
        "course_lib.checks.cli:main",
        "check one exercise against one file of source",
        _argument("exercise", "the exercise's name, as my_share", metavar="EXERCISE"),
        _argument("file", "a file of Python that defines it", metavar="FILE.py"),
        _flag("--json", "print the verdict as JSON"),
    ),
    "grade": Command(
        "course_lib.grading.grade:main",
        "marks and feedback for submitted notebooks",
        _argument("submissions", "notebooks, or folders of them", nargs="+", metavar="SUBMISSION"),
        _argument("--out", "the folder for marks and feedback", required=True, metavar="DIR"),
        _argument("--manifest", "the release's (default: notebooks/manifest.json)", metavar="FILE"),
        _argument("--policy", "what the instructor decides, in TOML", metavar="FILE"),
        _argument("--jobs", "submissions at a time (default: 2)", default=2, metavar="N"),
    ),
    "release": Command(
        "course_lib.grading.release:main",
        "a folder for students: no sources, solutions, tests or grading",
        _argument("--lessons", "numbers, as 00,01", required=True, metavar="LESSONS"),
        _argument("--manifest", "where the release's manifest goes", required=True, metavar="FILE"),
        _argument("--out", "the folder to make", required=True, metavar="DIR"),
    ),
}


def available() -> dict[str, Command]:
    """The commands whose part of the library is here: students' folders lack some."""
    package = Path(__file__).parent
    parts = {name: package / command.handler.split(".")[1].split(":")[0]
             for name, command in COMMANDS.items()}  # fmt: skip
    return {name: command for name, command in COMMANDS.items()
            if parts[name].exists() or parts[name].with_suffix(".py").exists()}  # fmt: skip


class _Parser(argparse.ArgumentParser):
    """argparse, with one line for a mistake."""

    def error(self, message: str) -> NoReturn:
        self.exit(2, f"{self.prog}: {message} (see {self.prog} --help)\n")


def parser() -> argparse.ArgumentParser:
    top = _Parser(prog="python -m course_lib", description="What the course can do from a shell.")
    commands = top.add_subparsers(dest="command", metavar="COMMAND", parser_class=_Parser)
    for name, command in available().items():
        sub = commands.add_parser(name, help=command.help, description=command.help)
        for argument in command.arguments:
            sub.add_argument(argument.name, **argument.settings)
    return top


def main(argv: Sequence[str] | None = None) -> int:
    argv = list(sys.argv[1:] if argv is None else argv)
    if argv and not argv[0].startswith("-") and argv[0] not in available():
        known = ", ".join(available())
        print(f"python -m course_lib: no command {argv[0]!r}; there are {known}", file=sys.stderr)
        return 2
    args = parser().parse_args(argv)
    if not args.command:
        parser().print_help()
        return 2
    module, function = COMMANDS[args.command].handler.split(":")
    handler = getattr(importlib.import_module(module), function)
    try:
        return int(handler(args))
    except KeyboardInterrupt:
        return 130
    except Exception as error:
        from course_lib.errors import CourseError

        if not isinstance(error, CourseError | ValueError):
            raise
        print(f"python -m course_lib {args.command}: {error}", file=sys.stderr)
        return 2


if __name__ == "__main__":
    sys.exit(main())
