"""Tables in files of every format, read in small pieces."""

from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa

from flareclust.data.memory import RowStore
from flareclust.data.tables import File, Numbers, Table

NAMES = ("age", "height", "weight")


SUFFIXES = ("npy", "npz", "csv", "parquet", "feather", "arrow")


def write(folder: Path, suffix: str, frame: pd.DataFrame, name: str = "t") -> File:
    path = folder / f"{name}.{suffix}"
    match suffix:
        case "npy":
            np.save(path, frame.to_numpy())
        case "npz":
            np.savez_compressed(path, X=frame.to_numpy(), columns=np.array(list(frame.columns)))
        case "csv":
            frame.to_csv(path, index=False, float_format="%.17g")
        case "parquet":
            frame.to_parquet(path, row_group_size=17)
        case "feather":
            frame.to_feather(path, chunksize=17)
        case "arrow":
            table = pa.table(frame)
            with pa.OSFile(str(path), "wb") as sink, pa.ipc.new_stream(sink, table.schema) as writer:
                writer.write_table(table, max_chunksize=17)
    return File(path, path.name)


def frame(n: int = 100) -> pd.DataFrame:
    X = np.random.default_rng(0).normal(size=(n, 3)) * 10.0 ** np.arange(-8, 10, 6)
    return pd.DataFrame(X, columns=list(NAMES))


def read(file: File | list[File], folder: Path, memory: int | None = 100, **how: object) -> Table:
    return Numbers(**how).read(file if isinstance(file, list) else [file], RowStore(memory, folder))  # type: ignore[arg-type]
