"""The description of columns: what a site sends, and the union, scale and errors that a server makes of it."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from flareclust._foundation.errors import BadMessage, JobFailed, Refusal
from flareclust.core.scaling import KnownSpread, divisors_of
from flareclust.data.tables import Table
from flareclust.preparation import alignment
from flareclust.preparation.columns import by_site, common, gather, in_common, sharing, sums_of
from flareclust.preparation.result import columns_of
from flareclust.protocol.columns import Columns
from flareclust.protocol.schema import Schema
from tests.examples import examples


def table(names: str, n: int = 5, seed: int = 0, **more) -> Table:
    columns = tuple(names.split())
    return Table(np.random.default_rng(seed).normal(3.0, 2.0, (n, len(columns))), columns, **more)


def replies(sites: dict[str, Table], *, sums: bool = False, min_count: int = 2) -> dict:
    return {
        s: alignment.DESCRIPTION.pack(alignment.describe(t, sums=sums, min_count=min_count)) for s, t in sites.items()
    }


def described(sites: dict[str, Table]) -> tuple[Columns, KnownSpread]:
    """Return the columns of sites, and the sums over their rows."""
    sent = replies(sites, sums=True)
    columns = gather(sent)
    return columns, sums_of(columns, sent)


def test_the_union_keeps_the_order_of_the_sites_and_knows_who_has_what():
    columns = gather(replies({"b": table("crp iron"), "a": table("age crp"), "c": table("iron")}))
    assert columns.names == ("age", "crp", "iron")
    assert columns.sites == ("a", "b", "c")
    assert columns.masks.tolist() == [[True, True, False], [False, True, True], [False, False, True]]
    assert by_site(columns) == {"a": ["age", "crp"], "b": ["crp", "iron"], "c": ["iron"]}
    assert sharing(columns) == "3 columns in all: 0 at every site, 2 at several, 1 at one site only"
    assert in_common(columns) == "in common: a and b 1, a and c 0, b and c 1"
    assert in_common(gather(replies({"a": table("x")}))) is None
    assert in_common(gather(replies({"a": table("x"), "b": table("x")}))) is None
    assert in_common(gather(replies({f"s{i}": table(f"x y{i}") for i in range(6)}))) is None


def test_only_names_and_the_number_of_rows_leave_a_site_unless_sums_are_asked_for():
    sent = alignment.describe(table("age crp", n=7), sums=False, min_count=2)
    assert sent["rows"] == 7
    assert not sent["mean"].size
    assert not sent["m2"].size
    assert set(sent) == set(alignment.DESCRIPTION.fields)


@settings(max_examples=examples(60), deadline=None)
@given(st.data())
def test_mean_and_deviation_are_those_of_the_pooled_rows_of_the_sites_that_have_the_column(data):
    names = ["a", "b", "c", "d"]
    rng = np.random.default_rng(data.draw(st.integers(0, 999)))
    held = data.draw(st.lists(st.sets(st.sampled_from(names), min_size=1), min_size=1, max_size=5))
    sites = {
        f"s{i}": Table(rng.normal(1e3, 5.0, (int(rng.integers(3, 9)), len(own) + 1)), (*sorted(own), "shared"))
        for i, own in enumerate(held)
    }
    columns, sums = described(sites)
    for j, name in enumerate(columns.names):
        pooled = np.concatenate([t.X[:, t.columns.index(name)] for t in sites.values() if name in t.columns])
        assert sums.counts[j] == len(pooled)
        assert sums.mean[j] == pytest.approx(pooled.mean(), rel=1e-12)
        assert sums.deviation[j] == pytest.approx(pooled.std(), rel=1e-9)


def test_a_constant_column_is_centred_and_not_divided_by_zero():
    rows = np.column_stack([np.full(6, 4.0), np.arange(6.0)])
    table = Table(rows, ("same", "other"))
    columns, sums = described({"s": table})
    deviation = divisors_of(sums.deviation)
    assert deviation[0] == 1.0
    X, _ = alignment.own_view(table, replace(columns, mean=sums.mean, deviation=deviation).sent())
    assert not X[:, 0].any()
    assert X[:, 1].std() == pytest.approx(1.0)


@pytest.mark.parametrize(
    "rows",
    [[[1.0, 2.0], [3.0, 5.0]], [[1.0, 2.0]] * 4, [[0.0, 0.0], [1.0, 1.0], [2.0, 2.0]]],
    ids=["two rows", "one row repeated", "the mean is a row"],
)
def test_sums_that_would_tell_a_row_stay_at_the_site(rows):
    sent = alignment.describe(Table(np.array(rows), ("a", "b")), sums=True, min_count=1)
    assert not sent["mean"].size
    assert not sent["m2"].size


def test_a_column_whose_sums_no_site_may_send_is_named():
    small, large = Table(np.eye(2), ("rare", "shared")), table("shared other", n=9)
    with pytest.raises(JobFailed, match=r"no site has enough rows to disclose the mean of rare.*scale=none"):
        described({"small": small, "large": large})


def test_sites_without_a_common_column_are_named_by_groups():
    sites = {"a": table("age crp"), "b": table("crp iron"), "c": table("Age sodium"), "d": table("sodium")}
    with pytest.raises(JobFailed) as caught:
        gather(replies(sites))
    text = str(caught.value)
    assert "2 groups without a column in common: a (age, crp), b (crp, iron); c (Age, sodium), d (sodium)" in text
    assert "Names that differ in spelling only: 'age' and 'Age'." in text
    with pytest.raises(JobFailed, match="Are the columns named alike"):
        gather(replies({"a": table("age"), "b": table("crp")}))


def test_without_a_column_of_all_sites_common_says_who_has_what():
    columns = gather(replies({"a": table("x y"), "b": table("y z"), "c": table("z w")}))
    with pytest.raises(JobFailed, match=r"no column is common to all sites: a \(x, y\), b \(y, z\), c \(z, w\)"):
        common(columns)
    pair = gather(replies({"a": table("x y"), "b": table("y z")}))
    shared, of_all = common(pair, KnownSpread(np.arange(3), np.arange(3.0), np.arange(3.0) + 5))
    assert shared.names == ("y",)
    assert of_all is not None
    assert (of_all.counts, of_all.mean, of_all.deviation) == (1, 1.0, 6.0)


# ---- hidden names ----


def test_a_hidden_name_is_matched_and_not_disclosed():
    sites = {
        "a": table("crp viral_load", salt="s3cret of sixteen", hidden=frozenset({"viral_load", "crp"})),
        "b": table("crp iron", salt="s3cret of sixteen"),
    }
    sent = replies(sites)
    words = [value.astype("<u4").tobytes() for value in (sent["a"]["names"], sent["a"]["codes"])]
    assert not any(b"viral" in word or b"crp" in word for word in words)
    columns = gather(sent)
    assert columns.names[0] == "crp", "another site sent the name that this one hid"
    assert columns.names[1].startswith("hidden-")
    assert columns.masks.tolist() == [[True, True, False], [True, False, True]]


def test_two_codes_never_have_the_same_name():
    """With a salt nobody can check that a name belongs to its code; the first site to send one keeps it."""
    sites = {"a": table("x y", salt="one"), "b": table("x y", salt="one")}
    sent = replies(sites)
    sent["b"]["names"] = packed(b'["y", "x"]')
    assert gather(sent).names == ("x", "y")
    sent = replies({"a": table("x y", salt="one"), "b": table("z y", salt="one")})
    sent["b"]["names"] = packed(b'["x", "y"]')
    names = gather(sent).names
    assert names[:2] == ("x", "y")
    assert names[2].startswith("hidden-")


def test_codes_depend_on_the_salt():
    plain, salted, other = table("crp"), table("crp", salt="one"), table("crp", salt="two")
    assert len({int(alignment._codes_of(t)[0]) for t in (plain, salted, other)}) == 3


def test_codes_are_the_same_in_every_version():
    """A result is compared with late rows by the codes that it was made with."""
    for salt, code in (("", 1534451482201696768), ("s3cret of sixteen", 1040403146512519307)):
        assert alignment._codes_of(table("crp", salt=salt)).tolist() == [code]


def test_sites_with_different_salts_are_informed():
    sites = {"a": table("crp", salt="one"), "b": table("crp", salt="two"), "c": table("crp", salt="one")}
    with pytest.raises(JobFailed, match=r"different salts: a, c; b\. Agree on one"):
        gather(replies(sites))


# ---- columns without names ----


def test_sites_without_names_match_only_with_as_many_columns():
    three, four = Table(np.ones((5, 3))), Table(np.ones((5, 4)))
    assert gather(replies({"a": three, "b": three})).names == tuple(f"column {j} of 3" for j in (1, 2, 3))
    with pytest.raises(JobFailed, match="groups without a column in common"):
        gather(replies({"a": three, "b": four}))


# ---- the site's view ----


def test_a_site_sees_its_own_columns_in_the_order_of_the_federation():
    columns = gather(replies({"a": table("x y z"), "b": table("z w x", seed=1)}))
    mine = table("z w x", seed=1)
    X, has = alignment.own_view(mine, columns.sent())
    assert [columns.names[j] for j in has] == ["x", "z", "w"]
    np.testing.assert_array_equal(X, mine.X[:, [2, 0, 1]])
    np.testing.assert_array_equal(columns.spread("b", X)[:, columns.mask("b")], X)
    assert np.isnan(columns.spread("b", X)[:, ~columns.mask("b")]).all()


def test_a_column_that_the_federation_does_not_know_is_left_out_and_none_at_all_refuses():
    columns = gather(replies({"a": table("x y")}))
    X, has = alignment.own_view(table("new y"), columns.sent())
    assert has.tolist() == [1]
    assert X.shape == (5, 1)
    with pytest.raises(Refusal, match="shares no column with the federation"):
        alignment.own_view(table("new other"), columns.sent())


def test_places_says_where_the_columns_of_both_are():
    has, own = alignment.places(np.array([7, 8, 9]), np.array([9, 7, 5]))
    assert (has.tolist(), own.tolist()) == ([0, 2], [1, 0])


def test_what_is_sent_and_kept_is_the_columns_again():
    columns, sums = described({"a": table("x y"), "b": table("y z", seed=1)})
    columns = replace(columns, mean=sums.mean, deviation=divisors_of(sums.deviation))
    again = columns_of(columns.sent() | columns.kept())
    assert (again.names, again.sites) == (columns.names, columns.sites)
    for name in ("codes", "masks", "mean", "deviation"):
        np.testing.assert_array_equal(getattr(again, name), getattr(columns, name))


# ---- malformed descriptions ----


def packed(text: bytes) -> np.ndarray:
    return np.frombuffer(text + b"\0" * (-len(text) % 4), "<u4").astype(np.int64)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"names": packed(b'["x"]')}, "a name or null for every code"),
        ({"names": packed(b'{"x": 1, "y": 2}')}, "expected a list of names"),
        ({"names": packed(b"[1, 2]")}, "expected a list of names"),
        ({"names": packed(b'["x", ""]')}, "expected a list of names"),
        ({"names": packed(b"[" * 40_000)}, "expected JSON text"),
        ({"names": packed(b"\xff\xfe\xff")}, "expected JSON text"),
        ({"names": np.array([2**40])}, "expected JSON text"),
        ({"codes": np.array([5, 5])}, "more than once|those of the names"),
        ({"codes": np.array([5, 6])}, "those of the names"),
        ({"names": packed(b'["x", "x"]')}, "names: hold one more than once"),
        ({"names": packed(b'["x", null]')}, "those of the names"),
        ({"names": packed(b'["x", "\\ud800"]')}, "printable characters"),
        ({"names": packed(b'["x", "y\\u0000"]')}, "printable characters"),
        ({"names": packed(b'["x", "hidden-1"]')}, "do not begin with 'hidden-'"),
        ({"names": packed(b'["x", "' + 301 * b"y" + b'"]')}, "at most 300 printable"),
        ({"rows": np.array(0)}, "rows: expected more"),
        ({"rows": np.array(2), "mean": np.ones(2), "m2": np.ones(2)}, "rows: expected more"),
        ({"rows": np.array(2**60)}, "rows: holds values above"),
        ({"codes": np.array([-5, 5])}, "below 0"),
        ({"codes": np.empty(0, np.int64), "names": packed(b"[]")}, "at least one column"),
        ({"mean": np.ones(1), "m2": np.ones(1)}, "one for every column, or none"),
        ({"m2": np.array([-1.0, 1.0]), "mean": np.ones(2)}, "below 0"),
    ],
)
def test_a_malformed_description_is_refused_before_anything_is_made_of_it(change, words):
    good = replies({"s": table("x y")})["s"]
    with pytest.raises(BadMessage, match=words):
        alignment.DESCRIPTION.check(good | change)


@settings(max_examples=examples(100), deadline=None)
@given(st.lists(st.text(min_size=1, max_size=12).filter(str.isprintable), min_size=1, max_size=8, unique=True))
def test_any_printable_names_travel(names):
    assume(not any(name.startswith(alignment.HIDDEN) for name in names))  # those of the names that sites hide
    rows = Table(np.zeros((3, len(names))), tuple(names))
    assert gather(replies({"s": rows})).names == tuple(names)


def test_the_description_has_no_axis_as_long_as_the_data():
    assert isinstance(alignment.DESCRIPTION, Schema)
    few, many = (alignment.describe(table("x y", n=n), sums=True, min_count=2) for n in (10, 1000))
    assert {k: v.shape for k, v in few.items()} == {k: v.shape for k, v in many.items()}
