"""Tables of a schema of which a site lacks columns: for algorithms that take sites with different ones."""

import numpy as np
import pytest

import flareclust
from flareclust import UserError

SCHEMA = """columns:
  a: {type: number, unit: mm}
  b: {type: number, unit: kg}
  c: {type: number, unit: mg/l}
  sex: {type: category, values: [f, m]}
"""


@pytest.fixture
def folder(tmp_path):
    rng = np.random.default_rng(0)
    (tmp_path / "data").mkdir()
    (tmp_path / "schema.yaml").write_text(SCHEMA)
    for site in ("north", "south", "west"):
        group = rng.integers(3, size=120)
        rows = np.array([[0, 0, 0], [9, 0, 900], [0, 9, 900]])[group] + rng.normal(size=(120, 3)) * [1, 1, 100]
        names, sex = ["a", "b", "c"], site != "west"
        lines = [",".join([*names, *(["sex"] if sex else []), "class"])]
        for cells, one in zip(rows, group, strict=True):
            own = [str(cell) for cell in cells] + ([str(rng.choice(["f", "m"]))] if sex else [])
            lines.append(",".join([*own, f"k{one}"]))
        (tmp_path / "data" / f"{site}.csv").write_text("\n".join(lines) + "\n")
    (tmp_path / "data" / "west.mapping.yaml").write_text("lacks: [sex]\n")
    return tmp_path


@pytest.mark.parametrize("name", ["masked", "proxy"])
def test_a_category_that_one_site_lacks_decides_no_clusters(folder, name):
    about = {"partition": "none", "schema": folder / "schema.yaml", "truth": "class"}
    result = flareclust.run(name, str(folder / "data"), k=3, **about)
    assert not result.left_out
    assert result.arrays["column_masks"][:, list(result.columns).index("sex=f")].tolist() == [True, True, False]
    assert result.params["scale"] == "standard"
    assert result.params["categories"] == [["sex=f", "sex=m"]]
    assert result.metrics["ari"] > 0.9
    own = flareclust.read_table(folder / "data" / "west.csv", folder / "schema.yaml")
    assert own.columns == ("a", "b", "c")


def test_algorithms_for_the_same_columns_refuse_a_site_that_lacks_one(folder):
    about = {"partition": "none", "schema": folder / "schema.yaml", "truth": "class"}
    with pytest.raises(UserError, match=r"west lacks sex=f, sex=m .*portfolio needs the same columns.*masked"):
        flareclust.run("portfolio", str(folder / "data"), k=3, **about)


@pytest.mark.parametrize(
    ("lacks", "words"),
    [("[sx]", "has no column 'sx' .did you mean"), ("[a, b, c, sex]", "lacks names all features")],
)
def test_what_a_mapping_says_is_checked(folder, lacks, words):
    (folder / "data" / "west.mapping.yaml").write_text(f"lacks: {lacks}\n")
    with pytest.raises(UserError, match=words):
        flareclust.run("masked", str(folder / "data"), k=3, partition="none", schema=folder / "schema.yaml")


@pytest.fixture
def different(tmp_path):
    """Two files of numbers with two columns each, one of them common, and with ids and classes."""
    rng = np.random.default_rng(0)
    (tmp_path / "own").mkdir()
    for site, names in {"north": ("a", "b"), "south": ("a", "c")}.items():
        group = np.arange(60) % 2
        rows = group[:, None] * 9 + rng.normal(size=(60, 2))
        lines = [f"{i},{x},{y},k{one}" for i, ((x, y), one) in enumerate(zip(rows, group, strict=True))]
        (tmp_path / "own" / f"{site}.csv").write_text("\n".join([f"who,{','.join(names)},class", *lines]) + "\n")
    return tmp_path / "own"


@pytest.mark.parametrize("name", ["masked", "proxy", "fkm-imputed"])
def test_without_a_schema_each_file_has_the_columns_that_it_has(different, name):
    result = flareclust.run(name, str(different), k=2, partition="none", truth="class", id_column="who")
    assert not result.left_out
    assert list(result.columns) == ["a", "b", "c"]
    assert result.metrics["ari"] == 1


def test_without_a_schema_a_mapping_gives_a_file_the_names_of_the_others(different):
    south = different / "south.csv"
    south.write_text(south.read_text().replace("who,a,", "who,Wert A,"))
    (different / "south.mapping.yaml").write_text("columns:\n  a: {from: Wert A}\n")
    result = flareclust.run("masked", str(different), k=2, partition="none", truth="class", id_column="who")
    assert list(result.columns) == ["a", "b", "c"]


def test_without_a_schema_algorithms_for_the_same_columns_name_what_a_file_lacks(different):
    with pytest.raises(UserError, match=r"^south lacks b, and portfolio needs the same columns"):
        flareclust.run("portfolio", str(different), k=2, partition="none", truth="class", id_column="who")
