"""An experiment: what it is, its federation, its run and its result; and studies of many."""
