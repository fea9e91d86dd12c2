"""Specifications of splits: how they are written, and what is refused."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from flareclust._foundation.errors import UserError
from flareclust.data.partition import partition
from flareclust.data.partition_specs import SPECS, Spec, parse
from tests.unit.data.partition_cases import SPLITS, _rows


@pytest.mark.parametrize(
    ("text", "spec"),
    [
        ("iid", Spec("iid")),
        (" dirichlet:0.3 ", Spec("dirichlet", 0.3)),
        ("clusters:4", Spec("clusters", 4.0)),
        ("beta:0.1", Spec("beta", 0.1)),
        ("beta:0.1,nearest", Spec("beta", 0.1, "nearest")),
        ("none", Spec("none")),
        ("owners", Spec("owners")),
        ("owners:10", Spec("owners", 10.0)),
        ("features-overlap:0.3", Spec("features-overlap", 0.3)),
        ("qmnist-a2", Spec("qmnist-a2")),
    ],
)
def test_specifications_are_parsed_and_written_back(text: str, spec: Spec) -> None:
    assert parse(text) == spec
    assert str(spec) == text.strip()
    assert parse(spec) == spec


@given(st.floats(1e-300, 1e300))
def test_writing_a_specification_loses_nothing(value: float) -> None:
    spec = Spec("dirichlet", value)
    assert parse(str(spec)) == spec


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("dirichet:0.3", r"unknown partition 'dirichet' \(did you mean 'dirichlet'"),
        ("", "unknown partition ''.*choose one of iid, dirichlet:A"),
        ("iid:3", "'iid' takes no value, got '3'"),
        ("none:1", "takes no value"),
        ("dirichlet", "'dirichlet' needs a value; write 'dirichlet:A'"),
        ("dirichlet:", "needs a value"),
        ("dirichlet:zero", "needs a positive number, got 'zero'"),
        ("dirichlet:0", "needs a positive number, got '0'"),
        ("power:-1", "needs a positive number"),
        ("beta:inf", "needs a positive number"),
        ("beta:nan", "needs a positive number"),
        ("clusters:2.5", "needs an integer of at least 1, got '2.5'"),
        ("clusters:0", "needs an integer of at least 1"),
        ("owners:", r"'owners' needs a value; write 'owners\[:N\]'"),
        ("owners:0", "needs an integer of at least 1, got '0'"),
        ("owners:2.5", "needs an integer of at least 1"),
        ("owner", r"unknown partition 'owner' \(did you mean 'owners'"),
        ("beta:0.1,furthest", "no option 'furthest'; write 'beta:B"),
        ("beta:0.1,", "no option ''"),
        ("power:1,nearest", "no option 'nearest'"),
        ("features-overlap", "'features-overlap' needs a value; write 'features-overlap:S'"),
        ("features-overlap:1", "'features-overlap' needs a number between 0 and 1, got '1'"),
        ("features-shared:0", "needs a number between 0 and 1"),
        ("features-shared:nan", "needs a number between 0 and 1"),
        ("feature-shared:0.1", r"unknown partition 'feature-shared' \(did you mean 'features-shared'"),
        ("har-a1:0.3", "'har-a1' takes no value"),
    ],
)
def test_wrong_specifications_say_what_to_write(text: str, message: str) -> None:
    with pytest.raises(UserError, match=message):
        parse(text)


def test_every_listed_specification_has_a_line_of_help_and_works() -> None:
    X, y = _rows(each=10)
    for name, form in SPECS.items():
        assert form.usage.startswith(name)
        assert form.text
        assert "\n" not in form.text
        if form.splits_columns:
            spec = name if form.value == "no" else f"{name}:0.5"
            with pytest.raises(UserError, match=rf"'{spec}' assigns columns as well as rows.*split_features"):
                partition(spec, X, y, 3, np.random.default_rng(0))
        elif name != "none":
            spec = name if form.value == "no" or form.value_may_lack else f"{name}:2"
            assert len(partition(spec, X, y, 3, np.random.default_rng(0), owners=np.arange(len(X)) % 3)) == 3


@pytest.mark.parametrize("spec", SPLITS)
def test_site_numbers_that_make_no_sense_are_refused(spec: str) -> None:
    X, y = _rows(each=2)
    rng = np.random.default_rng(0)
    with pytest.raises(UserError, match=r"more sites \(50\) than rows \(10\)"):
        partition(spec, X, y, 50, rng)
    for m in (0, -1, True, 2.0):
        with pytest.raises(UserError, match="number of sites must be an integer of at least 1"):
            partition(spec, X, y, m, rng)  # type: ignore[arg-type]
    with pytest.raises(UserError, match=r"more sites \(1\) than rows \(0\)"):
        partition(spec, X[:0], y[:0], 1, rng)


@pytest.mark.parametrize(
    ("spec", "labels", "owners", "message"),
    [
        ("clusters:2", None, None, "'clusters:2' needs a class label for every row.*iid, power:A, beta:B"),
        ("dirichlet:1", None, None, r"iid, power:A, beta:B\[,redraw\] work without"),
        ("dirichlet:1", 9, None, r"expected one label per row, shape \(10,\), got shape \(9,\)"),
        ("owners:3", 10, None, "'owners:3' needs to know whose each row is.*; iid, power:A, beta:B"),
        ("owners", 10, None, r"iid, power:A, beta:B\[,redraw\] work without"),
        ("owners", 10, range(9), r"expected one owner per row, shape \(10,\), got shape \(9,\)"),
        ("owners:4", 10, [0, 1, 2] * 3 + [0], "asks for 4 owners, but there are only 3; write 'owners'"),
        ("none", 10, None, "a folder with one file per site, or a mapping"),
    ],
)
def test_a_split_without_what_it_needs_says_which_ones_do_without(spec, labels, owners, message) -> None:
    X, y = _rows(each=2)
    y, owners = None if labels is None else y[:labels], None if owners is None else np.array(owners)
    with pytest.raises(UserError, match=message):
        partition(spec, X, y, 2, np.random.default_rng(0), owners)


def test_labels_may_be_any_values() -> None:
    X, y = _rows(each=4)
    names = np.array(["b", "a", "e", "d", "c"])[y]
    sites = partition("clusters:1", X, names, 5, np.random.default_rng(0))
    assert sorted(str(np.unique(names[rows]).item()) for rows in sites.values()) == list("abcde")
