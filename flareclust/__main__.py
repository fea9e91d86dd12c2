"""`python -m flareclust` is the command `flareclust`."""

from flareclust.cli.main import main

if __name__ == "__main__":
    main()
