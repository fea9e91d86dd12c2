"""What two versions of flareclust must have in common to take part in one job, as hashes: what sites are asked for, how, and with which settings.

Attributes that have their default are left out, so that a later version can add one without another hash.
"""

import hashlib
import json
from collections.abc import Iterable, Mapping
from dataclasses import MISSING, fields
from typing import Any

from flareclust._foundation.version import REVISION
from flareclust.protocol.params import Params
from flareclust.protocol.schema import Field
from flareclust.protocol.steps import Step

#: Attributes of a step by which neither side recognises it: names of methods, and what stands below by itself.
_LEFT_OUT = ("schema", "method", "merge")


def step_digest(step: Step) -> str:
    """Return the hash of what a step asks for and of what its reply holds."""
    reply = {name: _stated(field) for name, field in step.schema.fields.items()}
    return _digest([_stated(step), reply, step.schema.may_be_empty])


def settings_digest(params: type[Params]) -> str:
    """Return the hash of the names and defaults of an algorithm's settings, which a job states for both sides."""
    defaults = {name: field.get_default(call_default_factory=True) for name, field in params.model_fields.items()}
    return _digest({name: repr(default) for name, default in defaults.items()})


def job_digest(algorithms: Iterable[tuple[Mapping[str, Step], type[Params]]]) -> str:
    """Return the hash of all that must be the same at server and sites for a job to find the same bits.

    Args:
        algorithms: of those that the job asks sites for, the steps by name and the class of the settings.
    """
    asked = [
        (settings_digest(params), {name: step_digest(step) for name, step in steps.items()})
        for steps, params in algorithms
    ]
    return _digest([REVISION, asked])


def _stated(of: Step | Field) -> dict[str, Any]:
    """Return the attributes of a step or a field that differ from their defaults."""
    found = {}
    for field in fields(of):
        value = getattr(of, field.name)
        if field.name not in _LEFT_OUT and (field.default is MISSING or value != field.default):
            found[field.name] = value
    return found


def _digest(about: object) -> str:
    return hashlib.sha256(json.dumps(about, sort_keys=True).encode()).hexdigest()[:12]
