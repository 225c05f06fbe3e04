"""What runs in a rank beside an answer, and drives it: a class, a backward pass, a killed save.

A graded rank may read these files, so nothing in here knows what is expected of an answer.
"""
