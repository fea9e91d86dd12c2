"""A site's folder and what it refuses."""

import numpy as np
import pytest
import yaml

from flareclust._foundation.errors import Refusal
from flareclust.sites.config import CONFIG_FILE
from flareclust.sites.rows import SiteData

X = np.arange(12.0).reshape(6, 2)


def site(local, name="site-1", **keys):
    (local / CONFIG_FILE).write_text(yaml.safe_dump(keys))
    return SiteData.of(local, name)


def refusal(data, *, owner=False):
    with pytest.raises(Refusal) as refused:
        data.table(reader_owns_them=owner)
    text = str(refused.value)
    assert "dr-x" not in text
    assert "/" not in text
    return text
