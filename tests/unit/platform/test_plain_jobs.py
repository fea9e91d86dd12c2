"""Exported jobs are plain text: no setting holds a brace, with which sites and servers refuse a job."""

import io
import zipfile
from pathlib import Path

import pandas as pd
import pytest

import flareclust
from flareclust._foundation.errors import UserError
from flareclust._foundation.settings import OneOf
from flareclust.engines.options import JobOptions
from flareclust.experiment.tables.typed_rows import exported_settings
from flareclust.platform.admission import _packed_problem
from flareclust.platform.job import build_job, export_job
from flareclust.protocol.registry import BUILT_IN, get
from flareclust.sites.job_settings import _DEEPEST, braced, folder_problem
from tests.served import SCHEMA

FEDERATED = [algorithm for algorithm in BUILT_IN if algorithm.federated]
SUMS = JobOptions(k=3, min_sites=3, secure_sums=True, secure_sites=("north", "south", "east"))


def accepted(folder: Path) -> bool:
    """Return whether sites and server let in each app of an exported job."""
    apps = sorted(folder.glob("app*"))
    assert apps
    for app in apps:
        packed = io.BytesIO()
        with zipfile.ZipFile(packed, "w") as out:
            for file in app.rglob("*"):
                out.write(file, file.relative_to(app))
            assert _packed_problem(out) is folder_problem(app) is None
    return True


@pytest.fixture
def schema(tmp_path):
    file = tmp_path / "schema.yaml"
    file.write_text(SCHEMA, encoding="utf-8")
    return file


@pytest.mark.parametrize("algorithm", FEDERATED, ids=lambda a: a.name)
def test_no_text_in_a_job_of_any_algorithm_has_a_brace(algorithm, tmp_path, schema):
    cases = [({}, JobOptions(k=3, profile=not algorithm.why_no_profile({}))), ({}, SUMS)]
    exported = 0
    for params, options in [*cases, ({"scale": "range"}, JobOptions(k=3))]:
        try:
            params = exported_settings(algorithm.name, params, schema, secure_sums=options.secure_sums) | params
        except UserError:  # the algorithm takes no missing cells, has no such scale, or does not go with masked sums
            continue
        assert accepted(export_job(build_job(algorithm, params, options), tmp_path / "job"))
        exported += "table_schema" in params
    assert accepted(export_job(build_job(algorithm, {}, JobOptions(k=3)), tmp_path / "job"))
    assert exported or "missing" not in algorithm.parameters()


@pytest.mark.parametrize("algorithm", FEDERATED, ids=lambda a: a.name)
def test_no_choice_that_a_setting_names_has_a_brace(algorithm):
    fields = algorithm.executor_class().params_class().own().values()
    named = [list(mark.names) for field in fields for mark in field.metadata if isinstance(mark, OneOf)]
    assert braced([named, [field.default for field in fields if field.default is not None]]) is None


@pytest.mark.parametrize("own", [{"method": "global"}, {"method": "ifca", "k": 2}], ids=lambda own: own["method"])
def test_jobs_of_personalised_models_have_none(own, tmp_path):
    jobs = pytest.importorskip("flareclust.personal.jobs")
    settings = jobs.ExportSettings(**own, sites=("north", "south"), label="ill", classes=2)
    for folder in jobs.export_jobs(settings, tmp_path):
        assert accepted(folder)


@pytest.mark.parametrize("name", ["sex={f}", "{", "a}", "{$HOME}"])
def test_a_column_with_a_brace_in_its_name_is_one_error_at_export(name, tmp_path):
    params = {"categories": [["a", name]], "scale": "range", "table_ranges": {"a": [0.0, 1.0]}}
    with pytest.raises(UserError, match="holds a brace, which no setting of a job may") as caught:
        export_job(build_job(get("masked"), params, JobOptions(k=2)), tmp_path / "job")
    assert repr(name) in str(caught.value)
    assert not (tmp_path / "job").exists()


def test_such_a_column_is_no_trouble_where_there_is_no_job(tmp_path):
    tables = {site: pd.DataFrame({"{size}": [0.0, 0.1, 9.0, 9.1], "sex={f}": [1.0, 1.0, 0.0, 0.0]}) for site in "ab"}
    assert flareclust.run("masked", tables, 2).columns == ("{size}", "sex={f}")


def test_what_is_nested_as_deep_as_no_settings_are_is_refused():
    inner: object = "text"
    for _ in range(_DEEPEST):
        inner = [inner]
    assert braced(inner) is None
    with pytest.raises(ValueError, match="nested too deep"):
        braced([inner])
