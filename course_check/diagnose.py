"""From what was seen of a level to one diagnosis, and the play that shows it.

    1  the gravest        the first play that fails in the gravest way
    2  its like           those that fail in that way, and have no feature that it lacks
    3  a diagnosis        true of all of these, and contradicted by no play that passed:
                          an error's own, a mistake that predicts what came back, a pattern
    4  only with …        features that all failing plays have and no passing one has
    5  the shown play     the first that fails on which the diagnosis can be seen

A mistake is compared facet by facet: what was returned, the gradients, what is left in tensors.
So of two mistakes at once the first wrong facet is explained, and after it is mended the next.
Evidence is values, errors and the trace. Never the source.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import combinations

from course_check import usual_diagnoses as usual
from course_check.cases import SPREAD, clause
from course_check.exercise import After, Diagnosis, Exercise, Finding, Mistake, Play, Right
from course_check.harness.seen import Seen
from course_check.judge import say_which_differ

GRAVE = ("Broken", "RankDied", "CourseError", "Hang", "Hazard")  # in this order


@dataclass
class Level:
    """One level of an exercise: its plays, which of them fail, both by size, and why."""

    name: str
    plays: list[Play]
    failed: list[Play]
    reached: bool = True  # False: an earlier case hung or died, and this level was not played out
    besides: Sequence[Play] = ()  # plays of another level
    explanation: Diagnosis | None = None  # where some fail
    play: Play | None = None  # the one that shows how it fails
    asks: bool = True  # whether the result depends on what others have
    case: str = ""  # the case of ``play`` in words

    @property
    def passed(self) -> bool:
        return self.reached and not self.failed

    @property
    def said(self) -> Diagnosis:
        assert self.explanation is not None, "nothing fails"
        return self.explanation

    @property
    def fine(self) -> list[Play]:
        """Plays that do not fail, those of another level among them."""
        return [p for p in [*self.besides, *self.plays] if not p.findings and p not in self.failed]

    @property
    def findings(self) -> list[Finding]:
        """What is wrong in the case that is shown."""
        return self.play.findings or self.play.over_budget if self.play else []


# Note [The order of the tables]
#
# Several diagnoses may be true of one play, and the first that is true is told. So the order of the
# tables, and the order within each, decides the hints of all exercises:
#
#   CUT_OFF        what ended all play: nothing that came before it can be trusted
#   ex.diagnoses   what the exercise itself knows, in the order of its hints
#   ERRORS         the particular before the general: ranks that all send first are in a deadlock,
#                  too, and every exception "raises"
#   TALK, silent   what is said that should not be, or not said at all
#   by values      right numbers in a wrong form; then the exercise's mistakes, in its order; then
#                  one rank that is right alone; at last what is left in the wrong memory
#   PATTERNS, ex.diagnoses, BUDGET   if all values are right, and the budget is not kept
#
# A diagnosis that is new goes before every other that is true of its plays and says less.
# tests/course_check/test_tables.py holds the pairs in which that matters;
# tests/course_exercises/test_zoo.py holds the hint of each wrong answer that is known.


def diagnose(ex: Exercise, level: Level) -> tuple[Diagnosis, Play]:
    """Why this level fails, and the play that shows it. The id has the lesson's number in front:
    ``04.divides``."""
    gravest = min(level.failed, key=_gravity)
    like = [gravest, *(p for p in level.failed if p is not gravest and _is_like(ex, p, gravest))]
    shown, names = None, _find_shared_features(ex, level)
    silent = usual.NOTHING_SENT if ex.blank else {}
    said = usual.first_true(like, usual.CUT_OFF, ex.diagnoses, usual.ERRORS, usual.TALK, silent)
    if said is None and gravest.done and gravest.findings:
        said, shown = _explain_values(ex, level, like, names)
    elif said is None and gravest.done:
        # a pattern shows where more than three ranks have something to say to one another
        many = [p for p in level.failed if p.case.world > 3 and p.case.length >= p.case.world]
        said = usual.first_true(many, usual.PATTERNS)
        said = said or usual.first_true([gravest], ex.diagnoses, usual.BUDGET)
    if names and (said is None or said.id in usual.VAGUE):
        said, shown = _blame_features(ex, said, names, _say_only_where(ex, level, names)), gravest
    if said is None:
        said, shown = _say_what_differs(ex, gravest), gravest
    shown = shown or next(filter(said.when, level.failed), gravest)
    hint = f"Forward is right. {said.hint}" if usual.wrong_in_backward(shown) else said.hint
    return replace(said, id=f"{ex.number.split('.')[0]}.{said.id}", hint=hint), shown


def _gravity(play: Play) -> tuple[int, bool]:
    """A key by which grave errors come first, and plays that only miss the budget last."""
    grave = next((i for i, kind in enumerate(GRAVE) if kind in play.kinds()), len(GRAVE))
    return grave, not play.findings


def _is_like(ex: Exercise, play: Play, other: Play) -> bool:
    """Whether a play ends as the other does, and has no feature that the other lacks. Hazards are
    alike only if their kinds are: one answer may run into several."""
    ends = [(type(p.error), getattr(p.error, "kind", "")) for p in (play, other)]
    return ends[0] == ends[1] and ex.features(play.case) <= ex.features(other.case)


def _say_what_differs(ex: Exercise, play: Play) -> Diagnosis:
    """The last resort: no diagnosis fits, so the hint says only where values differ."""
    where = say_which_differ(play)
    none_fits = usual.make_diagnosis("values-differ", lambda p: say_which_differ(p) == where)
    hint = f"{where} {none_fits.hint}".strip() if ex.in_ranks else usual.BY_HAND
    return replace(none_fits, hint=hint)


# ---- it goes wrong only where … ------------------------------------------------------------------


def _find_shared_features(ex: Exercise, level: Level) -> Sequence[str]:
    """One feature or two: each play that fails has one of them, and none that passes has any."""
    fine = set[str]().union(*(ex.features(p.case) for p in level.fine))
    failed = [ex.features(p.case) - fine for p in level.failed]
    most = [name for name, _ in Counter(n for f in failed for n in sorted(f)).most_common()]
    several = [*combinations(most, 1), *combinations(most, 2)] if level.fine else []
    return next((names for names in several if all({*names} & f for f in failed)), ())


def _say_only_where(ex: Exercise, level: Level, names: Sequence[str]) -> str:
    """The features in a sentence, and a question about each."""
    clauses, questions = zip(*(clause(name, ex.words) for name in names), strict=True)
    asked = dict.fromkeys(filter(None, questions))  # two features may have one question
    where = ", or where ".join(dict.fromkeys(clauses))
    said = f"Among the {level.name} cases it goes wrong only where {where}."
    return " ".join([said, *asked])


def _blame_features(
    ex: Exercise, said: Diagnosis | None, names: Sequence[str], where: str
) -> Diagnosis:
    """A diagnosis that names the features; what was ``said``, which is vague, comes after."""
    id = f"only-{'-or-'.join(names)}".replace(" ", "-")
    hint = f"{where} {said.hint if said else ''}".strip()
    return Diagnosis(id, hint, lambda p: bool({*names} & ex.features(p.case)))


# ---- of what came to its end, with wrong values --------------------------------------------------

# Mistakes that may have been made, each with one of the functions that make it.
Candidates = list[tuple[Mistake, Right]]
Found = tuple[Diagnosis | None, Play | None]  # and a play that shows it best, where one does


def _explain_values(ex: Exercise, level: Level, like: list[Play], names: Sequence[str]) -> Found:
    """What the values tell, facet by facet: the first that a mistake explains is named."""
    if right_numbers := usual.first_true(like, usual.NUMBERS):
        return right_numbers, None
    for name in like[0].wrong:
        facet = _WrongFacet(ex, name, [p for p in like if name in p.wrong])
        mistakes = [*ex.mistakes, usual.UNTOUCHED] if name in ("left", "grad") else [*ex.mistakes]
        if ways := facet.find_fitting(mistakes, level.fine):
            return facet.name_mistake(mistakes, facet.keep_broadest(ways, level.failed), "")
        # One number is easily another mistake's as well: of a formula the feature says more.
        if names and ex.in_ranks:
            # Plays that are fine say nothing of a mistake that is made only where others are not.
            # A part that is left out is untouched, too, but for what contiguous() has copied.
            copied = not {*names}.isdisjoint((*SPREAD, "unordered"))
            mistakes = mistakes if copied else [*ex.mistakes]
            if ways := facet.find_fitting(mistakes, []):
                return facet.name_mistake(mistakes, ways, _say_only_where(ex, level, names))
        if ex.blank and all(map(facet.is_right_on_one_rank, facet.plays)):
            return usual.make_diagnosis("one-rank-alone", facet.is_right_on_one_rank), None
    return usual.first_true(like[:1], usual.DONE), None


@dataclass(frozen=True)
class _WrongFacet:
    """One facet that is wrong, and the plays to explain: those like the gravest in which it is."""

    ex: Exercise
    name: str
    plays: list[Play]

    def spoils(self, wrong: Right, play: Play) -> set[str]:
        """The facets that this mistake would spoil."""
        return self.ex.differing(play.comes_to(wrong), play.expected)

    def predicts(self, wrong: Right, play: Play) -> bool:
        """Whether this facet is what the mistake would make of it, and no other facet is right that
        the mistake would spoil."""
        return self.name in self.spoils(wrong, play) <= set(play.wrong) and (
            self.name not in self.ex.differing(play.seen, play.comes_to(wrong))
        )

    def find_fitting(self, mistakes: list[Mistake], fine: list[Play]) -> Candidates:
        """The mistakes that predict this facet of all the plays, and spoil none that is fine."""
        return [
            (mistake, way)
            for mistake in mistakes
            for way in mistake.wrong
            if all(self.predicts(way, p) for p in self.plays)
            and not any(self.spoils(way, p) for p in fine)
        ]

    def keep_broadest(self, ways: Candidates, failed: list[Play]) -> Candidates:
        """Those that predict most of what fails. Only plays like the gravest had to be explained: a
        mistake that explains others as well is the likelier cause, and is told alone."""
        failed = [p for p in failed if p.done and self.name in p.wrong]
        explained = [sum(self.predicts(way, p) for p in failed) for _, way in ways]
        return [one for one, n in zip(ways, explained, strict=True) if n == max(explained)]

    def name_mistake(self, mistakes: list[Mistake], ways: Candidates, where: str) -> Found:
        """The mistake in words, or the two that nothing tells apart. It is shown on a play on which
        nothing else would look like it, if there is one."""
        several = list(dict.fromkeys(mistake for mistake, _ in ways))[:2]
        hint = several[0].hint
        if several[1:]:
            hint = f"What was played fits two causes. {hint} Or: {several[1].hint}"
        mine = [way for mistake, way in ways if mistake in several]
        others = [way for mistake in mistakes if mistake not in several for way in mistake.wrong]

        def is_clear(play: Play) -> bool:
            """Whether neither a right answer nor another mistake would come to the same."""
            said, *rest = ([play.comes_to(way)[0]] for way in (mine[0], self.ex.right, *others))
            return all(self.name in self.ex.differing(said, other) for other in rest)

        def when(play: Play) -> bool:
            return play.done and any(self.predicts(way, play) for way in mine)

        said = Diagnosis(several[0].id, f"{where} {hint}".strip(), when)
        return said, next(filter(is_clear, self.plays), self.plays[0])

    def is_right_on_one_rank(self, play: Play) -> bool:
        """One of several ranks has got this facet right, by a change, and no other one has what all
        should have alike."""
        if not play.done or play.case.world < 2 or usual.found("argument changed")(play):
            return False
        first, *others = play.expected[0]
        if not all(self.is_alike(one, first) for one in others):
            return False
        pairs = zip(play.seen[0], play.expected[0], strict=True)
        right = [rank for rank, (got, want) in enumerate(pairs) if self.is_alike(got, want)]
        before = [Seen(None, play.before(rank)) for rank in right]
        return len(right) == 1 and not self.is_alike(play.got(right[0]), before[0])

    def is_alike(self, one: Seen, other: Seen) -> bool:
        return self.name not in self.ex.differing([After([one])], [After([other])])
