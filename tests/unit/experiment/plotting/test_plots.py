"""What a picture of a federation shows, read from its artists; how it looks is for the eye."""

import numpy as np
import pytest
from matplotlib.colors import to_rgba
from matplotlib.figure import Figure
from matplotlib.patches import Circle
from PIL import Image
from sklearn.decomposition import PCA

from flareclust._foundation.errors import UserError
from flareclust._foundation.typing import FloatArray
from flareclust.experiment.plotting.federation import _MOST_PANELS, federation_picture
from flareclust.experiment.plotting.style import PALETTE, cluster_colour, ink_on, save

CENTROIDS = np.array([[0.0, 0.0], [5.0, 5.0], [0.0, 5.0]])


def _sites(m: int, d: int = 2, n: int = 20) -> dict[str, FloatArray]:
    rng = np.random.default_rng(m * 100 + d)
    return {f"site-{i}": rng.normal(size=(n, d)) for i in range(m)}


def _offsets(figure: Figure, gid: str) -> FloatArray:
    found = [c for c in figure.axes[0].collections if c.get_gid() == gid]
    return np.asarray(found[0].get_offsets()) if found else np.empty((0, 2))


def _legend(figure: Figure) -> list[str]:
    return [text.get_text() for text in figure.legends[0].get_texts()]


def _circles(figure: Figure) -> list[Circle]:
    return [patch for patch in figure.axes[0].patches if isinstance(patch, Circle)]


def _drawn(axes, gid):
    """Return the colour of each row that is drawn, by its place."""
    rows = next(c for c in axes.collections if c.get_gid() == gid)
    return {tuple(x): tuple(c[:3]) for x, c in zip(rows.get_offsets(), rows.get_facecolors(), strict=True)}


def test_every_row_is_drawn_in_the_colour_of_its_cluster_on_the_map_and_on_the_panel_of_its_site():
    sites = _sites(3)
    labels = {name: np.arange(20) % 4 - 1 for name in sites}
    figure = federation_picture(sites, CENTROIDS, labels=labels)
    everywhere, panels = _drawn(figure.axes[0], "rows"), figure.axes[1:]
    assert len(everywhere) == 60
    assert [panel.get_title() for panel in panels] == list(sites)
    for (name, X), panel in zip(sites.items(), panels, strict=True):
        alone = _drawn(panel, "site")
        assert alone.keys() == {tuple(x) for x in X}
        for x, label in zip(X, labels[name], strict=True):
            colour = PALETTE[label] if label >= 0 else "#bbbbbb"
            assert everywhere[tuple(x)] == alone[tuple(x)] == pytest.approx(to_rgba(colour)[:3])


def test_rows_without_labels_have_the_colour_of_the_nearest_centroid():
    figure = federation_picture({"a": CENTROIDS + 0.1}, CENTROIDS)
    drawn = _drawn(figure.axes[0], "rows")
    assert [drawn[tuple(x)] for x in CENTROIDS + 0.1] == [to_rgba(colour)[:3] for colour in PALETTE[:3]]


def test_panels_have_the_axes_of_the_map_and_numbers_are_at_the_centroids(tmp_path):
    figure = federation_picture(_sites(5), CENTROIDS, columns=["age", "c$r$p"])
    save(figure, tmp_path / "p.png")
    limits = {(axes.get_xlim(), axes.get_ylim()) for axes in figure.axes}
    assert len(limits) == 1
    axes = figure.axes[0]
    assert {text.get_text(): text.get_position() for text in axes.texts} == {
        str(c): tuple(centroid) for c, centroid in enumerate(CENTROIDS)
    }
    assert (axes.get_xlabel(), axes.get_ylabel()) == ("age", "c$r$p")
    assert axes.get_aspect() == 1.0


def test_thirty_sites_and_clusters_have_panels_and_colours_of_their_own(tmp_path):
    rng = np.random.default_rng(0)
    centroids = rng.normal(size=(30, 2)) * 20
    sites = {f"clinic {i}": centroids + rng.normal(size=(30, 2)) for i in range(31)}
    figure = federation_picture(sites, centroids, title="x" * 60)
    assert len(figure.axes) == 1 + _MOST_PANELS
    assert "below: the first 30 sites" in figure.get_supxlabel()
    assert len({cluster_colour(c, 30) for c in range(30)}) == 30
    file = save(figure, tmp_path / "p.png")
    with Image.open(file) as image:
        assert image.width == 900  # so that 11 points are 10 pixels where it is shown 400 pixels wide
        assert image.height < 2200


