"""What the pictures of different columns show, read from their artists; how they look is for the eye."""

from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from matplotlib.axes import Axes
from matplotlib.colors import to_hex
from matplotlib.figure import Figure
from scipy.cluster.hierarchy import dendrogram, linkage

from flareclust._foundation.typing import BoolArray, FloatArray
from flareclust.experiment.plotting.features import NAMED, coverage_picture
from flareclust.experiment.plotting.style import PALETTE, save
from flareclust.experiment.plotting.tree import tree_picture

NAN = np.nan
MASKS = np.array([[1, 1, 0, 0], [0, 1, 1, 1]])
CENTROIDS = np.array([[63.0, NAN, 1.5, 7.0], [41.0, 5.5, NAN, 7.0], [52.0, 7.5, 0.5, 7.0]])


def coverage(**changes: object) -> Figure:
    arguments: dict[str, object] = {
        "names": ["age", "sugar", "urea", "weight"],
        "sites": ["north", "south"],
        "masks": MASKS,
        "centroids": CENTROIDS,
        **changes,
    }
    return coverage_picture(**arguments)  # type: ignore[arg-type]


def wide(m: int = 5, D: int = 200, k: int = 3) -> tuple[BoolArray, FloatArray]:
    rng = np.random.default_rng(m)
    masks, centroids = rng.random((m, D)) < 0.4, rng.normal(size=(k, D))
    masks[0] |= ~masks.any(axis=0)
    masks[:, 7] = True
    centroids[rng.random((k, D)) < 0.2] = NAN
    return masks, centroids


def cells(figure: Figure, gid: str) -> FloatArray:
    """Return the table that is drawn, NaN where a cell is left out."""
    found = next(c for axes in figure.axes for c in axes.collections if c.get_gid() == gid)
    return np.ma.filled(np.ma.asarray(found.get_array()), NAN)


def unknown(figure: Figure, shape: tuple[int, int]) -> BoolArray:
    """Return where the grey bars are."""
    bars = next(c for c in figure.axes[1].collections if c.get_gid() == "unknown")
    covered = np.zeros(shape, dtype=bool)
    for path in bars.get_paths():
        (left, top), (right, bottom) = path.vertices.min(axis=0), path.vertices.max(axis=0)
        assert bottom == top + 1
        covered[int(top), int(left) : int(right)] = True
    return covered


def ticks(axes: Axes) -> tuple[list[str], list[str]]:
    return [t.get_text() for t in axes.get_xticklabels()], [t.get_text() for t in axes.get_yticklabels()]


# ---- coverage ----


def test_who_has_which_column_is_drawn_under_its_name() -> None:
    figure = coverage(title="two")
    assert cells(figure, "masks").tolist() == MASKS.tolist()
    upper, lower = figure.axes[:2]
    assert ticks(upper)[1] == ["north", "south"]
    assert ticks(lower) == (["age", "sugar", "urea", "weight"], ["cluster 0", "cluster 1", "cluster 2"])
    assert lower.get_xticks().tolist() == [0.5, 1.5, 2.5, 3.5]  # the middle of each cell
    assert upper.get_ylim() == (2, 0)  # the first site above
    assert upper.get_title(loc="left") == "two"


def test_sites_are_sorted_by_name_and_number() -> None:
    figure = coverage(sites=["site-1", "site-10", "site-2", "north"], masks=np.eye(4))
    labels = ["north", "site-1", "site-2", "site-10"]
    assert ticks(figure.axes[0])[1] == labels
    assert cells(figure, "masks").tolist() == np.eye(4)[[3, 0, 2, 1]].tolist()


def test_centroids_are_shaded_within_their_column_and_hatched_where_unknown() -> None:
    figure = coverage()
    expected = [[1.0, NAN, 1.0, 0.5], [0.0, 0.0, NAN, 0.5], [0.5, 1.0, 0.0, 0.5]]
    np.testing.assert_allclose(cells(figure, "centroids"), expected)
    np.testing.assert_array_equal(unknown(figure, CENTROIDS.shape), np.isnan(CENTROIDS))
    assert next(c for c in figure.axes[1].collections if c.get_gid() == "unknown").get_hatch()
    printed = [t.get_text() for t in figure.axes[1].texts if t.get_gid() == "value"]
    assert printed == ["63", "1.5", "7", "41", "5.5", "7", "52", "7.5", "0.5", "7"]


def test_the_caption_counts_what_is_shared_and_what_is_unknown() -> None:
    assert coverage().get_supxlabel().splitlines() == [
        "2 sites (blue: has the column); 4 columns, each at 1 to 2 of the sites, 1 at all",
        "2 of 12 entries of the centroids unknown (grey); shades within each column",
    ]


