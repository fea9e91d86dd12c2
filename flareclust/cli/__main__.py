"""`python -m flareclust.cli` is the command `flareclust`."""

from flareclust.cli.main import main

main()
