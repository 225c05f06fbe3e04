"""Pictures of a play for a feedback page: what a learner may see of it, as PNG in base64."""

from __future__ import annotations

import base64
import io
from typing import Any

from course_lib.checks.exercise import Play
from course_lib.errors import Blocked

MOST_EVENTS = 400  # or spans; above, a picture shows nothing


def drawn(play: Play) -> list[dict[str, str]]:
    """Who waits for whom, where that is the trouble; and what was said, where something was."""
    from course_lib import draw

    out = []
    if isinstance(play.error, Blocked) and any(w.call for w in play.error.waits):
        out.append(_picture(draw.waits(play.error, caption="Who waits for whom.")))
    run = play.run
    if (
        run is not None
        and 0 < len(run.trace.events) <= MOST_EVENTS
        and len(run.trace.spans) <= MOST_EVENTS
    ):
        caption = "What your ranks said to one another in this case (modelled time)."
        out.append(_picture(draw.timeline(run, caption=caption)))
    return [picture for picture in out if picture]


def _picture(figure: Any) -> dict[str, str]:
    file = io.BytesIO()
    figure.savefig(file, format="png", dpi=80)
    words = getattr(figure, "words", "") or getattr(figure, "text_twin", "")
    return {"png": base64.b64encode(file.getvalue()).decode(), "words": str(words)[:2000]}