def test_many_columns_are_sorted_but_none_is_lost() -> None:
    masks, centroids = wide()
    figure = coverage(names=[f"c{j}" for j in range(200)], sites=list("abcde"), masks=masks, centroids=centroids)
    drawn = cells(figure, "masks").astype(bool)
    assert sorted(map(tuple, drawn.T.tolist())) == sorted(map(tuple, masks.T.tolist()))
    assert ticks(figure.axes[1])[0] == []
    everywhere = masks.all(axis=0).sum()
    assert drawn[:, :everywhere].all()
    center = [np.flatnonzero(column).mean() for column in drawn.T[everywhere:]]
    assert center == sorted(center)
    patterns = [tuple(column) for column in drawn.T.tolist()]
    changes = sum(a != b for a, b in pairwise(patterns))
    assert changes == len(set(patterns)) - 1  # columns of the same sites lie side by side
    # A column keeps its centroids: pairs of mask and known entries are those of the input.
    grey = unknown(figure, centroids.shape)
    pairs = np.concatenate([drawn, grey]).T.tolist()
    assert sorted(pairs) == sorted(np.concatenate([masks, np.isnan(centroids)]).T.tolist())


@pytest.mark.parametrize("D", [NAMED, NAMED + 1])
def test_columns_are_named_while_they_fit(D: int) -> None:
    masks, centroids = wide(D=D)
    figure = coverage(names=[f"c{j}" for j in range(D)], sites=list("abcde"), masks=masks, centroids=centroids)
    assert ticks(figure.axes[1])[0] == ([f"c{j}" for j in range(D)] if D == NAMED else [])
    if D == NAMED:
        assert cells(figure, "masks").tolist() == masks.astype(float).tolist()


@pytest.mark.parametrize(("m", "D", "k"), [(1, 1, 1), (2, 4, 40), (100, 1024, 16), (3, 561, 2)])
def test_pictures_of_any_size_can_be_written(tmp_path: Path, m: int, D: int, k: int) -> None:
    centroids = np.full((k, D), NAN)
    names = ["$\\no$ " + "x" * 60, *[f"_{j}" for j in range(D - 1)]]
    figure = coverage(names=names, sites=["$s_"] * m, masks=np.ones((m, D)), centroids=centroids, title="$\\no$")
    assert max(figure.get_size_inches()) <= 16
    first = save(figure, tmp_path / "1.png").read_bytes()
    assert save(figure, tmp_path / "2.png").read_bytes() == first
    assert unknown(figure, (k, D)).all()


# ---- tree ----

#: Leaves 0 and 2 are merged, then 1 and 3, then both sets; forces 4, 1, 1/16 stand for distances 1/2, 1, 4.
SMALL = {
    "left": np.array([0, 1, 4]),
    "right": np.array([2, 3, 5]),
    "force": np.array([4.0, 1.0, 1 / 16]),
    "group": np.array([0, 1, 0, 1]),
    "sites": ["a", "a", "b", "b"],
    "k": 2,
}


def brackets(figure: Figure) -> list[FloatArray]:
    links = next(c for c in figure.axes[0].collections if c.get_gid() == "links")
    return [np.asarray(path.vertices) for path in links.get_paths()]


def colours(figure: Figure) -> list[str]:
    links = next(c for c in figure.axes[0].collections if c.get_gid() == "links")
    return [to_hex(colour) for colour in links.get_colors()]


def test_mergings_stand_at_the_distance_of_their_force() -> None:
    figure = tree_picture(**SMALL, title="t")  # type: ignore[arg-type]
    drawn = [bracket.tolist() for bracket in brackets(figure)]
    assert drawn == [
        [[0, 0], [0.5, 0], [0.5, 1], [0, 1]],
        [[0, 2], [1, 2], [1, 3], [0, 3]],
        [[0.5, 0.5], [4, 0.5], [4, 2.5], [1, 2.5]],
    ]
    assert colours(figure)[:2] == list(PALETTE[:2])
    assert colours(figure)[2] not in PALETTE
    where = dict(zip(figure.axes[0].get_yticks(), ticks(figure.axes[0])[1], strict=True))
    assert [where[y] for y in range(4)] == ["a/0", "b/0", "a/1", "b/1"]
    assert [float(x) for line in figure.axes[0].lines for x in line.get_xdata()[:1]] == [2.5]  # the cut
    leaves = next(c for c in figure.axes[0].collections if c.get_gid() == "leaves")
    assert leaves.get_offsets().tolist() == [[0, 0], [0, 2], [0, 1], [0, 3]]
    assert [to_hex(c) for c in leaves.get_facecolors()] == [PALETTE[g] for g in (0, 1, 0, 1)]


