"""The columns of sites' files before a run: from their headers, without their rows."""

import pytest

from flareclust._foundation.errors import UserError
from flareclust.experiment.config import make_experiment
from flareclust.experiment.prepare import prepare
from flareclust.experiment.tables.site_rows import common_columns


@pytest.fixture
def files(tmp_path, monkeypatch):
    """Three sites' files, of which one has other columns, and no way to read their rows."""
    texts = {"a": "age,2019\n1,2\n", "b": "age,2019\n3,x\n", "c": "weight\n5\n"}
    for site, text in texts.items():
        (tmp_path / f"{site}.csv").write_text(text)
    monkeypatch.setattr("flareclust.data.tables.Reader._read_into", None)
    return tmp_path


def test_the_columns_are_those_of_most_headers(files):
    paths = {path.stem: path for path in sorted(files.iterdir())}
    assert common_columns(paths) == ("age", "2019")
    assert common_columns({"c": paths["c"]}) == ("weight",)
    assert common_columns({"a": paths["a"], "gone": files / "gone.csv"}) == ("age", "2019")


def test_columns_that_no_site_has_are_refused_by_the_headers(files):
    settings = {"algorithm": "masked", "data": str(files), "partition": "none", "k": 2}
    assert prepare(make_experiment(**settings, columns=["weight", "2019"])).agreement == "may-lack"
    with pytest.raises(UserError, match=r"no site has a column 'wieght' \(did you mean 'weight'"):
        prepare(make_experiment(**settings, columns=["wieght", "2019"]))


def test_a_first_row_of_numbers_is_a_header_where_columns_are_named(files):
    (files / "a.csv").write_text("2018,2019\n1,2\n")
    settings = {"algorithm": "masked", "data": str(files), "partition": "none", "k": 2}
    assert prepare(make_experiment(**settings, columns=["2018", "2019"])).columns == ("2018", "2019")


def test_one_file_is_read_in_the_columns_that_are_chosen_whatever_the_others_hold(tmp_path):
    lines = [f"p{i},{i % 7},{i % 3},{'fm'[i % 2]}" for i in range(40)]
    (tmp_path / "all.csv").write_text("\n".join(["patient,age,crp,sex", *lines]))
    asked = {"algorithm": "lloyd", "data": str(tmp_path / "all.csv"), "k": 2, "n_sites": 2}
    found = prepare(make_experiment(columns=["crp", "age"], **asked))
    assert found.columns == ("crp", "age")
    assert sum(len(rows) for rows in found.sites.values()) == 40
    with pytest.raises(
        UserError,
        match=r"column 'sex' is not numeric.* read text and dates by a schema \(--schema, schema=; flareclust",
    ):
        prepare(make_experiment(columns=["age", "sex"], **asked))
    with pytest.raises(UserError, match=r"has no column 'agee' \(did you mean 'age'\?\)"):
        prepare(make_experiment(columns=["agee"], **asked))
