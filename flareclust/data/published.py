"""Data sets that are read from files: where the files lie, where they come from, and what proves them right."""

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from hashlib import sha256
from pathlib import Path
from types import MappingProxyType

import numpy as np

from flareclust._foundation.errors import UserError
from flareclust._foundation.typing import Array
from flareclust.data import published_formats as formats
from flareclust.data.file_formats import listed
from flareclust.data.npy_files import npz_arrays

_SIPU = "http://cs.uef.fi/sipu/datasets/"
_MNIST = "https://ossci-datasets.s3.amazonaws.com/mnist/"
_QMNIST = "https://raw.githubusercontent.com/facebookresearch/qmnist/master/"


@dataclass(frozen=True)
class Official:
    """A data set kept in an npz file.

    Attributes:
        text: one line of description.
        file: the npz file inside the data folder.
        keys: the arrays it must hold.
        sha256: of one npz file with these arrays; another npz of the same arrays has other bytes.
        address: where the data are published.
        convert: makes the arrays from the official files; None where this version cannot.
        downloads: the official files that `convert` needs: name and, where known, pooch's form of the hash.
        content: `content_sha256` of the arrays.
    """

    text: str
    file: str
    keys: tuple[str, ...]
    sha256: str
    address: str
    convert: Callable[[formats.Files], formats.Arrays] | None = None
    downloads: tuple[tuple[str, str | None], ...] = ()
    content: str = ""


def _sipu(name: str, text: str, npz: str, content: str) -> Official:
    family = name.rstrip("0123456789")
    convert = {"s": formats.s_set, "birch": formats.birch_set, "dim": formats.dim_set}[family]
    truth = {"s": "s-originals.zip", "birch": f"b{name[-1]}-gt.txt", "dim": f"{name}.pa"}[family]
    return Official(
        text=text,
        file=f"{name}/{name}.npz",
        keys=("X", "y", "centroids"),
        sha256=npz,
        address=_SIPU,
        convert=partial(convert, name),
        downloads=((f"{name}.txt", None), (truth, None)),
        content=content,
    )


_S = "5000 rows, 2 columns, 15 Gaussian clusters, {} overlap (Fränti and Virmajoki 2006)"
_BIRCH = "100000 rows, 2 columns, 100 clusters {} (Zhang and others 1997)"
_DIM = "1024 rows, {} columns, 16 well separated Gaussian clusters (Fränti and others 2006)"

