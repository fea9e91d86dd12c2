"""The processes of a federation on one machine: found, started, ended."""
