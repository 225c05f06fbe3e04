"""``rehearse``: a script for GPUs, unchanged, on modelled ones."""