OFFICIAL: Mapping[str, Official] = MappingProxyType(
    {
        "s1": _sipu(
            "s1",
            _S.format("hardly any"),
            "bc9ca838a24892e0c23c42bc4e967b7a2feafa187e47bb41da66451a8400c57c",
            "76b25b4c285079d9333dbb278c496507b78df92df8d33e262e60829cf2529e11",
        ),
        "s2": _sipu(
            "s2",
            _S.format("little"),
            "5f0c49dbbe2821d1a1f98fa95e7c9e37dee8b191307e60b51cb335a062ca3146",
            "861c2ccd02774108529e688b5338a511c93c365184fd6260399212ab3569e1fe",
        ),
        "s3": _sipu(
            "s3",
            _S.format("moderate"),
            "a041d8fc768d628af414fd75122c497a19213ae8d02ca629b0232d5fca3dad0e",
            "42ea1fc724ce03de1dcb347ec8ccd5ddfd9240c94da2bd07ca6f14e792e791e0",
        ),
        "s4": _sipu(
            "s4",
            _S.format("strong"),
            "c64f19ab7e29ee284d180bbff4c72162e2205482c5e96eeda4e87b1f1ce77b4b",
            "a29443b3fe49af4513c8fa36790ff3cd30c04f1b09b45b635a6074c67627bac1",
        ),
        "birch1": _sipu(
            "birch1",
            _BIRCH.format("on a regular grid"),
            "91803fecdfb11779aa12dd6687a0930b8e0aa97c54bd99fc8f621152097cf1b7",
            "4f65f470924a4506dbcb56c257c46ea5ac0459cffffd321b4c9025ea501a6886",
        ),
        "birch2": _sipu(
            "birch2",
            _BIRCH.format("along a sine curve"),
            "5cc604932643514b24d1ccdc1ab7c23782492314948193e7d0d0c4e173a6d751",
            "a7a8bb72b9b9bf4276758125c662eb6bf8214dd45d8faf70ba1dd0d8c8bb4976",
        ),
        "dim032": _sipu(
            "dim032",
            _DIM.format(32),
            "0f5ebb7f69c572707767a03df2945179b130a3988f63fb5a33814cd9b8b70bf3",
            "fb7cb087cc79d05f1a38718c94ef1e9423c6f0020885999cfc42619d00e7d829",
        ),
        "dim128": _sipu(
            "dim128",
            _DIM.format(128),
            "9584870b8c55d73140d7a891e705f9614fb73ee31e8654da5ba4fcc0b8500524",
            "45693f967c35fd550493b9584b6872cbd98ebc454338361269fe4e74d3b3c2ad",
        ),
        "dim512": _sipu(
            "dim512",
            _DIM.format(512),
            "dafba7762b126caa43206a84fcc883aeda749e00570f51110ebd0657675f560c",
            "55def496d0e389324f4634069d45fe50decb92ea03be9932d8c5394ddbfa06d2",
        ),
        "dim1024": _sipu(
            "dim1024",
            _DIM.format(1024),
            "d845981954b04ca8a378a94798e735e66c551ceaf124db43dc0b64b9afca7ad5",
            "b86f5c8b079a22c209ae75fa351c2e3aeede978fe68e90451c936a3ede911ad5",
        ),
        "mnist": Official(
            text="60000 training images of handwritten digits, 784 columns, 10 classes",
            file="mnist/mnist.npz",
            keys=("X_train", "y_train"),
            sha256="d2fc8bab397b964798b4c839bd1e705e10a4bb65f4d56a88002229d145796751",
            address=_MNIST,
            convert=formats.mnist,
            downloads=(
                (
                    "train-images-idx3-ubyte.gz",
                    "sha256:440fcabf73cc546fa21475e81ea370265605f56be210a4024d2ca8f203523609",
                ),
                (
                    "train-labels-idx1-ubyte.gz",
                    "sha256:3552534a0a558bbed6aed32b30c495cca23d567ec52cac8be1a0730e8010255c",
                ),
            ),
            content="7a2ea3c22dbe8343b2b97f4f534b0fca77ac0c9aa48fc4f6ed1faefc819f1cd7",
        ),
        "qmnist": Official(
            text="mnist with the writer of each digit from QMNIST as the row's owner, 539 writers",
            file="qmnist/qmnist_labels.npz",
            keys=("train",),
            sha256="a8dd78e8e675a3ce02112e5f711743a831426b048bf7570d33e60b3a4de4f3e7",
            address=_QMNIST,
            convert=formats.qmnist,
            downloads=(("qmnist-train-labels-idx2-int.gz", "md5:0058f8dd561b90ffdd0f734c6a30e5e4"),),
            content="417cd1f6e2143de81d319ba0d373457f4edc1b3cb9222e5795ad6b452680220f",
        ),
        "har": Official(
            text="10299 windows of smartphone sensors, 561 features (recomputed), 6 activities, 30 subjects as owners",
            file="har/har561_rebuilt.npz",
            keys=("X", "y", "subject", "feature_names"),
            sha256="2dccadeca39fe26acd385b07f1286233b6587a291e51525bd894524336380481",
            address="https://archive.ics.uci.edu/static/public/240/human+activity+recognition+using+smartphones.zip",
        ),
        "femnist": Official(
            text="30653 digits of 250 writers as owners, 784 columns, no classes (Garst and Reinders 2024)",
            file="femnist_garst/femnist_garst.npz",
            keys=("X", "client"),
            sha256="7a2d9dd2c2b61b714933da879686016bd60c9c289b039f5642b0e07881e5a2f2",
            address="https://github.com/swiergarst/fedKMeans",
        ),
        "garst_grid": Official(
            text="grid16 as published with its 5 clients as owners; garst_grid:beta1_ppc200_noise1.3 picks a setting",
            file="garst_grid/garst_grid.npz",
            keys=(),
            sha256="b73fa7fdf8659f18e82441d82f74004fc43060c964ffbdf8936996571485c054",
            address="https://github.com/swiergarst/fedKMeans",
        ),
        "cifar10_subset": Official(
            text="5000 test images of CIFAR-10, 3072 columns, 10 classes",
            file="cifar10_subset/cifar10_subset.npz",
            keys=("X", "y"),
            sha256="6e30e679cd972064999ea1b31400895b24595380b2f6680b5b79f67279ae9787",
            address="https://www.cs.toronto.edu/~kriz/cifar-10-python.tar.gz",
        ),
    }
)


