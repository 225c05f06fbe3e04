"""Tools for a learner's own jobs: watch, compare_gradients, count_memory, doctor, jobs."""
