"""How many small changes of the product its tests notice: `python -m benchmarks.mutants --seed N --number 60`."""
