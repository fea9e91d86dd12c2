"""A run on a folder of images per site: which sites there are, the setting `image`, and the contact sheet."""

import csv
import json

import numpy as np
import pytest

import flareclust
from flareclust._foundation.errors import UserError
from flareclust.cli.main import main
from flareclust.evaluation import metrics
from flareclust.experiment.config import make_experiment
from flareclust.experiment.prepare import prepare
from flareclust.experiment.tables.site_rows import site_files
from flareclust.platform.poc import kits
from flareclust.sites.rows import SiteData
from tests.unit.data.image_cases import colour, grey, patterns, write

FEW = {"k": 2, "partition": "none"}


def prepared(folder, algorithm="deepfeca", **settings):
    return prepare(make_experiment(algorithm=algorithm, data=str(folder), engine="inprocess", **{**FEW, **settings}))


# --- which sites there are ---
def test_each_folder_of_images_is_a_site_and_so_is_each_table_file(tmp_path):
    write(tmp_path / "b" / "deep" / "1.png", grey(1))
    np.save(tmp_path / "a.npy", np.ones((3, 64)))
    (tmp_path / ".cache").mkdir()
    assert site_files(tmp_path) == {"a": tmp_path / "a.npy", "b": tmp_path / "b"}
    assert list(site_files(tmp_path)) == ["a", "b"]


def test_folders_beside_table_files_are_no_sites_unless_they_have_images(tmp_path):
    np.save(tmp_path / "a.npy", np.ones((3, 64)))
    (tmp_path / "notes").mkdir()
    assert list(site_files(tmp_path)) == ["a"]


@pytest.mark.parametrize(
    ("names", "reason"),
    [
        (["1.png"], "has images, but no folder per site"),
        (["a/1.png", "b/notes.txt"], r"b has no images \(\.png, .* as the folders of other sites have"),
        (["a/1.png", "a.npy"], "two files for a"),
        (["site one/1.png"], "'site one' cannot be a site's name"),
        (["notes.txt"], "no files ending in .*, and no folders of images"),
    ],
)
def test_what_is_no_folder_of_sites_is_refused(tmp_path, names, reason):
    for name in names:
        write(tmp_path / name, grey(0)) if name.endswith(".png") else (
            (tmp_path / name).parent.mkdir(exist_ok=True),
            (tmp_path / name).touch(),
        )
    with pytest.raises(UserError, match=reason):
        site_files(tmp_path)


def test_a_folder_without_partition_none_is_refused_with_the_advice(tmp_path):
    write(tmp_path / "a" / "1.png", grey(0))
    with pytest.raises(UserError, match="one folder of images, per site say --partition none"):
        prepared(tmp_path, partition="iid")


# --- the setting `image` ---
def test_the_shape_of_the_images_is_the_setting_of_algorithms_that_have_it(tmp_path):
    for site in "ab":
        write(tmp_path / site / "1.png", colour(0, 6, 8))
    assert prepared(tmp_path).params == {"image": "6x8x3"}
    assert prepared(tmp_path, "lloyd").params == {}
    assert prepared(tmp_path).settled({"rounds": 1}) == {"k": 2, "params": {"image": "6x8x3", "rounds": 1}}
    assert prepared(tmp_path).settled({"image": "auto"})["params"] == {"image": "auto"}


def test_sites_with_images_of_other_shapes_are_named(tmp_path):
    write(tmp_path / "a" / "1.png", grey(0, 6, 8))
    write(tmp_path / "b" / "1.png", grey(0, 8, 6))
    with pytest.raises(UserError, match=r"b has images of 8x6x1 where a has 6x8x1 \(height x width x channels\)"):
        prepared(tmp_path)


def test_a_site_with_a_damaged_image_is_left_out_and_named(tmp_path):
    patterns(tmp_path, n=10)
    (tmp_path / "a" / "00.png").write_bytes(b"damaged")
    result = flareclust.run("lloyd", tmp_path, k=2, partition="none", rounds=1)
    assert result.left_out == {"a": "cannot use its rows: a/00.png cannot be read: the image is damaged"}


def test_a_folder_of_images_is_copied_into_the_kit_of_a_poc(tmp_path):
    write(tmp_path / "images" / "sub" / "1.png", grey(1))
    (tmp_path / "kit" / "local").mkdir(parents=True)
    assert kits.place(tmp_path / "kit", tmp_path / "images", None) is None
    np.testing.assert_array_equal(SiteData.of(tmp_path / "kit" / "local", "a").table().X, [grey(1).ravel()])
    assert kits.file_of(tmp_path / "kit").is_dir()


# --- from a folder to a picture ---
def test_one_command_clusters_a_folder_of_images(tmp_path, monkeypatch, capsys):
    pytest.importorskip("flareclust.deep")
    kinds = patterns(tmp_path / "images")
    monkeypatch.chdir(tmp_path)
    settings = ("--set", "rounds=1", "--set", "augment=none", "--engine", "inprocess", "--no-track", "--json")
    with pytest.raises(SystemExit, match="0"):
        main(["run", "deepfeca", "--data", "images/", "--partition", "none", "--k", "4", "--out", "out", *settings])
    printed = json.loads(capsys.readouterr().out)
    assert printed["params"]["image"] == "12x16x1"
    assert (printed["n_sites"], printed["warnings"]) == (3, [])
    result = flareclust.load_result("out")
    assert result.labels.shape == (120,)
    assert metrics.truth_metrics(result.centroids, result.labels, y=kinds)["ari"] > 0.9
    assert (tmp_path / "out" / "picture.png").read_bytes().startswith(b"\x89PNG")
    with (tmp_path / "out" / "labels.csv").open(newline="") as file:
        lines = list(csv.DictReader(file))
    assert len(lines) == 120
    assert all((tmp_path / "images" / line["site"] / line["id"]).is_file() for line in lines)


def test_rows_of_folders_of_images_have_their_files_as_ids(tmp_path):
    write(tmp_path / "a" / "deep" / "1.png", grey(1))
    write(tmp_path / "a" / "2.png", grey(1))
    write(tmp_path / "b" / "1.png", grey(1))
    assert prepared(tmp_path).ids == {"a": ["2.png", "deep/1.png"], "b": ["1.png"]}
    np.save(tmp_path / "c.npy", np.ones((3, 64)))
    assert prepared(tmp_path).ids == {}  # labels.csv has ids for all sites or for none


def test_a_result_of_images_has_a_contact_sheet_and_one_of_tables_has_no_picture(tmp_path):
    patterns(tmp_path)
    result = flareclust.run("deepfeca", tmp_path, k=4, partition="none", rounds=0)
    assert result.plot().axes[0].images[0].get_gid() == "images"
    assert 'alt="images of each cluster"' in result._repr_html_()
    table = np.random.default_rng(0).normal(size=(60, 64))  # as wide as embeddings, and not among them
    of_tables = flareclust.run("deepfeca", {"a": table[:30], "b": table[30:]}, k=2, rounds=0, image="none")
    assert of_tables.sites == {}
    assert "<img" not in of_tables._repr_html_()
    of_tables.save(tmp_path / "tables")
    assert not (tmp_path / "tables" / "picture.png").exists()
