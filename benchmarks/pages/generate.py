"""Write the generated parts of the documentation anew.

    python -m benchmarks.pages.generate               # the tables between markers, from the registry
    python -m benchmarks.pages.generate --pictures    # docs/images, from generated data sets

`tests/docs/test_docs.py` fails while a table differs from the registry.
"""

import sys
from collections.abc import Callable, Mapping
from functools import partial

from benchmarks.pages import ROOT
from flareclust._foundation.settings import as_text
from flareclust.data.partition_specs import SPECS
from flareclust.experiment.reports.terminal import parameter_rows
from flareclust.federation.profiles import ClusterProfiles
from flareclust.federation.site import phases_of, stages_of, steps_to_end
from flareclust.protocol.registry import BUILT_IN, Algorithm
from flareclust.protocol.schema import SECONDS, Schema, real
from flareclust.protocol.steps import Step
from flareclust.protocol.task import ASSESSMENT, PLACED, PROFILED_KNOWN, PROFILED_KNOWN_BINS, StepName
from flareclust.testing import ALWAYS, PROMISES


def table(headings: list[str], rows: list[list[str]]) -> str:
    """Return a Markdown table."""
    lines = [headings, ["---"] * len(headings), *rows]
    return "\n".join("| " + " | ".join(cell.replace("|", "\\|") for cell in line) + " |" for line in lines)


def algorithms() -> str:
    """Return a line per built-in algorithm: name, what it is, when to use it."""
    rows = [[f"[`{a.name}`](docs/algorithms/{a.name}.md)", a.title, a.when] for a in BUILT_IN]
    return table(["name", "algorithm", "when to use it"], rows)


def settings() -> str:
    """Return a line per built-in algorithm: name, promises, settings with their defaults."""
    rows = []
    for algorithm in BUILT_IN:
        defaults = ", ".join(f"`{name}={as_text(value)}`" for name, value in algorithm.parameters().items())
        made = ", ".join(sorted(algorithm.promises)) or "none"
        rows.append([f"[`{algorithm.name}`](algorithms/{algorithm.name}.md)", made, defaults])
    return table(["name", "promises", "settings and their defaults"], rows)


def leaves() -> str:
    """Return what leaves a site: a line per algorithm and step, one for the assessment, one for what every reply has."""
    federated = [algorithm for algorithm in BUILT_IN if algorithm.federated]
    rows = []
    for a in federated:
        rows += _first_steps(a, federated)
        rows += [
            [f"`{a.name}`", f"step `{name}`", _arrays(step.schema)]
            for name, step in _plain(a).items()
            if name != StepName.DESCRIBE
        ]
        if a.build(1)[0].member is not None:
            rows.append([f"`{a.name}`", "steps of the algorithm that finds its centroids", "those of that algorithm"])
    rows.append(["all without noise", "the assessment", _arrays(ASSESSMENT)])
    private = [a for a in federated if _of_assessment(a) is not ASSESSMENT]
    for a in private:
        rows.append([f"`{a.name}`", "the assessment", _arrays(_of_assessment(a))])
    rows += [
        [with_profiles(step), f"step `{name}`, of profiles", _arrays(step.schema)]
        for name, step in ClusterProfiles.steps.items()
        if step.jobs != "secure"
    ]
    rows.append(["all of them", "step `place`, of a late site", _arrays(PLACED)])
    rows.append(["all of them", "every reply", f"`{SECONDS}` {real('')}"])
    rows += [[f"`{a.name}`", "not federated", "the rows themselves"] for a in BUILT_IN if not a.federated]
    return table(["algorithm", "sent in", "arrays"], rows)


def _of_assessment(algorithm: Algorithm) -> Schema:
    return algorithm.executor_class().job_steps()[StepName.ASSESS].schema


def with_profiles(step: Step) -> str:
    """Return which algorithms have a step of profiles."""
    if step.jobs == "secure":
        return "`lloyd` with `secure_sums`"
    gaps = step.schema in (PROFILED_KNOWN, PROFILED_KNOWN_BINS)
    return "those with the same columns and no noise" + (", with `missing`" if gaps else "")


def _first_steps(algorithm: Algorithm, federated: list[Algorithm]) -> list[list[str]]:
    """Return a line for each step before the rounds, for all algorithms that have it at once: where the first one has its own."""
    rows = []
    if StepName.DESCRIBE in _plain(algorithm):
        alike = [a for a in federated if StepName.DESCRIBE in _plain(a)]
        if alike[0] is algorithm:
            names = ", ".join(f"`{a.name}`" for a in alike)
            rows.append(
                [
                    names,
                    f"step `{StepName.DESCRIBE}`, before the rounds",
                    _arrays(_plain(algorithm)[StepName.DESCRIBE].schema),
                ]
            )
    return rows


