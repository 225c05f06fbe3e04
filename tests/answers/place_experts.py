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


WRONG = {
    "as_they_come": ("solution", "16.unsorted", "the emptiest rank gets the next",
                     ("sorted(range(len(loads)), key=loads.__getitem__, reverse=True)",
                      "range(len(loads))")),
    "smallest_first": ("solution", "16.smallest-first", "sorted() rises", (", reverse=True", "")),
    "no_room": ("solution", "16.room", "the emptiest rank, however many it has",
                (" if len(ranks[r]) < room", "")),
    "blocks": ("solution", "16.heavy", "rank r has those from r·E/n on",
               ("return ranks", "return [[*range(r * room, (r + 1) * room)] for r in range(n)]")),
    "snake": ("solution", "16.heavy", "sorted, dealt out to the ranks and back again",
              ("    return ranks", "    order = sum(ranks, [])\n"
               "    order.sort(key=loads.__getitem__, reverse=True)\n"
               "    turns = [order[i : i + n][:: 1 - i // n % 2 * 2] for i in "
               "range(0, len(order), n)]\n    return [list(rank) for rank in zip(*turns)]")),
    "total_is_the_last": ("solution", "16.heavy", "the total is set, and not added to",
                          ("totals[emptiest] +=", "totals[emptiest] =")),
    "chance": ("solution", "16.unequal", "equal loads are placed by chance",
               (" n: int)", " n: int, chance=__import__('random').Random(0))"),
               ("key=loads.__getitem__, reverse=True",
                "key=lambda e: (loads[e], chance.random()), reverse=True")),
    "tensors": ("solution", "16.places", "argsort gives tensors, not numbers",
                ("sorted(range(len(loads)), key=loads.__getitem__, reverse=True)",
                 "torch.tensor(loads).argsort(descending=True)")),
    "loads": ("solution", "16.places", "the loads are placed, and not the experts",
              (".append(e)", ".append(loads[e])")),
    "nothing": ("with_a_heap", "16.returns-nothing", "return is forgotten", ("return ranks", "")),
    "empties_the_list": ("solution", "16.changes-argument", "what is placed is taken out",
                         ("    return ranks", "    loads.sort()\n    return ranks")),
}  # fmt: skip
