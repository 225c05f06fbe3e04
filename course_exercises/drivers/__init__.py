"""Drivers run in a rank beside an answer, and use it: a class, a backward pass, a killed save.

A graded rank has these modules in its memory, beside the answer, so nothing in here knows what is
expected of one.
"""