def _plain(algorithm: Algorithm) -> dict[str, Step]:
    """Return the steps of an algorithm's jobs without secure sums."""
    own = steps_to_end(algorithm.executor_class())
    return {name: step for name, step in own.items() if step.jobs != "secure"}


def _arrays(schema: Schema) -> str:
    return ", ".join(f"`{name}` {field}" for name, field in schema.fields.items())


def partitions() -> str:
    """Return a line per way to split a data set over sites."""
    rows = [[f"`{form.usage}`", form.text, "yes" if form.needs_labels else "no"] for form in SPECS.values()]
    return table(["`--partition`", "what it does", "needs labels"], rows)


def promises() -> str:
    """Return a line per promise, with the words of its check."""
    rows = [["all", check.__name__.partition("check_")[2].replace("_", " "), check.__doc__ or ""] for check in ALWAYS]
    for name, check in PROMISES.items():
        makers = ", ".join(f"`{algorithm.name}`" for algorithm in BUILT_IN if name in algorithm.promises)
        rows.append([makers, name, check.__doc__ or ""])
    return table(["made by", "promise", "what is checked"], rows)


def parameters(algorithm: Algorithm) -> str:
    """Return a line per parameter of an algorithm: default, values, side, meaning."""
    rows = [
        [f"`{row['name']}`", f"`{as_text(row['default'])}`", row["values"], row["read_by"], row["meaning"]]
        for row in parameter_rows(algorithm)
    ]
    return table(["parameter", "default", "values", "read by", "meaning"], rows)


def phases() -> str:
    """Return a line per phase, in their order."""
    rows = [
        [f"`{one.name}`" if one.steps else one.name, ", ".join(f"`{step}`" for step in one.steps), one.does]
        for one in phases_of(None)
    ]
    return table(["phase", "steps", "what it does"], rows)


def stages() -> str:
    """Return a line per stage, in their order."""
    return table(["stage", "what it does"], [[f"`{one.name}`", one.does] for one in stages_of(None)])


def page_links() -> str:
    """Return links to the pages of all algorithms, by their titles, for the index."""
    return "**Algorithms:** " + ", ".join(f"[{_title(a)}](algorithms/{a.name}.md)" for a in BUILT_IN)


def page_entries() -> str:
    """Return the entries of the pages of all algorithms in the site's navigation."""
    return "\n".join(f"      - {_title(a)}: algorithms/{a.name}.md" for a in BUILT_IN)


def _title(algorithm: Algorithm) -> str:
    heading = (ROOT / "docs" / "algorithms" / f"{algorithm.name}.md").read_text(encoding="utf-8").partition("\n")[0]
    return heading.removeprefix("# ")


BLOCKS: Mapping[str, Mapping[str, Callable[[], str]]] = {
    "README.md": {"algorithms": algorithms},
    "mkdocs.yml": {"pages": page_entries},
    "docs/contents.md": {"pages": page_links},
    "docs/algorithms.md": {"settings": settings},
    "docs/messages.md": {"leaves": leaves},
    "docs/stages.md": {"phases": phases, "stages": stages},
    "docs/concepts.md": {"partitions": partitions, "promises": promises},
    **{f"docs/algorithms/{a.name}.md": {"parameters": partial(parameters, a)} for a in BUILT_IN},
}


def rendered(file: str) -> str:
    """Return the text of a document with its generated blocks written anew.

    Raises:
        ValueError: a marker is missing or comes twice.
    """
    text = (ROOT / file).read_text(encoding="utf-8")
    for name, make in BLOCKS[file].items():
        start, end = (
            (f"      # {name}", f"      # /{name}")
            if file.endswith(".yml")
            else (f"<!-- {name} -->", f"<!-- /{name} -->")
        )
        if (text.count(start), text.count(end)) != (1, 1):
            raise ValueError(f"{file} must have the lines {start.strip()} and {end.strip()} once each")
        before, _, rest = text.partition(start)
        after = rest.partition(end)[2]
        text = f"{before}{start}\n{make()}\n{end}{after}"
    return text


def pictures() -> None:
    """Draw the two pictures of the documentation; neither shows data that somebody owns. `partial_features.py` draws others."""
    from PIL import Image

    import flareclust

    drawn = {
        "kfed_grid16.png": flareclust.run("kfed", data="grid16", partition="clusters:4", n_sites=8),
        "feca_grid16.png": flareclust.run("feca", data="grid16", partition="iid", n_sites=4, n_init=10),
    }
    for name, result in drawn.items():
        file = ROOT / "docs" / "images" / name
        result.plot().savefig(file, dpi=100, metadata={"Software": None})
        with Image.open(file) as image:
            few = image.convert("RGB").quantize(64)
        few.save(file, optimize=True)


if __name__ == "__main__":
    for document in BLOCKS:
        (ROOT / document).write_text(rendered(document), encoding="utf-8")
    if "--pictures" in sys.argv[1:]:
        pictures()
