"""The paths by which kits name the filters; the classes are in `flareclust.flare.filters`."""

from flareclust._foundation.published import found_in

__getattr__ = found_in("flareclust.flare.filters")
