"""What the pictures of a result's tree show, read from their artists; how they look is for the eye."""

import numpy as np
import pytest
from sklearn.datasets import make_moons

import flareclust
from flareclust._foundation.errors import UserError
from flareclust.core.density_tree import Branches
from flareclust.core.ward_tree import ward_linkage
from flareclust.experiment.plotting.branches import branches_picture
from flareclust.experiment.plotting.tree import ward_picture


def artist(figure, gid):
    (found,) = [one for one in figure.axes[0].get_children() if one.get_gid() == gid]
    return found


def numbers(figure):
    return [one.get_text() for one in figure.axes[0].texts if one.get_gid() == "number"]


def sites():
    X = make_moons(800, noise=0.06, random_state=0)[0]
    return {"a": X[::2], "b": X[1::2]}


def test_wards_tree_has_a_bracket_for_each_merging_at_its_height_and_a_line_at_the_cut():
    points = np.array([[0.0], [1.0], [10.0], [12.0]])
    tree = ward_linkage(points, np.ones(4))
    figure = ward_picture(tree, np.array([0, 0, 1, 1]), np.array([5, 6, 7, 8]), 2)
    tops = [path.vertices[:, 0].max() for path in artist(figure, "links").get_paths()]
    np.testing.assert_allclose(tops, tree.height)
    (x, _) = artist(figure, "cut").get_xdata()
    assert tree.height[1] < x < tree.height[2]
    assert [one.get_text() for one in figure.axes[0].get_yticklabels()] == [f"{n} rows" for n in (5, 6, 7, 8)]


def test_a_condensed_tree_has_a_bar_for_each_branch_as_wide_as_its_rows_within_its_parent():
    parent, cluster = np.array([-1, 0, 0, 2, 2]), np.array([-1, 0, -1, 1, 2])
    birth, death = np.array([0, 1, 1, 2, 2.0]), np.array([1, 4, 2, 8, 5.0])
    branches = Branches(parent, birth, death, np.array([100, 40, 50, 20, 25.0]), cluster)
    figure = branches_picture(branches, 3)
    bars = [path.vertices for path in artist(figure, "branches").get_paths()]
    np.testing.assert_allclose([np.ptp(bar[:, 0]) for bar in bars], branches.rows)
    np.testing.assert_allclose([bar[:, 1].min() for bar in bars], 1 / death)
    np.testing.assert_allclose([bar[:, 1].max() for bar in bars[1:]], 1 / birth[1:])
    for i in range(1, 5):
        assert bars[parent[i]][:, 0].min() <= bars[i][:, 0].min()
        assert bars[i][:, 0].max() <= bars[parent[i]][:, 0].max()
    assert numbers(figure) == ["0", "1", "2"]


@pytest.mark.parametrize("shape", ["ward", "density"])
def test_the_tree_is_drawn_by_plot_tree_in_a_file_and_in_the_report(tmp_path, shape):
    result = flareclust.run("tree", sites(), k=2, shape=shape, out=tmp_path / "run")
    assert (tmp_path / "run" / "tree.png").exists()
    page = (tmp_path / "run" / "report.html").read_text()
    assert "The tree of the clusters" in page
    assert "data:image/png;base64," in page
    loaded = flareclust.load_result(tmp_path / "run")
    assert loaded.plot_tree().axes[0].get_title(loc="left") == result.plot_tree().axes[0].get_title(loc="left")
    drawn = loaded.disclosure()["results"]["merge_tree"]
    assert [one["name"] for one in drawn["files"]] == ["report.html", "tree.png"]


def test_one_cluster_and_rows_in_one_branch_have_a_picture_too():
    for shape in ("ward", "density"):
        flareclust.run("tree", sites(), k=1, shape=shape).plot_tree().draw_without_rendering()


def test_other_algorithms_have_no_tree():
    with pytest.raises(UserError, match="lloyd builds no tree; tree and proxy do"):
        flareclust.run("lloyd", sites(), k=2).plot_tree()
