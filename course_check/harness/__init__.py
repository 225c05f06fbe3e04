"""What runs in a rank next to an answer, in grading beside a student's code, which may read it:
nothing here knows what is expected of an answer."""