def test_another_exponent_gives_other_distances() -> None:
    figure = tree_picture(**SMALL, w=4.0)  # type: ignore[arg-type]
    np.testing.assert_allclose([bracket[1, 0] for bracket in brackets(figure)], [4**-0.25, 1, 2])


def test_mergings_without_a_common_column_stand_right_of_all_others() -> None:
    figure = tree_picture(**{**SMALL, "force": np.array([1 / 16, 1 / 64, NAN])})  # type: ignore[arg-type]
    np.testing.assert_allclose([bracket[1, 0] for bracket in brackets(figure)], [4, 8, 1.15 * 8])


def test_the_axis_begins_near_the_mergings_where_all_distances_are_alike() -> None:
    figure = tree_picture(**{**SMALL, "force": np.array([1 / 100, 1 / 121, 1 / 400])})  # type: ignore[arg-type]
    left, right = figure.axes[0].get_xlim()
    assert left == pytest.approx(10 - 0.4 * 10)
    assert right > 20
    assert brackets(figure)[0][:, 0] == pytest.approx([left, 10, 10, left])


@pytest.mark.parametrize("c", [3, 20, 150])
def test_brackets_are_those_of_scipys_dendrogram(c: int) -> None:
    rng = np.random.default_rng(c)
    Z = linkage(rng.normal(size=(c, 2)), "average")
    group = np.zeros(c, dtype=int)
    figure = tree_picture(*Z[:, :2].astype(int).T, Z[:, 2] ** -2.0, group, ["s"] * c, 1)
    drawn = brackets(figure)
    base = figure.axes[0].get_xlim()[0]
    arms = np.sort(dendrogram(Z, no_plot=True)["dcoord"])
    arms[arms == 0] = base
    assert {tuple(sorted(b[:, 0].round(9))) for b in drawn} == set(map(tuple, arms.round(9).tolist()))
    for bracket in drawn:  # no arm of another bracket goes through its upright
        (x, a), (_, b) = sorted(bracket[1:3].tolist(), key=lambda point: point[1])
        for other in drawn:
            arms = [(other[0], other[1]), (other[3], other[2])]
            assert not any(a < end[1] < b and end[0] < x < stop[0] for end, stop in arms)
    assert figure.axes[0].get_ylim()[0] > c - 1  # the last leaf is on the page


def test_sets_without_a_common_column_are_dashed_and_last() -> None:
    figure = tree_picture(*map(np.array, ([0, 4, 5], [1, 2, 3], [4.0, NAN, NAN], [0, 0, 1, -1])), list("abcd"), 2)
    links = next(c for c in figure.axes[0].collections if c.get_gid() == "links")
    dashes = [style[1] is not None for style in links.get_linestyles()]
    assert dashes == [False, True, True]
    heights = [bracket[1, 0] for bracket in brackets(figure)]
    assert heights[0] == 0.5
    assert heights == sorted(set(heights))
    assert figure.get_supxlabel().splitlines()[1:] == [
        "2 mergings without a common column (dashed)",
        "1 in no final cluster (grey)",
    ]


def test_a_local_cluster_of_no_final_cluster_does_not_take_the_colour_from_its_set() -> None:
    figure = tree_picture(**{**SMALL, "group": np.array([0, 1, -1, 1])})  # type: ignore[arg-type]
    assert colours(figure)[0] == PALETTE[0]
    leaves = next(c for c in figure.axes[0].collections if c.get_gid() == "leaves")
    assert to_hex(leaves.get_facecolors()[2]) not in PALETTE


@pytest.mark.parametrize(
    "c", [1, pytest.param(NAMED, marks=pytest.mark.slow), NAMED + 1, pytest.param(400, marks=pytest.mark.slow)]
)
def test_trees_of_any_size_can_be_written(tmp_path: Path, c: int) -> None:
    left, right = (
        np.array([0, *range(c, 2 * c - 2)][: c - 1], dtype=int),
        np.arange(1, c),
    )  # a chain, as deep as a tree can be
    force = 1.0 / np.arange(1, c) ** 2
    figure = tree_picture(left, right, force, np.zeros(c, dtype=int), ["_$x" * 20] * c, 1, title="$\\no$")
    assert len(ticks(figure.axes[0])[1]) == (c if c <= NAMED else 0)
    first = save(figure, tmp_path / "1.png").read_bytes()
    assert save(figure, tmp_path / "2.png").read_bytes() == first