def test_words_on_a_colour_can_be_read():
    assert (ink_on("#ffffff"), ink_on("#000000"), ink_on(PALETTE[1]), ink_on(PALETTE[4])) == (
        "#1a1a1a",
        "white",
        "#1a1a1a",
        "white",
    )


def test_recovered_and_true_centroids_are_where_they_should_be():
    true = CENTROIDS[:2] + 0.5
    figure = federation_picture(_sites(2), CENTROIDS, true_centroids=true)
    np.testing.assert_array_equal(_offsets(figure, "recovered"), CENTROIDS)
    np.testing.assert_array_equal(_offsets(figure, "true"), true)
    assert _legend(figure) == ["centroid and number of a cluster", "true centroid"]


def test_radii_are_circles_around_the_recovered_centroids_in_two_features():
    figure = federation_picture(_sites(2), CENTROIDS, radii=np.array([1.0, 2.0, 0.0]))
    assert [(circle.center, circle.radius) for circle in _circles(figure)] == [
        ((0.0, 0.0), 1.0),
        ((5.0, 5.0), 2.0),
        ((0.0, 5.0), 0.0),
    ]
    assert "radius" in _legend(figure)
    axes = figure.axes[0]
    assert axes.get_aspect() == 1.0
    assert axes.get_ylim()[1] > 7.0  # a circle is never cut off
    assert "adii" not in figure.get_supxlabel()


def test_without_radii_there_are_no_circles():
    figure = federation_picture(_sites(2), CENTROIDS)
    assert _circles(figure) == []
    assert "radius" not in _legend(figure)


def test_more_features_show_the_principal_plane_without_radii_and_say_so():
    sites = {name: X * [5.0, 1.0, 3.0, 0.1] for name, X in _sites(2, d=4).items()}
    centroids = np.array([[1.0, 2.0, 3.0, 4.0], [0.0, -1.0, 0.0, 2.0]])
    figure = federation_picture(sites, centroids, radii=np.ones(2))
    assert _circles(figure) == []
    assert "Radii are not drawn" in figure.get_supxlabel()

    pooled = np.concatenate(list(sites.values()))
    oracle = PCA(2).fit(pooled)
    directions = oracle.components_ * np.sign([c[np.abs(c).argmax()] for c in oracle.components_])[:, None]
    expected = (pooled - pooled.mean(axis=0)) @ directions.T
    drawn = _offsets(figure, "rows")
    np.testing.assert_allclose(drawn[np.argsort(drawn[:, 0])], expected[np.argsort(expected[:, 0])], atol=1e-9)
    np.testing.assert_allclose(_offsets(figure, "recovered"), (centroids - pooled.mean(axis=0)) @ directions.T)
    shares = 100 * oracle.explained_variance_ratio_
    axes = figure.axes[0]
    assert axes.get_xlabel() == f"principal component 1 ({shares[0]:.1f} %)"
    assert axes.get_ylabel() == f"principal component 2 ({shares[1]:.1f} %)"


def test_one_feature_is_a_strip_per_site_with_radii_as_intervals():
    sites = {"a": np.array([[1.0], [2.0]]), "b": np.empty((0, 1)), "c": np.array([[7.0]])}
    figure = federation_picture(
        sites, np.array([[1.5], [7.0]]), true_centroids=np.ones((1, 1)), radii=np.array([0.5, 1.0])
    )
    axes = figure.axes[0]
    assert [label.get_text() for label in axes.get_yticklabels()] == ["centroids", "a", "b (no rows)", "c"]
    heights = dict(zip(["centroids", "a", "b", "c"], axes.get_yticks(), strict=True))
    drawn = {float(x): float(y) for x, y in _offsets(figure, "rows")}
    assert sorted(drawn) == [1.0, 2.0, 7.0]
    assert abs(drawn[1.0] - heights["a"]) < 0.5
    assert abs(drawn[7.0] - heights["c"]) < 0.5
    assert _offsets(figure, "recovered").tolist() == [[1.5, 3.0], [7.0, 3.0]]
    intervals = [line.get_xdata() for line in axes.lines if line.get_gid() == "radius"]
    np.testing.assert_allclose(intervals, [[1.0, 2.0], [6.0, 8.0]])
    assert _circles(figure) == []


