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
    return (
        dist.new_group(along, use_local_synchronization=True),
        dist.new_group(down, use_local_synchronization=True),
    )


def of_a_mesh(rows, cols):
    mesh = init_device_mesh("cpu", (rows, cols), mesh_dim_names=("down", "along"))
    return mesh.get_group("along"), mesh.get_group("down")


WRONG = """
== members_alone
members_only, not-together: a group is its members' business, one thinks (pytorch/pytorch#130102)
~ along, use_local_synchronization=True => along
~ down, use_local_synchronization=True => down
== each_in_turn
last_one_kept, not-a-member: what new_group returned last is kept
-         if rank // cols == r:
-             row = group
+         row = group
one_too_few, last-missing: range ends one too early
~ for r in range(rows): => for r in range(rows - 1):
row_too_short, too-short: the last rank of a row is left out
~ for c in range(cols)]) => for c in range(cols - 1)])
~ rank // cols == r: => rank // cols == r and rank % cols < cols - 1:
lists_of_groups, lists: groups are made, and their ranks returned
-     return row, column
+     return (dist.get_process_group_ranks(row), dist.get_process_group_ranks(column))
== of_a_mesh
column_for_row, swapped: the dimension of the rows is taken for the row
~ mesh.get_group("along"), mesh.get_group("down") => mesh.get_group("down"), mesh.get_group("along")
"""
