"""How long the chunked ring all-reduce takes to simulate, against its budget.

    python tests/soak/soak_simulated_speed.py [--ranks 64,256,1024] [--out FILE]

256 float32 elements a chunk, isend and irecv, rendezvous sends. Values, virtual time and bytes are
checked too. Budgets are for an idle machine: processor seconds are written beside wall-clock ones.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import sys
import time
from datetime import date
from pathlib import Path

import torch

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "simulated"))
from test_network import ring

from course_lib.simulated import Network, simulate

BUDGET = {64: (0.5, 0.2), 256: (6.0, 2.0), 1024: (90.0, 25.0)}  # ranks: at most, aim at
ELEMENTS = 256


def measure(n: int) -> dict:
    network = Network()
    wall, cpu = time.perf_counter(), time.process_time()
    run = simulate(ring, ELEMENTS, world_size=n, network=network, limit=600.0)
    wall, cpu = time.perf_counter() - wall, time.process_time() - cpu
    nbytes = n * ELEMENTS * 4
    formula = 2 * (n - 1) * network.seconds(nbytes / n)
    right = (torch.arange(n * ELEMENTS, dtype=torch.float32) % 7) * n + n * (n - 1) / 2
    calls = [records.ops for records in run.trace.events.records]  # type: ignore[attr-defined]
    sent = {sum(op.nbytes for op in ops if op.op == "send") for ops in calls}
    most, aim = BUDGET.get(n, (float("inf"), float("inf")))
    return {
        "ranks": n, "seconds": round(wall, 2), "processor seconds": round(cpu, 2), "at most": most,
        "aim at": aim, "times the aim": round(wall / aim, 1),
        "relative error of virtual time": abs(run.seconds / formula - 1),
        "right": all(torch.equal(result, right) for result in run.results),
        "bytes right": sent == {2 * (n - 1) * nbytes // n},
        "peak MB": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024,
    }  # fmt: skip


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--ranks", default="64,256,1024")
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    simulate(ring, 1, world_size=2)  # imports are not what is measured
    rows = []
    for n in map(int, options.ranks.split(",")):
        rows.append(measure(n))
        print(rows[-1], flush=True)
    report = {"date": str(date.today()), "load": os.getloadavg()[0], "rings": rows}
    out = options.out or Path("build/soak") / f"simulated_speed-{date.today()}.json"
    out.parent.mkdir(parents=True, exist_ok=True)
    out.write_text(json.dumps(report, indent=1) + "\n")
    good = all(row["right"] and row["bytes right"] and row["seconds"] <= row["at most"]
               and row["relative error of virtual time"] < 1e-9 for row in rows)  # fmt: skip
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
