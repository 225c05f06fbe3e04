"""The learner's copies of the lessons, in work/, and the map of what is solved."""
