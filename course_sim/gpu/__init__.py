"""A modelled GPU for each rank: streams, and NCCL's rules."""
