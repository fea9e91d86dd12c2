"""Sweeps and trials that several test files use."""

import re

from flareclust.experiment.sweeps import sweep as sweep_settings
from flareclust.experiment.sweeps import trials as study_trials
from tests.paths import ROOT

PAGE = (ROOT / "docs" / "sweeps.md").read_text(encoding="utf-8")

EXAMPLE = re.search(r"^```toml\n(.*?)^```$", PAGE, flags=re.MULTILINE | re.DOTALL).group(1)

IRIS = {"name": "try", "data": "iris", "algorithms": ["kfed"], "seeds": 2, "n_sites": 3}


def sweep(**settings):
    return sweep_settings.Sweep(**IRIS | settings)


def trial(name="a", seed=0, partition="iid", measure=lambda: study_trials.TrialResult({"l2": 1.0}), **params):
    return study_trials.Trial({"algorithm": name, "partition": partition}, seed, params, measure)
