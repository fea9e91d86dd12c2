"""Tables that the tests write to files."""

from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa

NAMES = ("age", "height", "weight")


def _write(path: Path, X: np.ndarray, names: tuple[str, ...] = NAMES) -> Path:
    frame = pd.DataFrame(X, columns=list(names))
    match path.suffix:
        case ".npy":
            np.save(path, X)
        case ".npz":
            np.savez(path, X=X, columns=np.array(names))
        case ".csv":
            frame.to_csv(path, index=False, float_format="%.17g")
        case ".parquet":
            frame.to_parquet(path)
        case ".feather":
            frame.to_feather(path)
        case ".arrow":
            _write_arrow(path, pa.table(frame))
    return path


def _write_arrow(path: Path, table: pa.Table, *, stream: bool = False) -> None:
    new = pa.ipc.new_stream if stream else pa.ipc.new_file
    with pa.OSFile(str(path), "wb") as sink, new(sink, table.schema) as writer:
        writer.write_table(table)