def data_folder() -> Path:
    """Return the folder of the data sets: $FLARECLUST_DATA, or else the user's cache."""
    if named := os.environ.get("FLARECLUST_DATA"):
        return Path(named).expanduser()
    import pooch

    return Path(pooch.os_cache("flareclust"))


def read(name: str, folder: Path, keys: tuple[str, ...]) -> dict[str, Array]:
    """Return the arrays `keys` of a data set, fetching it where it is not in the folder.

    Raises:
        UserError: it cannot be fetched, or the file lacks an array.
    """
    path = folder / OFFICIAL[name].file
    if not path.is_file():
        fetch(name, folder)
    arrays = npz_arrays(path, keys)
    if missing := [key for key in keys if key not in arrays]:
        raise UserError(f"data set {name!r}: {path} lacks the arrays {listed(missing)}; delete it to fetch it anew")
    return arrays


def fetch(name: str, folder: Path) -> Path:
    """Download the official files into `folder`, prove them right, and write the npz file.

    Official files that lie there already are used as they are.

    Raises:
        UserError: no network, no way to convert the files, or they are not the published ones.
    """
    import pooch

    official = OFFICIAL[name]
    target = folder / official.file
    if official.convert is None:
        keys = official.keys or ("X_S", "y_S", "client_S for each setting S")
        raise UserError(
            f"data set {name!r}: no file {target}. It cannot be fetched, because this version does not convert the "
            f"published form ({official.address}). Set FLARECLUST_DATA to a folder that holds {official.file}, or put "
            f"one there with the arrays {listed(keys)}"
        )
    files: dict[str, Path] = {}
    for file, known_hash in official.downloads:
        address = official.address + file
        try:
            files[file] = Path(pooch.retrieve(address, known_hash, fname=file, path=target.parent))
        except (OSError, ValueError) as error:
            wanted = " and ".join(other for other, _ in official.downloads)
            raise UserError(
                f"data set {name!r}: no file {target}, and {address} could not be fetched ({type(error).__name__}). "
                f"Put {wanted} from {official.address} into the folder {target.parent}, or set FLARECLUST_DATA to a "
                f"folder that holds {official.file}"
            ) from error
    try:
        arrays = official.convert(files)
        right = formats.content_sha256(arrays) == official.content
    except formats.UNREADABLE:
        right = False
    if not right:
        raise UserError(
            f"data set {name!r}: {' and '.join(map(str, files.values()))} are not the published data, or damaged; "
            "delete them and try again"
        )
    return write(target, arrays)


def verify(name: str, path: Path) -> None:
    """Raise UserError unless an npz file holds the data set as published."""
    official = OFFICIAL[name]
    if sha256(path.read_bytes()).hexdigest() == official.sha256:
        return
    arrays = npz_arrays(path, official.keys)
    complete = official.content and len(arrays) == len(official.keys)
    if not complete or formats.content_sha256(arrays) != official.content:
        raise UserError(f"data set {name!r}: {path} does not hold the published data; delete it to fetch it anew")


def write(target: Path, arrays: Mapping[str, Array]) -> Path:
    """Write an npz file, in such a way that nobody ever sees half of it.

    Raises:
        UserError: the folder cannot be written.
    """
    part = target.with_name(f"{target.stem}.{os.getpid()}.part.npz")
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        np.savez_compressed(part, **arrays)  # type: ignore[arg-type]
        part.replace(target)
    except OSError as error:
        raise UserError(f"{target} cannot be written: {error.strerror}; choose another folder") from error
    return target
