"""What `print(result)` shows fits on a terminal of 24 lines of 80 letters."""

from dataclasses import replace

import flareclust


def test_a_result_fits_on_a_screen_whatever_it_has(tmp_path):
    result = flareclust.run("portfolio", "iris", k=3, n_sites=3, out=tmp_path / "out")
    lines = str(result).splitlines()
    assert lines[0].startswith("portfolio, inprocess: 3 of 3 centroids, 3 sites")
    assert "rows by cluster: 0: " in str(result)
    assert lines[-1].startswith("files: ")
    metrics = {f"measure_{i}": 1e9 * i for i in range(30)}
    many = replace(result, metrics=metrics, warnings=["x" * 300 + "\x1b[31m"] * 40, saved_rows=tuple(range(99)))
    lines = str(many).splitlines()
    assert len(lines) <= 23
    assert max(map(len, lines)) < 80
    assert "\x1b" not in str(many)
    assert "and 34 more warnings" in lines
