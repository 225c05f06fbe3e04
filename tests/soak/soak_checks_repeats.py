"""Right answers on a busy machine: no check may ever reject one.

    python tests/soak/soak_checks_repeats.py [--repeats 200] [--each] [--load 1] [--only NAME…]
                                             [--out FILE]

Each repeat takes a right answer at random, under a comment that changes the lengths and schedules
that are drawn, while so many processes a core keep the machine busy. With --each there are so many
repeats of every exercise, in turn.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import random
import statistics
import time
from datetime import date
from pathlib import Path

from course_lib.checks.checking import verdict_on
from course_lib.checks.exercise import exercises, find
from course_lib.checks.play import Answer

RIGHT = Path(__file__).resolve().parents[1] / "right_answers"


def burn() -> None:
    while True:
        sum(range(10_000))


def main() -> int:
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--repeats", type=int, default=200)
    options.add_argument("--each", action="store_true", help="so many of every exercise")
    options.add_argument("--load", type=int, default=1, help="processes a core")
    options.add_argument("--only", nargs="*", default=exercises(), metavar="NAME")
    options.add_argument("--out", type=Path)
    asked = options.parse_args()
    paths = [p for p in sorted(RIGHT.glob("*/*.py")) if p.parent.name in asked.only]
    load = [multiprocessing.Process(target=burn, daemon=True)
            for _ in range(asked.load * (os.cpu_count() or 1))]  # fmt: skip
    for process in load:
        process.start()
    rejected, seconds = [], []
    names = sorted({p.parent.name for p in paths})
    for number in range(asked.repeats * (len(names) if asked.each else 1)):
        name = names[number % len(names)]
        fitting = [p for p in paths if p.parent.name == name] if asked.each else paths
        path = random.Random(number).choice(fitting)
        source = path.read_text() + f"\n# repeat {number}\n"
        start = time.monotonic()
        answer = Answer(path.parent.name, source=source, file=path.name)
        verdict = verdict_on(find(path.parent.name), answer)
        seconds.append(time.monotonic() - start)
        if not verdict.passed:
            rejected.append(f"repeat {number}, {path.parent.name}/{path.stem}:\n{verdict}")
            print(rejected[-1], flush=True)
    for process in load:
        process.kill()
    report = {"date": date.today().isoformat(), "repeats": len(seconds), "exercises": names,
              "processes_a_core": asked.load, "rejected": rejected,
              "median_seconds": round(statistics.median(seconds), 3),
              "most_seconds": round(max(seconds), 3)}  # fmt: skip
    print(json.dumps(report, indent=2))
    if asked.out:
        asked.out.write_text(json.dumps(report, indent=2) + "\n")
    return 1 if rejected else 0


if __name__ == "__main__":
    raise SystemExit(main())
