"""Answers to grid_groups."""

import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh


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
== solution
last_one_kept, not-a-member: what new_group returned last is kept
-         if rank in members:
-             found.append(made)
-     return found[0], found[1]
+         found.append(made)
+     return found[rows - 1], found[-1]
lists_of_groups, lists: groups are made, and their ranks returned
-     return found[0], found[1]
+     return tuple(map(dist.get_process_group_ranks, found))
== members_alone
members_only, not-together: a group is its members' business, one thinks (pytorch/pytorch#130102)
~ along, use_local_synchronization=True => along
~ down, use_local_synchronization=True => down
== of_a_mesh
column_for_row, swapped: the dimension of the rows is taken for the row
~ mesh.get_group("along"), mesh.get_group("down") => mesh.get_group("down"), mesh.get_group("along")
"""
