"""Options of `flareclust run`; commands that repeat or compare runs share some of them."""

from pathlib import Path
from typing import Annotated

import typer

AlgorithmName = Annotated[str, typer.Argument(help="See `flareclust list`.")]
Data = Annotated[
    str | None,
    typer.Option(
        help="A name from `flareclust data list` (with :pca10 its principal components), a file, a folder. Not for sites that have their own."
    ),
]
K = Annotated[
    str | None,
    typer.Option("--k", help="Number of clusters, or a range 5..25 to choose from; known for the named data sets."),
]
Criterion = Annotated[
    str | None,
    typer.Option(
        "--criterion",
        "--choose-by",
        help="What selects k from a range: calinski-harabasz, silhouette, davies-bouldin, elbow or separation; by default calinski-harabasz.",
    ),
]
Partition = Annotated[
    str | None,
    typer.Option(
        help="iid (the default), dirichlet:0.3, dirichlet-class:0.3, clusters:4, power:1.2, beta:0.1, owners (a site per known owner; --n-sites is not looked at); for different columns features-overlap:0.3, features-shared:0.1, har-a1 ...; or none: --data is a folder with a file, or a folder of images, per site."
    ),
]
NSites = Annotated[int | None, typer.Option("--n-sites", "--clients", help="Number of sites; 10 by default.")]
Columns = Annotated[str | None, typer.Option(help="Columns of the files to use, with commas; all by default.")]
SchemaFile = Annotated[
    Path | None,
    typer.Option(
        help="Schema by which your own tables are read (flareclust schema draft); NAME.mapping.yaml beside a table says how it differs."
    ),
]
IdColumn = Annotated[
    str | None,
    typer.Option("--id", help="The column with ids, where no schema says it: no feature, but in labels.csv."),
]
Truth = Annotated[
    str | None, typer.Option(help="The column with known classes, to compare the clusters with; no feature.")
]
DryRun = Annotated[
    bool, typer.Option("--dry-run", help="Read all tables, say what they hold or what is wrong, and train nothing.")
]
Engine = Annotated[
    str,
    typer.Option(
        help="simulator (NVFlare; the default), inprocess, devices (many small sites), poc (see `flareclust poc`), or production."
    ),
]
Kit = Annotated[
    str | None, typer.Option(help="For production: the kit of the admin who submits the job. For poc: its folder.")
]
MinSites = Annotated[int | None, typer.Option(help="Sites a round needs; more than half by default.")]
TaskTimeout = Annotated[int, typer.Option(help="Seconds a site has for one task.")]
PolicyFile = Annotated[
    Path | None,
    typer.Option(help="What simulated sites let out, a YAML file; real sites: flareclust site policy."),
]
Profile = Annotated[
    bool | None,
    typer.Option(
        "--profile/--no-profile",
        help="Describe the clusters column by column; by default where up to 60 columns have names.",
    ),
]
MatchTo = Annotated[
    str | None,
    typer.Option(help="Earlier result whose cluster numbers are kept: a folder, runs:/ID, or models:/NAME@champion."),
]
Cohort = Annotated[
    int | None,
    typer.Option(help="Sites drawn for each round, with the engines inprocess and devices; all by default."),
]
Dropout = Annotated[float, typer.Option(help="Probability that a site of these engines drops out of a round.")]
Out = Annotated[Path | None, typer.Option(help="A new folder for the files; by default one in flareclust-runs.")]
Resume = Annotated[
    str | None,
    typer.Option(
        help="Go on with an interrupted run: its folder, with the same settings; for poc and production the id of its job."
    ),
]
Track = Annotated[bool, typer.Option(help="Log the run to MLflow.")]
Register = Annotated[str | None, typer.Option(help="Register the model in MLflow under this name.")]
