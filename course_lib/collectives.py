"""What a collective is, in one table, for all modules that record, play, compare or draw one.

A row's name is the operation as torch.distributed's documentation has it: an Event's ``op``.
"""

from __future__ import annotations

from typing import NamedTuple


class Collective(NamedTuple):
    """What there is to know of one kind of collective."""

    # c10d's methods of ProcessGroup that make such a call, older names included. c10d's hooks name
    # the call after one of these, in capitals.
    methods: str = ""
    root: str = ""  # whether the root "gives" or "gets"; "" where there is none
    # which field of an Event has to be equal on all ranks, that for what a rank reads or that for
    # what it writes; "" where neither has to be
    equal: str = ""
    writes_what_it_reads: bool = False
    # How gloo goes through a tensor's memory. "as it lies": a transposed tensor is fine, and in one
    # with gaps gloo would touch what is in the gaps. "in order": gloo fills outputs in the order of
    # their elements, so these have to lie in that order.
    memory: str = ""
    fills_a_list: bool = False  # of tensors, which then must not share memory
    # where the blocks that a rank gives or gets may be of different lengths; "" is nowhere
    uneven_on: tuple[str, ...] = ()
    # Note [A barrier is behind all]. On gloo and NCCL a barrier is over only when all collectives
    # that its rank has called on this group before are over. So a rank that comes out of it has
    # waited for them.
    ends_earlier: bool = False


_AS_IT_LIES, _IN_ORDER = "as it lies", "in order"
COLLECTIVES = {
    "all_reduce": Collective("allreduce", "", "bytes_in", True, _AS_IT_LIES),
    "all_reduce_coalesced": Collective(
        "allreduce_coalesced", writes_what_it_reads=True, fills_a_list=True
    ),
    "broadcast": Collective("broadcast", "gives", "bytes_in", True, _AS_IT_LIES),
    "reduce": Collective("reduce", "gets", "bytes_in", True, _AS_IT_LIES),
    "all_gather": Collective(
        "allgather", equal="bytes_out", fills_a_list=True, uneven_on=("nccl",)
    ),
    "all_gather_coalesced": Collective("allgather_coalesced", fills_a_list=True),
    "all_gather_single": Collective(
        "all_gather_single _allgather_base "
        "all_gather_single_coalesced allgather_into_tensor_coalesced",
        equal="bytes_out",
    ),
    "gather": Collective("gather gather_single", "gets", "bytes_in", fills_a_list=True),
    "scatter": Collective("scatter", "gives", "bytes_out", memory=_AS_IT_LIES),
    "reduce_scatter": Collective(
        "reduce_scatter", equal="bytes_in", memory=_IN_ORDER, uneven_on=("gloo", "nccl")
    ),
    "reduce_scatter_single": Collective(
        "reduce_scatter_single _reduce_scatter_base "
        "reduce_scatter_single_coalesced reduce_scatter_tensor_coalesced",
        equal="bytes_in",
    ),
    "all_to_all": Collective("alltoall", fills_a_list=True, uneven_on=("nccl",)),
    "all_to_all_single": Collective(
        "all_to_all_single alltoall_base", memory=_IN_ORDER, uneven_on=("gloo", "nccl")
    ),
    "barrier": Collective("barrier", ends_earlier=True),
    "monitored_barrier": Collective(),
    # they are collectives as well: all ranks meet in the store, and no tensor moves
    "new_group": Collective(),
    "split_group": Collective(),
}
_OTHER = Collective()
MAKE_GROUPS = ("new_group", "split_group")
# what a method of ProcessGroup is called in the documentation
OP_OF_METHOD = {method: op for op, row in COLLECTIVES.items() for method in row.methods.split()}


def collective(op: str) -> Collective:
    """The row of an operation; an empty one for a message, and for an unknown operation."""
    return COLLECTIVES.get(op, _OTHER)
