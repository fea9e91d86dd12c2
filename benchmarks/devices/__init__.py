"""Many small sites on one machine: time and memory of the engine devices."""
