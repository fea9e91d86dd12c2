"""Sites and settings that are refused where columns differ, without hidden names."""

import numpy as np
import pandas as pd
import pytest

import flareclust
from flareclust._foundation.errors import JobFailed, UserError
from flareclust.sites.rows import SiteData
from tests.unit.preparation.described_cases import FEDERATED, frames


def test_columns_chosen_by_name_may_be_missing_at_some_sites_only(folder):
    result = flareclust.run("masked", folder, k=4, partition="none", columns=["iron", "lactate", "urea"])
    assert result.columns == ("iron", "lactate", "urea")
    result = flareclust.run("masked", frames(), k=4, columns=["iron", "lactate", "urea"])
    assert result.columns == ("iron", "lactate", "urea")
    with pytest.raises(JobFailed, match=r"north .*none of the columns|north .*has no column"):
        flareclust.run("masked", folder, k=4, partition="none", columns=["urea"], min_sites=3)
    for data in (folder, frames()):
        partition = {"partition": "none"} if data is folder else {}
        with pytest.raises(UserError, match=r"no site has a column 'lactte' \(did you mean 'lactate'\?\)"):
            flareclust.run("masked", data, k=4, columns=["lactate", "lactte"], **partition)
    with pytest.raises(UserError, match="north has none of the columns urea"):
        flareclust.run("masked", frames(), k=4, columns=["urea"])


@pytest.mark.parametrize("name", FEDERATED)
def test_a_site_that_shares_no_column_is_named(name):
    data = frames()
    data["east"] = pd.DataFrame(np.ones((20, 2)), columns=["height", "weight"])
    with pytest.raises(JobFailed, match=r"without a column in common: east \(height, weight\)"):
        flareclust.run(name, data, k=4)


@pytest.mark.parametrize(
    ("name", "text", "words"),
    [
        ("duplicate", "crp,crp,iron\n1,2,3\n4,5,6\n7,8,9\n", "'crp' more than once"),
        ("text", "crp,sex\n1,f\n2,m\n3,f\n", "'sex' is not numeric"),
        ("mixed", "crp,iron\n1,2\n2,high\n3,4\n", "'iron' is not numeric"),
        ("empty", "crp,iron\n1,\n2,\n3,\n", "column 'iron' without any value: choose the others"),
        ("gap", "crp,iron\n1,\n2,3\n3,4\n", "1 cell is missing"),
    ],
)
def test_a_site_with_bad_columns_is_named_and_the_others_go_on(folder, name, text, words):
    (folder / "odd.csv").write_text(text)
    result = flareclust.run("masked", folder, k=4, partition="none")
    odd = next(warning for warning in result.warnings if warning.startswith("odd"))
    assert words in odd
    assert result.centroids_found == 4


def test_a_frame_with_a_repeated_or_non_numeric_column_is_refused_at_once():
    data = frames()
    with pytest.raises(UserError, match="odd: the column crp is there more than once"):
        flareclust.run("masked", {**data, "odd": pd.DataFrame(np.ones((4, 2)), columns=["crp", "crp"])}, k=4)
    when = pd.to_datetime(["2026-01-01", "2026-01-02"])
    for column, values in (("sex", ["f", "m"]), ("when", when), ("code", ["1", "2"]), ("empty", [None, None])):
        with pytest.raises(UserError, match=f"odd: .*column '{column}'.*leave it out"):
            flareclust.run("masked", {**data, "odd": pd.DataFrame({"crp": [1.0, 2.0], column: values})}, k=4)
    with pytest.raises(UserError, match="odd: column 2 has no name"):
        flareclust.run("masked", {**data, "odd": pd.DataFrame({"crp": [1.0, 2.0], "": [1, 2]})}, k=4)


def test_a_column_of_another_type_at_one_site_is_named_with_the_site(folder):
    """`sex` is 0 and 1 at the north and letters at the south."""
    for site, values in (("north", "01"), ("south", "fm")):
        file = pd.read_csv(folder / f"{site}.csv")
        file["sex"] = [values[i % 2] for i in range(len(file))]
        file.to_csv(folder / f"{site}.csv", index=False)
    result = flareclust.run("masked", folder, k=4, partition="none")
    assert [warning.split()[0] for warning in result.warnings if "'sex' is not numeric" in warning] == ["south"]


def test_more_clusters_than_the_sites_have_together_says_what_to_do():
    few = {site: frame.iloc[:6] for site, frame in frames().items()}
    for name in ("masked", "proxy"):
        with pytest.raises(UserError, match="k=40 is more than the 18 rows of all sites together; give a smaller k"):
            flareclust.run(name, few, k=40)


@pytest.mark.parametrize("alpha", [0, -0.1, 1.5, "much", True])
def test_a_step_outside_of_0_to_1_is_refused(alpha):
    with pytest.raises(UserError, match="alpha must be a number greater than 0 and of at most 1"):
        flareclust.run("masked", frames(), k=4, alpha=alpha)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("hide: true", "hides columns without a salt"),
        ("salt: 7", "salt is no text of at least 16 characters"),
        ("salt: short", "salt is no text of at least 16 characters"),
        ("salt: long enough to be one\nhide: crp", "hide is neither true nor a list"),
        ("agreement: perhaps", "agreement is none of has, exact, may-lack"),
    ],
)
def test_a_site_configuration_that_cannot_be_meant_is_refused(tmp_path, text, words):
    (tmp_path / "flareclust.yaml").write_text(f"path: x.csv\n{text}\n")
    with pytest.raises(flareclust._foundation.errors.Refusal, match=words):
        SiteData.of(tmp_path, "north")


@pytest.mark.parametrize(
    ("hide", "text"),
    [
        ("[secret]", "age,secret\n1,x\n2,y\n"),
        ("true", "age,secret\n1,\n2,3\n3,4\n"),
        ("[secrets]", "age,secret\n1,2\n3,4\n"),
    ],
)
def test_a_refusal_does_not_tell_a_hidden_name(tmp_path, caplog, hide, text):
    (tmp_path / "rows.csv").write_text(text)
    (tmp_path / "flareclust.yaml").write_text(f"path: rows.csv\nsalt: s3cret of sixteen\nhide: {hide}\n")
    site = SiteData.of(tmp_path, "north")
    with pytest.raises(flareclust._foundation.errors.Refusal) as caught:
        site.table()
    assert str(caught.value) == "cannot use its rows; why is in the site's own log, as it hides names of columns"
    assert "secret" in caplog.text, "the site's own log says why"
    with pytest.raises(flareclust._foundation.errors.Refusal, match="secret"):
        site.table(reader_owns_them=True)
