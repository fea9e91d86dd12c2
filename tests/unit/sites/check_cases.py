"""Kits whose rows the tests of `flareclust site check` write."""

import re

from flareclust.sites.check import check


def rows(kit, **columns):
    file = kit.parent / "north.csv"
    names = list(columns)
    lines = [",".join(names), *(",".join(map(str, row)) for row in zip(*columns.values(), strict=True))]
    file.write_text("\n".join(lines) + "\n")
    return file


def wrong(kit, words):
    (error,) = check(kit).errors
    assert re.search(words, error), error
