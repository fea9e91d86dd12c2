"""What the sites sent in one exchange, end to end."""

import numpy as np

from flareclust.protocol.replies import gathered


def test_replies_keep_views_of_what_is_gathered_so_that_it_is_held_once():
    sent = [{"centroids": np.full((k, 2), float(k)), "counts": np.arange(k)} for k in (2, 1, 3)]
    expected = [{name: value.copy() for name, value in reply.items()} for reply in sent]
    arrays, site = gathered(sent)
    assert site.tolist() == [0, 0, 1, 2, 2, 2]
    for reply, own in zip(sent, expected, strict=True):
        for name, value in own.items():
            np.testing.assert_array_equal(reply[name], value)
            assert np.shares_memory(reply[name], arrays[name])
