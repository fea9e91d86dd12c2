"""What a run found: its evaluation, the result that a user gets, and the files that it is saved in."""