@pytest.mark.parametrize("d", [1, 2, 3, 40])
@pytest.mark.parametrize("n", [0, 1, 2])
def test_hardly_any_rows_and_one_centroid_can_be_drawn(tmp_path, d: int, n: int):
    sites = {"empty": np.empty((0, d)), "small": np.ones((n, d))}
    figure = federation_picture(sites, np.zeros((1, d)), true_centroids=np.ones((1, d)), radii=np.ones(1))
    assert len(_offsets(figure, "rows")) == n
    assert save(figure, tmp_path / "p.png").stat().st_size > 1000


def test_only_so_many_rows_are_drawn_the_same_ones_every_time(monkeypatch):
    monkeypatch.setattr("flareclust.experiment.plotting.federation.MOST_ROWS", 100)
    sites = _sites(2, n=500)
    first, second = federation_picture(sites, CENTROIDS), federation_picture(sites, CENTROIDS)
    drawn = _offsets(first, "rows")
    assert len(drawn) == 100
    assert {tuple(x) for x in drawn} <= {tuple(x) for X in sites.values() for x in X}
    np.testing.assert_array_equal(drawn, _offsets(second, "rows"))
    assert (
        first.get_supxlabel()
        == "100 of 1,000 rows of 2 sites, coloured by cluster;\nbelow: each site, in the same axes"
    )


@pytest.mark.parametrize("d", [1, 2])
def test_names_with_dollar_signs_and_underscores_are_printed_as_they_are(tmp_path, d: int):
    sites = {"_north": np.zeros((1, d)), "$\\no$ {": np.ones((1, d)), "h" * 60: np.empty((0, d))}
    figure = federation_picture(sites, np.zeros((1, d)), title="cost $\\no$")
    save(figure, tmp_path / "p.png")
    if d == 1:
        shown = [label.get_text() for label in figure.axes[0].get_yticklabels()][1:]
        assert shown == ["_north", "$\\no$ {", "h" * 23 + "… (no rows)"]
    else:
        assert [panel.get_title() for panel in figure.axes[1:]] == ["_north", "$\\no$ {", "h" * 20 + "…"]


@pytest.mark.parametrize("d", [1, 2, 5])
def test_the_same_input_gives_the_same_bytes(tmp_path, monkeypatch, d: int):
    monkeypatch.setattr("flareclust.experiment.plotting.federation.MOST_ROWS", 50)

    def draw() -> Figure:
        return federation_picture(_sites(3, d), np.zeros((2, d)), radii=np.array([1.0, 2.0]), title="twice")

    figure = draw()
    first = save(figure, tmp_path / "1.png").read_bytes()
    assert save(figure, tmp_path / "2.png").read_bytes() == first
    assert save(draw(), str(tmp_path / "3.png")).read_bytes() == first
    assert first.startswith(b"\x89PNG")
    assert b"tEXt" not in first  # no date, no program


def test_saving_a_figure_again_does_not_move_its_axes(tmp_path):
    # With these values matplotlib's own layout moves the axes from one drawing to the next.
    sites = {"s": np.linspace(-37, 37, 10)[:, None], "empty": np.empty((0, 1))}
    figure = federation_picture(sites, np.zeros((2, 1)), radii=np.array([37.0, 74.0]), title="x")
    assert save(figure, tmp_path / "1.png").read_bytes() == save(figure, tmp_path / "2.png").read_bytes()


def test_only_png_files_are_written(tmp_path):
    with pytest.raises(UserError, match=r"picture\.pdf"):
        save(federation_picture(_sites(1), CENTROIDS), tmp_path / "picture.pdf")
    assert list(tmp_path.iterdir()) == []
