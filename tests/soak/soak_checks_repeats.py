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
import sys
import time
from datetime import date
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import zoo

from course_lib.checks.checking import verdict_on
from course_lib.checks.exercise import exercises, find
from course_lib.checks.in_rank import Answer


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
    answers = [(name, way) for name in sorted(asked.only) for way in zoo.right(name)]
    load = [multiprocessing.Process(target=burn, daemon=True)
            for _ in range(asked.load * (os.cpu_count() or 1))]  # fmt: skip
    for process in load:
        process.start()
    rejected, seconds = [], []
    names = sorted(asked.only)
    for number in range(asked.repeats * (len(names) if asked.each else 1)):
        name = names[number % len(names)]
        fitting = [a for a in answers if a[0] == name] if asked.each else answers
        name, way = random.Random(number).choice(fitting)
        source = zoo.right(name)[way] + f"\n# repeat {number}\n"
        start = time.monotonic()
        verdict = verdict_on(find(name), Answer(name, source=source, file=f"{name}.py"))
        seconds.append(time.monotonic() - start)
        if not verdict.passed:
            rejected.append(f"repeat {number}, {name}/{way}:\n{verdict}")
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
