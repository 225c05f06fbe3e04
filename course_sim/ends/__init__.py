"""What stands beside a rank's code: its process groups, its Works, its buffers."""
