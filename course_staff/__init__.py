"""What makes the course and grades its answers; learners do not get it."""
