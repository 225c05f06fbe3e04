"""Answers to place_experts."""

import heapq
from itertools import combinations


def with_a_heap(loads, n):
    room = len(loads) // n
    ranks, heap = [[] for _ in range(n)], [(0, -rank) for rank in range(n)]
    for load, e in sorted(((load, e) for e, load in enumerate(loads)), reverse=True):
        total, rank = heapq.heappop(heap)
        ranks[-rank].append(e)
        if len(ranks[-rank]) < room:
            heapq.heappush(heap, (total + load, rank))
    return ranks


def of_all_placements(loads, n):
    def best(left, n):
        if n == 1:
            return [tuple(left)]
        first, *others = left
        found = []
        for mates in combinations(others, len(left) // n - 1):
            rest = best([e for e in others if e not in mates], n - 1)
            found.append([(first, *mates), *rest])
        return min(found, key=lambda ranks: max(sum(loads[e] for e in rank) for rank in ranks))

    return tuple(best(list(range(len(loads))), n))


WRONG = """
== solution
as_they_come, unsorted: the emptiest rank gets the next
~ sorted(range(len(loads)), key=loads.__getitem__, reverse=True) => range(len(loads))
smallest_first, smallest-first: sorted() rises
~ , reverse=True =>
no_room, room: the emptiest rank, however many it has
~  if len(ranks[r]) < room =>
blocks, heavy: rank r has those from r·E/n on
~ return ranks => return [[*range(r * room, (r + 1) * room)] for r in range(n)]
chance, unequal: equal loads are placed by chance
~  n: int) =>  n: int, chance=__import__('random').Random(0))
~ key=loads.__getitem__, reverse=True => key=lambda e: (loads[e], chance.random()), reverse=True
tensors, places: argsort gives tensors, not numbers
- sorted(range(len(loads)), key=loads.__getitem__, reverse=True)
+ torch.tensor(loads).argsort(descending=True)
"""
