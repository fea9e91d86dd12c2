"""Small libraries that are preloaded into every process of a host, and the numbers that they read from files."""

import shutil
import subprocess
from pathlib import Path


def compiled(folder: Path, name: str, source: str) -> Path | None:
    """Return the library of a C source, compiled once in a folder; None where there is no compiler."""
    compiler = shutil.which("cc")
    if compiler is None:
        return None
    written, library = folder / f"{name}.c", folder / f"{name}.so"
    if not library.exists():
        written.write_text(source)
        command = [compiler, "-O2", "-shared", "-fPIC", "-o", str(library), str(written), "-ldl"]
        subprocess.run(command, check=True, capture_output=True)
    return library


def set_number(file: Path, number: int) -> None:
    """Write the number that running processes read from a file."""
    file.touch()
    with file.open("r+b") as held:
        held.write(number.to_bytes(8, "little", signed=True))
