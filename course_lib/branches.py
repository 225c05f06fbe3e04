"""Which lines a rank passes, as far as the text of one function shows it.

if rank == 0:
    evaluate()      a     whoever passes a comes to b as well: where one rank stands at a and
step()              b     another at b, that one has left a out

if rank == 0:
    broadcast(x)    a     nobody passes both: these two calls may be meant for each other
else:
    broadcast(y)    b
"""

from __future__ import annotations

import linecache
import re

from course_lib.trace import Line

# After these one line need not come to the next; nor in an expression that has two branches.
_LEAVES = re.compile(r"^\s*(return|raise|continue|break)\b|\belse$")


def passes_both(a: Line, b: Line) -> bool:
    """Whether a rank that passes one of two lines comes to the other, too. That is so if one of
    them is indented as little as anything between them. False is no answer: a rank may still pass
    both if each has a condition of its own, or is in another function.
    """
    first, last = sorted((a, b), key=lambda line: line.number)
    text = linecache.getlines(a.file)[first.number - 1 : last.number]
    code = [line.rstrip() for line in text if line.strip() and line.strip()[0] != "#"]
    seen = [line.strip() for line in code[:1] + code[-1:]]
    if (a.file, a.function) != (b.file, b.function) or seen != [first.source, last.source]:
        return False  # or the file has changed
    indents = [len(line) - len(line.lstrip()) for line in code]
    return min(indents) in (indents[0], indents[-1]) and not any(map(_LEAVES.search, code))
