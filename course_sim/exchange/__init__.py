"""What meets what, when, and what comes of it: messages, and calls of whole groups."""
