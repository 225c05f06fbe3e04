"""What went wrong, in words: facts about ranks go in, an error with its whole text comes out."""
