"""What shows in a play, for diagnoses of several lessons."""

from __future__ import annotations

from course_lib.checks.exercise import Play
from course_lib.checks.usual_diagnoses import OfPlay, found


def over_budget(*kinds: str) -> OfPlay:
    """All is right, and the budget has a finding of one of these kinds."""
    return lambda play: not play.findings and found(*kinds)(play)


def apart_in_new_group(play: Play) -> bool:
    """The ranks do not all make the same groups in the same order."""
    return found("Mismatch", "Deadlock")(play) and "new_group" in str(play.error)
