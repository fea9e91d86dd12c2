"""Rows change their groups in company only, so that many rounds tell no more about few rows than one does.

Two groups that differ by one row have sums that differ by that row, however many rows they have. So a site with a policy
remembers, as long as a job lasts, which rows have been in the same groups in all that it told: a block. In the next round
a part of a block goes to another group if it has at least `least` rows; what is left over goes with the nearest such
part, and where there is none, the block stays together. So every group that is told is made of whole blocks, every block
has at least `least` rows, and whatever is computed from the sums of any rounds is computed from sums over blocks.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

import numpy as np

from flareclust.core.lloyd import assign
from flareclust.errors import Refusal
from flareclust.typing import BoolArray, FloatArray, IntArray


class Company:
    """Which rows of a site have been together in all that it told in a job.

    Args:
        least: smallest number of rows of a block.
        everything: whether sums over all rows are told as well: then no row may be left out, as the rest would tell it.
    """

    def __init__(self, least: int, *, everything: bool = False) -> None:
        self.least, self.everything = least, everything
        self._blocks: IntArray | None = None
        self._grouped = self._closed = self._clustered = False

    def begins(self) -> None:
        """Note that another message is being made."""
        self._grouped, self._closed = False, self._blocks is not None

    def clusters(self) -> None:
        """Note that the site clusters its rows by itself; raise Refusal where it has done so in an earlier message."""
        if self._clustered:
            raise _once()
        self._clustered = True

    def told(self, labels: IntArray) -> None:
        """Remember the groups of a first message, labels (n,) with -1 for rows of groups that were not told.

        Groups that came from `groups` are remembered already.

        Raises:
            Refusal: something was told in an earlier message; other clusters of the same rows would cut across it.
        """
        if self._grouped:
            return
        if self._closed:
            raise _once()
        self._blocks = np.where(labels < 0, labels.max() + 1, labels) if self.everything else labels.copy()

    def known(self, n: int) -> BoolArray:
        """Return which of the n rows something was told about (n,)."""
        return np.zeros(n, dtype=bool) if self._blocks is None else self._blocks >= 0

    def groups(self, data: FloatArray, labels: IntArray, centroids: FloatArray, *, of_known: bool = False) -> IntArray:
        """Return the groups (n,) that may be told in the place of `labels`, -1 for rows that are in none, and remember them.

        Args:
            data: rows (n, d).
            labels: the group that each row would be in (n,), in 0..k-1.
            centroids: of the groups (k, d); rows that are left over go to the nearest that they may go to.
            of_known: whether rows about which nothing was told yet stay in none.
        """
        self._grouped = True
        if self._blocks is None:
            self._blocks = np.full(len(data), 0 if self.everything else -1, dtype=np.int64)
        groups, blocks, n_blocks = labels.copy(), np.full(len(data), -1, dtype=np.int64), 0
        for block in np.unique(self._blocks):
            rows = np.flatnonzero(self._blocks == block)
            if block < 0 and of_known:
                groups[rows] = -1
                continue
            size = np.bincount(labels[rows], minlength=len(centroids))
            enough = np.flatnonzero(size >= self.least)
            alone = rows[size[labels[rows]] < self.least]
            if block < 0:
                groups[alone] = -1
            elif len(alone):
                enough = enough if len(enough) else np.array([int(size.argmax())])
                groups[alone] = enough[assign(data[alone], centroids[enough])[0]]
            for group in enough:
                blocks[rows[groups[rows] == group]] = n_blocks
                n_blocks += 1
        self._blocks = blocks
        return groups


def _once() -> Refusal:
    return Refusal("tells clusters of its own once in a job (its policy)")


#: What the answer that is being computed is held to; None where nobody holds it to anything.
_COMPANY: ContextVar[Company | None] = ContextVar("flareclust company", default=None)


@contextmanager
def in_company(company: Company | None) -> Iterator[None]:
    """Hold all groups that are computed inside to `company`."""
    if company is not None:
        company.begins()
    token = _COMPANY.set(company)
    try:
        yield
    finally:
        _COMPANY.reset(token)


def current() -> Company | None:
    """Return what the groups that are being computed are held to."""
    return _COMPANY.get()
