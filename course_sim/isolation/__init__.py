"""What a process has to itself, given to threads."""
