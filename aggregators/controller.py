"""The path by which jobs name the controller; the class is in `flareclust.flare.controller`."""

from flareclust._foundation.published import found_in

__getattr__ = found_in("flareclust.flare.controller")
