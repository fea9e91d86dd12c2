"""The picture of a result: of rows and centroids, or of images where a network embedded them."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from flareclust._foundation.errors import UserError
from flareclust._foundation.extras import require
from flareclust._foundation.typing import FloatArray, IntArray
from flareclust.core.density_tree import Branches
from flareclust.core.ward_tree import Linkage
from flareclust.preparation import result as partial
from flareclust.preparation.scaling import as_clustered, of_directions, scaling_of

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from flareclust.experiment.results.result import Result


def picture_of(result: "Result") -> "Figure":
    """Return the picture, as `Result.plot` describes it."""
    require("plots", "a picture")
    title = f"{result.algorithm}: {result.centroids_found} of {result.k} centroids, {result.took_part}"
    if partial.is_partial(result.arrays) and not result.sites:
        from flareclust.experiment.plotting.features import coverage_picture

        columns = partial.columns_of(result.arrays)
        return coverage_picture(columns.names, columns.sites, columns.masks, result.centroids, title)
    if not result.sites:
        raise UserError(
            "the rows of the sites are not here, so there is no picture of them; the folder of a run on this machine has "
            "picture.png"
        )
    if (shape := image_of(result.arrays)) is not None:
        from flareclust.experiment.plotting.contact_sheet import contact_sheet

        return contact_sheet(result.sites, result.site_labels, shape, result.centroids_found, title=title)
    from flareclust.experiment.plotting.federation import federation_picture

    labels, sites, centroids, true = result.site_labels, result.sites, result.centroids, result.true_centroids
    fitting = {site: labels[site] for site, X in sites.items() if site in labels and len(labels[site]) == len(X)}
    how = "rows of length 1" if of_directions(result.arrays) else "columns scaled" if scaling_of(result.arrays) else ""
    if how:
        sites = {site: as_clustered(result.arrays, X) for site, X in sites.items()}
        centroids = as_clustered(result.arrays, centroids)
        true, title = None if true is None else as_clustered(result.arrays, true), f"{title}, {how}"
    return federation_picture(
        sites,
        centroids,
        labels=fitting,
        true_centroids=true,
        radii=result.arrays.get("radii"),
        columns=result.columns,
        title=title,
    )


def has_tree(arrays: Mapping[str, Any]) -> bool:
    """Return whether a result has a tree of merges, or a condensed one."""
    return bool({"tree_left", "linkage_left", "branches_parent"} & arrays.keys())


def tree_of(result: "Result") -> "Figure":
    """Return the picture, as `Result.plot_tree` describes it."""
    from flareclust.experiment.plotting.branches import branches_picture
    from flareclust.experiment.plotting.tree import ward_picture

    arrays, k, rows = result.arrays, result.centroids_found, result.row_name
    if not has_tree(arrays):
        raise UserError(f"{result.algorithm} builds no tree; tree and proxy do")
    require("plots", "a picture")
    if "tree_left" in arrays:
        return _merge_picture(arrays, k, float(arrays["w"]))
    if "branches_parent" in arrays:
        branches = Branches(*(arrays[f"branches_{name}"] for name in Branches._fields))
        return branches_picture(branches, k, "Where clusters split", row_name=rows)
    linkage = Linkage(*(arrays[f"linkage_{name}"] for name in Linkage._fields))
    group, of = arrays["representative_cluster"], arrays["representative_rows"]
    return ward_picture(linkage, group, of, k, "Ward's tree", row_name=rows)


def _merge_picture(arrays: Mapping[str, Any], k: int, w: float) -> "Figure":
    """Return the picture of how the local clusters of a result were merged into k, with the power w of the distance."""
    from flareclust.experiment.plotting.tree import tree_picture

    sites = [partial.columns_of(arrays).sites[i] for i in arrays["received_site"]]
    left, right, force = (arrays[f"tree_{name}"] for name in ("left", "right", "force"))
    title = "How the sites' clusters were merged"
    return tree_picture(left, right, force, arrays["received_group"], sites, k, title, w=w)


def is_embedded(arrays: Mapping[str, Any]) -> bool:
    """Return whether a result's centroids are among the embeddings of a network, and not among the rows."""
    return "weights" in arrays and "image" in arrays


def image_of(arrays: Mapping[str, Any]) -> tuple[int, int, int] | None:
    """Return height, width and channels of the images in the rows; None where rows are no images."""
    if not is_embedded(arrays):
        return None
    height, width, channels = (int(size) for size in np.asarray(arrays["image"]).ravel())
    return (height, width, channels) if height else None


def shown_images(
    rows: Mapping[str, FloatArray], labels: Mapping[str, IntArray], arrays: Mapping[str, Any]
) -> dict[str, FloatArray]:
    """Return the rows of the sites whose images a contact sheet can show: they have labels, and the shape of the images."""
    shape = image_of(arrays)
    if shape is None:
        return {}
    d = shape[0] * shape[1] * shape[2]
    return {site: X for site, X in rows.items() if len(X) and X.shape[1] == d and len(labels.get(site, ())) == len(X)}
