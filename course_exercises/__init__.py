"""The course's exercises: for each lesson a file with its cases, mistakes and rules.

A check imports the one file that declares its exercise. What several lessons need lies in files
named after what they offer. ``docs/adding-an-exercise.md`` shows how.
"""

_DECLARED = {
    "lesson_00_hello_ranks": "my_share",
    "lesson_01_point_to_point": "exchange pass_right in_order",
    "lesson_02_collectives": "my_broadcast my_gather my_reduce my_all_gather my_reduce_scatter",
    "lesson_03_cost_model": "star_seconds bus_bandwidth half_bandwidth_bytes",
    "lesson_04_ring_all_reduce": "ring_all_reduce ring_reduce_scatter ring_all_gather ring_seconds",
    "lesson_05_gradient_averaging": "average_gradients broadcast_parameters same_everywhere "
    "train_step",
    "lesson_06_ddp": "train_ddp accumulate_step",
    "lesson_07_gpus": "all_reduce_seconds average_while_computing exchange_edges first_missing",
    "lesson_08_groups": "grid_groups my_all_to_all transpose",
    "lesson_09_trees_at_scale": "tree_broadcast recursive_doubling fastest hierarchical_all_reduce",
    "lesson_10_mini_ddp": "make_buckets MiniDDP sync_batch_norm",
    "lesson_11_debugging": "test_all_reduce first_difference seconds_lost",
    "lesson_12_recovery": "Checkpoint train_resumable micro_batches",
    "lesson_13_sharding": "ShardedOptimizer gathered_linear prefetched "
    "clip_global_norm bytes_per_rank",
    "lesson_14_tensor_parallel": "parallel_mlp vocab_parallel_cross_entropy ring_attention",
}
INDEX: dict[str, tuple[str, ...]] = {
    file: tuple(names.split()) for file, names in _DECLARED.items()
}
