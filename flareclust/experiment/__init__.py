"""An experiment: what it is, its federation, its course and its result; and studies of many."""
