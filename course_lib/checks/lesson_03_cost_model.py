"""Lesson 03: the time of a star, the bandwidth that counts, the size where α and β break even."""

from __future__ import annotations

import random

from course_lib.checks.diagnoses import only_where
from course_lib.checks.exercise import Diagnosis, declare
from course_lib.checks.formulas import Formula, formula, mistake, networks, rounded


def scaled(right: Formula, argument: int, factors: list[float]) -> list[Formula]:
    """The right formula with one argument in another unit."""

    def off(factor: float) -> Formula:
        return lambda *a: right(*a[:argument], a[argument] * factor, *a[argument + 1 :])

    return [off(factor) for factor in factors]


def times(right: Formula, factors: list[float]) -> list[Formula]:
    """The right formula, its result in another unit."""
    return [lambda *a, k=factor: k * right(*a) for factor in factors]


ALONE = only_where(lambda play: play.case.options["n"] == 1)


# ---- star_seconds ----------------------------------------------------------------------------


def star_time(n: int, nbytes: float, alpha: float, beta: float) -> float:
    """Into a root that calls everything at once, and out again: latencies overlap, bytes queue."""
    return 2 * (alpha + (n - 1) * nbytes * beta) if n > 1 else 0.0


def links(rng: random.Random) -> list[tuple]:
    by_hand = [(3, 8, 1.0, 0.5), (2, 8, 1.0, 1.0), (4, 100, 2.0, 0.25), (4, 2, 3.0, 0.25)]
    return [*by_hand, (8, 1 << 20, 5e-6, 4e-11), *networks(rng)]


declare(formula(
    "03.1", "star_seconds", star_time,
    core=links,
    sturdy=lambda rng: [(1, 8, 1.0, 0.5), (1, 0, 1.0, 0.5), (4, 0, 1.0, 0.5), (3, 7, 0.0, 0.5),
                        (3, 7, 1.0, 0.0), (4, 2.5, 1.0, 0.5)],
    diagnoses=[
        mistake("latency-each-message", "Here a message sets off only when the one before it is "
                "in. This root calls all its recvs at once, so that all set off at once: what has "
                "to queue at its link, the latencies or the transfers?",
                lambda n, s, a, b: 2 * (n - 1) * (a + s * b),
                lambda n, s, a, b: (n - 1) * (a + s * b),
                lambda n, s, a, b: n * a + 2 * (n - 1) * s * b,
                lambda n, s, a, b: 2 * n * (a + s * b)),
        mistake("n-messages", "The root has its own tensor already. How many messages come in?",
                lambda n, s, a, b: 2 * (a + n * s * b)),
        mistake("one-way", "That is the way to the root; the others are still without the sum.",
                lambda n, s, a, b: a + (n - 1) * s * b),
        mistake("latency-once", "The sum cannot set off before the last tensor is in: on the way "
                "back, too, somebody waits for the first byte.",
                lambda n, s, a, b: a + 2 * (n - 1) * s * b),
        mistake("parallel", "As if the tensors of all ranks came in side by side. How many links "
                "lead into the root?", lambda n, s, a, b: 2 * (a + s * b)),
        mistake("chunks", "Each message here is an n-th of the tensor. In a star nothing is cut: "
                "a rank sends all that it has.",
                lambda n, s, a, b: 2 * (a + (n - 1) * s / n * b),
                lambda n, s, a, b: 2 * (n - 1) * (a + s / n * b)),
        mistake("elements", "A factor of 4 is in it, as if nbytes counted float32 elements, or "
                "should. It counts bytes, and beta is the time of one byte.",
                *scaled(star_time, 1, [4, 1 / 4])),
        mistake("bits", "A factor of 8 is in it, as between bytes and bits: nbytes counts bytes, "
                "and beta is the time of one byte.", *scaled(star_time, 1, [8, 1 / 8])),
        mistake("beta-is-bandwidth", "Bytes divided by seconds a byte give no time. Is beta a "
                "bandwidth, or one over it?",
                lambda n, s, a, b: 2 * (a + (n - 1) * s / b)),
        mistake("swapped", "Which of the two is in seconds, and which in seconds a byte? Look at "
                "the units of each product.", lambda n, s, a, b: 2 * (b + (n - 1) * s * a)),
        Diagnosis("alone", "A rank that is alone sends nothing: how long does that take?", ALONE),
        rounded(star_time, unit=1e-3),
    ],
))  # fmt: skip


