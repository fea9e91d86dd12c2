"""A plugin of pytest for `benchmarks.mutants.tree`: writes the ids of tests that fail, and sees that the copy is what is tested."""

import os
from pathlib import Path

import pytest

FAILURES = "FLARECLUST_MUTANTS_FAILURES"


def pytest_configure() -> None:
    import flareclust

    found, expected = Path(flareclust.__file__).resolve().parent.parent, Path.cwd().resolve()
    if found != expected:
        raise pytest.UsageError(f"tests of {expected} would import flareclust from {found}")


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    _note(report)


def pytest_collectreport(report: pytest.CollectReport) -> None:
    _note(report)


def _note(report: pytest.TestReport | pytest.CollectReport) -> None:
    if report.failed:
        with Path(os.environ[FAILURES]).open("a", encoding="utf-8") as file:
            file.write(f"{report.nodeid}\n")
