"""What each rank calls: written down as it calls it, and read while it runs."""
