"""Lesson 03: the time of a star, the bandwidth that counts, the size where α and β break even."""

from __future__ import annotations

from collections.abc import Callable

from course_exercises.formulas import formula, networks, nothing_on_the_way

OfRanks = Callable[[int], float]


def time_star(
    n: int,
    nbytes: float,
    alpha: float,
    beta: float,
    latencies: OfRanks = lambda n: 1,
    transfers: OfRanks = lambda n: n - 1,
    phases: int = 2,
    beta_is_bandwidth: bool = False,
) -> float:
    """Into the root and out again: the latencies overlap, the transfers queue; simulate's model."""
    if n == 1:
        return 0.0
    transfer = nbytes / beta if beta_is_bandwidth else nbytes * beta
    return phases * (latencies(n) * alpha + transfers(n) * transfer)


formula(
    "03.1 star_seconds",
    time_star,
    core=lambda rng: [(2, 8, 1.0, 1.0), (3, 8, 1.0, 0.5), (4, 100, 2.0, 0.25), *networks(rng)],
    sturdy=nothing_on_the_way,
    hints={
        "beta-is-bandwidth": "Bytes divided by seconds per byte give no time. Is beta a "
        "bandwidth, or one over it?",
        "n-messages": "The root has its own tensor already. How many messages come in?",
        "parallel": "This counts as if all tensors came in side by side. How many links "
        "lead into the root?",
        "latency-each-message": "On these links the messages of one direction set off at once. "
        "What has to queue at the root, the latencies or the transfers?",
        "one-way": "That is the way to the root; the others are still without the sum.",
    },
    mistakes={
        "beta-is-bandwidth": {"beta_is_bandwidth": True},
        "n-messages": {"transfers": lambda n: n},
        "parallel": {"transfers": lambda n: 1},
        "latency-each-message": [{"latencies": lambda n: n - 1}, {"latencies": lambda n: n}],
        "one-way": {"phases": 1},
    },
)


def compute_busbw(
    n: int,
    nbytes: float,
    seconds: float,
    factor: OfRanks = lambda n: 2 * (n - 1) / n,
    unit: float = 1,
) -> float:
    """S/t · 2(n−1)/n: NVIDIA/nccl-tests, doc/PERFORMANCE.md, section AllReduce."""
    return unit * nbytes / seconds * factor(n)


formula(
    "03.2 bus_bandwidth",
    compute_busbw,
    core=lambda rng: [
        (2, 8, 2.0),
        (3, 12, 0.5),
        (4, 7, 2.0),
        (8, 1 << 30, 0.0125),
        *((n, nbytes, 10 ** rng.uniform(-9, 2)) for n, nbytes, *_ in networks(rng)),
    ],
    sturdy=lambda rng: [(1, 8, 2.0), (4, 0, 2.0), (3, 12, 4), (4, 2.5, 2.0)],
    hints={
        "algbw": "This is algbw, whatever the unit. How many bytes must each link carry for S?",
        "one-phase": "That is one half of the work, adding up or handing out. all_reduce does "
        "both.",
        "factor-2": "Only very many ranks come close to a factor of 2. Count the bytes for three.",
        "all-links": "These are the bytes that all links carry together. Count those of one link.",
        "unit": "The digits are right, and the unit is not: bytes per second are asked for, not "
        "bits, and without kilo, mega or giga.",
    },
    mistakes={
        "algbw": {"factor": lambda n: 1},
        "one-phase": {"factor": lambda n: (n - 1) / n},
        "factor-2": [{"factor": lambda n: 2}, {"factor": lambda n: 1 + (n > 2)}],
        "all-links": [{"factor": lambda n: 2 * (n - 1)}, {"factor": lambda n: n - 1}],
        "unit": [{"unit": unit} for unit in (8, 1e-3, 1e-6, 1e-9, 2**-10, 2**-20, 2**-30)],
    },
)


def find_break_even(
    alpha: float,
    beta: float,
    of: Callable[[float, float], float] = lambda a, b: a / b,
    factor: float = 1,
) -> float:
    """The S of α = S·β. At this size half of the link's bandwidth is reached (Hockney's n½)."""
    return factor * of(alpha, beta)


formula(
    "03.3 half_bandwidth_bytes",
    find_break_even,
    core=lambda rng: [
        (1.0, 0.25),
        (3.0, 0.5),
        (5e-6, 4e-11),
        *((alpha, beta) for _, _, alpha, beta in networks(rng)),
    ],
    sturdy=lambda rng: [(0.0, 0.5), (12, 4), (3.0, 8.0)],
    hints={
        "product": "Seconds times seconds per byte give no bytes.",
        "one-alone": "Only one of the two numbers is in it. At which size do latency and "
        "transfer take equally long?",
        "inverted": "Seconds per byte over seconds: that is one over bytes.",
        "half-or-twice": "The result is off by a factor of 2. The bandwidth is halved, not the "
        "size: at which S does S·beta take as long as alpha?",
        "unit": "The digits are right, and the unit is not: bytes are asked for, not elements or "
        "bits, and without kilo or mega.",
    },
    mistakes={
        "product": {"of": lambda a, b: a * b},
        "one-alone": [{"of": lambda a, b: 1 / b}, {"of": lambda a, b: 1 / (2 * b)}],
        "inverted": {"of": lambda a, b: b / a},
        "half-or-twice": [{"factor": 2}, {"factor": 1 / 2}],
        "unit": [{"factor": k} for k in (4, 1 / 4, 8, 1 / 8, 1e-3, 1e-6, 2**-10, 2**-20)],
    },
)
