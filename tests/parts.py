"""Rows in parts that lie in this process: what a cluster does, without one."""

import numpy as np

from flareclust.core.parts import Parts, computed, extent_of


class LocalParts(Parts):
    """Computes each part at once; what is kept beside a part cannot be changed, as on a cluster."""

    def __init__(self, *arrays):
        self.arrays = [np.asarray(array, dtype=np.float64) for array in arrays]
        super().__init__([extent_of(array) for array in self.arrays])

    def keep(self, function, *own, shared=()):
        return list(self.in_turn(function, *own, shared=shared))

    def in_turn(self, function, *own, shared=()):
        for array, *mine in zip(self.arrays, *own, strict=True):
            found = computed(array, self.view, function, *mine, *shared)
            for value in found if isinstance(found, tuple) else (found,):
                if isinstance(value, np.ndarray):
                    value.setflags(write=False)
            yield found

    def check_unchanged(self):
        pass


def cut(X, *places):
    """Return the rows (n, d) cut into parts at these places."""
    return LocalParts(*(part for part in np.split(X, places) if len(part)))
