"""Write the job folders beside this file from the registry: `python -m flareclust.nvflare_jobs`."""

from pathlib import Path

from flareclust.nvflare_jobs import write_all

if __name__ == "__main__":
    for path in write_all(Path(__file__).resolve().parent):
        print(path)
