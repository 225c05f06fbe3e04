"""Answers to grid_groups."""

import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh


def each_in_turn(rows, cols):
    rank = dist.get_rank()
    row = column = None
    for r in range(rows):
        group = dist.new_group([r * cols + c for c in range(cols)])
        if rank // cols == r:
            row = group
    for c in range(cols):
        group = dist.new_group(list(range(c, rows * cols, cols)))
        if rank % cols == c:
            column = group
    return row, column


def members_alone(rows, cols):
    r, c = divmod(dist.get_rank(), cols)
    along = [cols * r + i for i in range(cols)]
    down = [cols * i + c for i in range(rows)]
    return (dist.new_group(along, use_local_synchronization=True),
            dist.new_group(down, use_local_synchronization=True))  # fmt: skip


def of_a_mesh(rows, cols):
    mesh = init_device_mesh("cpu", (rows, cols), mesh_dim_names=("down", "along"))
    return mesh.get_group("along"), mesh.get_group("down")


WRONG = {
    "members_only": ("members_alone", "08.not-together", "a group is its members' business, one "
                     "thinks (pytorch/pytorch#130102)",
                     ("along, use_local_synchronization=True", "along"),
                     ("down, use_local_synchronization=True", "down")),
    "last_one_kept": ("each_in_turn", "08.not-a-member", "what new_group returned last is kept",
                      ("        if rank // cols == r:\n            row = group\n",
                       "        row = group\n")),
    "column_for_row": ("of_a_mesh", "08.swapped", "the dimension of the rows is taken for the row",
                       ('mesh.get_group("along"), mesh.get_group("down")',
                        'mesh.get_group("down"), mesh.get_group("along")')),
    "strided": ("each_in_turn", "08.down-first", "ranks that are `rows` apart are taken for a row",
                ("r * cols + c for c in range(cols)", "r + c * rows for c in range(cols)"),
                ("rank // cols == r", "rank % rows == r"),
                ("list(range(c, rows * cols, cols))", "[c * rows + r for r in range(rows)]"),
                ("rank % cols == c", "rank // rows == c")),
    "one_too_few": ("each_in_turn", "08.last-missing", "range ends one too early",
                    ("for r in range(rows):", "for r in range(rows - 1):")),
    "row_too_short": ("each_in_turn", "08.too-short", "the last rank of a row is left out",
                      ("for c in range(cols)])", "for c in range(cols - 1)])"),
                      ("rank // cols == r:", "rank // cols == r and rank % cols < cols - 1:")),
    "lists_of_groups": ("each_in_turn", "08.lists", "groups are made, and their ranks returned",
                        ("return row, column", "return (dist.get_process_group_ranks(row), "
                         "dist.get_process_group_ranks(column))")),
    "none_for_one": ("members_alone", "08.alone", "one rank has nobody to talk to",
                     ("return (", "return tuple(None if len(r) == 1 else dist.new_group(r, "
                      "use_local_synchronization=True) for r in (along, down))\n    return (")),
    "beyond": ("each_in_turn", "08.no-such-rank", "a row is taken to begin at r · rows",
               ("r * cols + c for c in range(cols)", "r * rows + c for c in range(cols)")),
}  # fmt: skip
