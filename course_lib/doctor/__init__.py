"""What this machine can run, and how to mend what is missing: python -m course_lib doctor.

probes    what is tried, and the remedy where it fails
lessons   what each lesson will do here
"""

from __future__ import annotations

import sys
from collections.abc import Sequence

from course_lib.doctor.lessons import lessons
from course_lib.doctor.probes import PROBES, Finding, Probe, examine


def main(_args: object = None, probes: Sequence[Probe] = PROBES) -> int:
    """Print what was found, as it is found; 1 if something that lessons need is missing."""
    found: list[Finding] = []
    states: dict[str, str] = {}
    _say("this machine")
    for probe in probes:
        found.append(examine(probe, states))
        states[probe.name] = found[-1].state
        _show(found[-1])
    _say("lessons")
    there = lessons(states)
    for finding in there:
        _show(finding)
    if not there:
        _say("  none here: the course's folder notebooks/src has them")
    missing = [finding.name for finding in found + there if finding.state == "MISSING"]
    _say(f"MISSING: {', '.join(missing)}" if missing else "Nothing that lessons need is missing.")
    return 1 if missing else 0


def _show(finding: Finding) -> None:
    _say(f"  {finding.state:<8}{finding.name:<17}{finding.text}")
    if finding.remedy:
        _say(f"{'':27}{finding.remedy}")


def _say(line: str) -> None:
    """Print, also where a terminal cannot show every character."""
    code = getattr(sys.stdout, "encoding", None) or "utf-8"
    print(line.encode(code, "replace").decode(code), flush=True)
