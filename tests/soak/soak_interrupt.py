"""The first ``run()`` of a process is interrupted at any moment, from 0.1 to 10 seconds after it
began: the prompt is back, nothing is left, and the next call works.
"""

from __future__ import annotations

import json
import subprocess
import sys
import textwrap
from pathlib import Path

from soak_ranks_common import count, report

TIMES = count(20)
SECONDS = 1.0  # from the interrupt to the end of the call; on a machine with nothing else to do
# Seconds after its beginning: the fork server imports torch, ranks start and form, ranks work.
MOMENTS = [round(0.1 * 100 ** (k / max(1, TIMES - 1)), 2) for k in range(TIMES)]

FIRST_RUN = """
    import json, os, signal, sys, threading, time
    import torch, torch.distributed as dist
    from course_lib import run
    sys.path.append("..")
    from soak_ranks_common import marked_world

    def endless():
        while True:
            time.sleep(1000)

    def interrupt():
        time.sleep(float(sys.argv[1]))
        asked.append(time.perf_counter())
        os.kill(os.getpid(), signal.SIGINT)

    asked, back, words = [], None, None
    signal.signal(signal.SIGINT, signal.default_int_handler)  # a background job ignores it
    with marked_world() as leftovers:
        threading.Thread(target=interrupt).start()
        try:
            run(endless, world_size=2, timeout=1000)
        except KeyboardInterrupt as error:
            back, words = time.perf_counter() - asked[0], str(error)
        _, left = leftovers.wait()
        results = run(dist.get_rank, world_size=2).results
        _, left_at_the_end = leftovers.wait()
    told = dict(back=back, words=words, results=results,
                left=left, left_at_the_end=left_at_the_end)
    print(json.dumps(told))
"""


def interrupt_the_first_run(moment: float) -> dict:
    command = [sys.executable, "-c", textwrap.dedent(FIRST_RUN), str(moment)]
    here = Path(__file__).parent
    done = subprocess.run(command, cwd=here, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1]) | {"moment": moment}


def test_the_first_run_of_a_process_can_be_interrupted_at_any_moment():
    told: list[dict] = []
    try:
        for moment in MOMENTS:
            told.append(interrupt_the_first_run(moment))
    finally:
        report(
            "interrupt-first-run", slowest=max(t["back"] for t in told), at_most=SECONDS, told=told
        )
    for one in told:
        assert one["words"] == "run() was stopped, and its ranks have ended", one
        assert one["left"] == one["left_at_the_end"] == [], one
        assert one["results"] == [0, 1], one
        assert one["back"] <= SECONDS, one