# ---- bus_bandwidth ---------------------------------------------------------------------------


def busbw(n: int, nbytes: float, seconds: float) -> float:
    """S/t · 2(n−1)/n: NVIDIA/nccl-tests, doc/PERFORMANCE.md, section AllReduce."""
    return nbytes / seconds * 2 * (n - 1) / n


def timed(rng: random.Random) -> list[tuple]:
    drawn = [(rng.randrange(2, 2000), round(10 ** rng.uniform(0, 13)), 10 ** rng.uniform(-12, 4))
             for _ in range(12)]  # fmt: skip
    return [(4, 8, 2.0), (2, 8, 2.0), (3, 12, 0.5), (8, 1 << 30, 0.0125), *drawn]


declare(formula(
    "03.2", "bus_bandwidth", busbw,
    core=timed,
    sturdy=lambda rng: [(1, 8, 2.0), (1, 0, 2.0), (4, 0, 2.0), (3, 12, 4), (3, 1, 7.0),
                        (4, 2.5, 2.0)],
    diagnoses=[
        mistake("algbw", "This is algbw: bytes of the tensor over seconds. How many bytes has each "
                "rank's link to carry for a tensor of S?", lambda n, s, t: s / t),
        mistake("inverted", "For a byte of the tensor a link carries at least one, with more than "
                "two ranks more than one: can busbw be smaller than algbw?",
                lambda n, s, t: s / t * n / (2 * (n - 1))),
        mistake("one-phase", "That is the factor of one half of the work, adding up or handing "
                "out; all_reduce does both.", lambda n, s, t: s / t * (n - 1) / n),
        mistake("factor-2", "A factor of 2 is what very many ranks come near to. Count the bytes "
                "for two ranks.", lambda n, s, t: 2 * s / t),
        mistake("swapped", "By this factor each of two ranks would have to send its tensor four "
                "times.", lambda n, s, t: s / t * 2 * n / (n - 1)),
        mistake("all-links", "These are the bytes that all links carry together. A single link is "
                "asked for.", lambda n, s, t: s / t * 2 * (n - 1)),
        mistake("bits", "A factor of 8 is in it, as between bytes and bits. nccl-tests counts "
                "bytes, as nbytes does.", *times(busbw, [8, 1 / 8])),
        mistake("giga", "The digits are right; the unit asked for is bytes a second, without kilo, "
                "mega or giga.", *times(busbw, [1e-3, 1e-6, 1e-9, 2**-10, 2**-20, 2**-30])),
        Diagnosis("alone", "A rank that is alone sends no byte, however long it takes.", ALONE),
        rounded(busbw, unit=2.0),
    ],
))  # fmt: skip


# ---- half_bandwidth_bytes --------------------------------------------------------------------


def break_even(alpha: float, beta: float) -> float:
    """The S of α = S·β. At this size half of the link's bandwidth is reached (Hockney's n½)."""
    bandwidth = 1 / beta
    return alpha * bandwidth


declare(formula(
    "03.3", "half_bandwidth_bytes", break_even,
    core=lambda rng: [(3.0, 0.5), (1.0, 0.25), (5e-6, 4e-11), (60.0, 1e-12),
                      *(a[2:] for a in networks(rng))],
    sturdy=lambda rng: [(0.0, 0.5), (12, 4), (3.0, 8.0)],
    diagnoses=[
        mistake("product", "Seconds times seconds a byte are no bytes.", lambda a, b: a * b),
        mistake("inverted", "Seconds a byte over seconds: that is one over bytes.",
                lambda a, b: b / a),
        mistake("half", "The bandwidth is halved, not the size: at which S does S·beta take as "
                "long as alpha?", lambda a, b: a / b / 2),
        mistake("twice", "At this size the transfer takes twice as long as the latency; they are "
                "to be equal.", lambda a, b: 2 * a / b),
        mistake("elements", "A factor of 4 is in it, as between bytes and float32 elements. beta "
                "is the time of one byte.", lambda a, b: a / b / 4, lambda a, b: 4 * a / b),
        mistake("bits", "A factor of 8 is in it, as between bytes and bits. beta is the time of "
                "one byte.", lambda a, b: 8 * a / b, lambda a, b: a / b / 8),
        mistake("kilo", "The digits are right; the unit asked for is the byte, without kilo or "
                "mega.", *times(break_even, [1e-3, 1e-6, 2**-10, 2**-20])),
        rounded(break_even, unit=1.0),
    ],
))  # fmt: skip
