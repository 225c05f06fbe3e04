"""Right answers on a busy machine: no check may ever reject one.

    python tests/soak/soak_checks_repeats.py [--repeats 50] [--seconds N] [--load 1] [--only NAME…]
                                             [--out FILE]

So many repeats of every exercise, in turn, each of a right answer at random, under a comment that
changes the lengths and schedules that are drawn, while so many processes a core keep the machine
busy.
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
from collections import Counter
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
    options.add_argument("--repeats", type=int, default=50, help="of every exercise")
    options.add_argument("--seconds", type=float, default=float("inf"))
    options.add_argument("--load", type=int, default=1, help="processes a core")
    options.add_argument("--only", nargs="*", default=exercises(), metavar="NAME")
    options.add_argument("--out", type=Path)
    asked = options.parse_args()
    load = [multiprocessing.Process(target=burn, daemon=True)
            for _ in range(asked.load * (os.cpu_count() or 1))]  # fmt: skip
    for process in load:
        process.start()
    rejected, seconds, played = [], [], Counter[str]()
    end = time.monotonic() + asked.seconds
    for number, name in enumerate(sorted(asked.only) * asked.repeats):
        start = time.monotonic()
        if start > end:
            break
        way, text = random.Random(number).choice([*zoo.right(name).items()])
        answer = Answer(name, source=f"{text}\n# repeat {number}\n", file=f"{name}.py")
        verdict = verdict_on(find(name), answer)
        seconds.append(time.monotonic() - start)
        played[name] += 1
        if not verdict.passed:
            rejected.append(f"repeat {number}, {name}/{way}:\n{verdict}")
            print(rejected[-1], flush=True)
    for process in load:
        process.kill()
    report = {"date": date.today().isoformat(), "repeats": len(seconds), "by_exercise": played,
              "processes_a_core": asked.load, "rejected": rejected,
              "median_seconds": round(statistics.median(seconds), 3),
              "most_seconds": round(max(seconds), 3)}  # fmt: skip
    print(json.dumps(report, indent=2))
    if asked.out:
        asked.out.write_text(json.dumps(report, indent=2) + "\n")
    return 1 if rejected else 0


if __name__ == "__main__":
    raise SystemExit(main())
