"""What a site is asked and what it answers: the steps, as NVFlare's tasks are called, and what all algorithms send alike."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from flareclust._foundation.typing import FloatArray, IntArray, Message
from flareclust.core.disclosure import factor
from flareclust.protocol.schema import Schema, counts, index, real


class StepName:
    """The names of the steps, which are those of the NVFlare tasks; an algorithm may have more of its own."""

    #: The steps that every algorithm knows. SCORE is answered for all algorithms that list it: how well each of several
    #: solutions fits the site's rows. DESCRIBE comes first in algorithms for sites with different columns
    #: (`flareclust.executors.described`).
    DESCRIBE, CLUSTER, SCORE, ASSESS, PLACE = "describe", "cluster", "score", "assess", "place"

    #: The same with fewer sums, where an algorithm also asks for all of them: those of squared distances only, and with the
    #: silhouettes.
    SCORE_INERTIA, SCORE_SILHOUETTE = "score_inertia", "score_silhouette"

    #: The steps in which solutions are scored.
    SCORING = (SCORE, SCORE_INERTIA, SCORE_SILHOUETTE)

    #: What jobs with secure sums ask first: a public key of every site.
    KEYS = "keys"

    #: With secure sums, the step between the description of the columns and the rounds: sums for means and variances.
    MOMENTS = "moments"

    #: What is asked there with `missing=mean`: the same over the known cells of each column.
    KNOWN_MOMENTS = "known_moments"

    #: What jobs with `compare` ask before anything else about the columns: hashes of their names.
    NAMES = "names"

    #: What jobs with `scale` ask before the rounds: location and spread of the columns; with `missing=mean` in its place the
    #: same over the known cells.
    SCALES, KNOWN_SCALES = "scales", "known_scales"

    #: What jobs with `scale` robust or range ask then: numbers of cells in bins, and in finer ones where that does not do.
    BINNED, FINER_BINNED = "bins", "finer_bins"

    #: What jobs with secure sums ask after either: what each site finds odd about its columns beside those of the others.
    ODD_COLUMNS = "odd_columns"

    #: The steps that are no rounds.
    BEFORE_ROUNDS = (
        KEYS,
        DESCRIBE,
        MOMENTS,
        KNOWN_MOMENTS,
        NAMES,
        SCALES,
        KNOWN_SCALES,
        ODD_COLUMNS,
        BINNED,
        FINER_BINNED,
    )

    #: What follows the assessment where the clusters are described: moments of the columns, then counts in bins, several times.
    PROFILE, PROFILE_BINS = "profile", "profile_bins"

    #: The same of the known cells, in jobs that take rows with missing cells.
    PROFILE_KNOWN, PROFILE_KNOWN_BINS = "profile_known", "profile_known_bins"

    #: The moments with secure sums, as totals, after the numbers of rows of the clusters.
    PROFILE_TOTALS, PROFILE_TOTALS_COUNTS = "profile_totals", "profile_totals_counts"

    #: What jobs with secure sums ask after the assessment, once: which clusters are nearly all one site's own.
    OWN_CLUSTERS = "own_clusters"

    #: What is asked last where the sites' tables have outcomes: numbers of rows by cluster and outcome, or sums of a number.
    OUTCOME_COUNTS, OUTCOME_SUMS = "outcome_counts", "outcome_sums"

    #: What jobs whose tables are read by a schema ask at the end, once: how many rows of the tables took part, and how many did not.
    ROWS_READ = "rows_read"

    #: What may follow the assessment.
    PROFILING = (
        OWN_CLUSTERS,
        PROFILE,
        PROFILE_BINS,
        PROFILE_KNOWN,
        PROFILE_KNOWN_BINS,
        PROFILE_TOTALS_COUNTS,
        PROFILE_TOTALS,
        OUTCOME_COUNTS,
        OUTCOME_SUMS,
        ROWS_READ,
    )

    #: What federated averaging asks (`flareclust.personal`): columns and classes of the rows, training, and a last test. Where
    #: sites are selected, also how many rows they train with, before the first round, and the loss of the model on these, before
    #: they train.
    SIZES, TRAIN, TEST, ROWS, LOSSES = "sizes", "train", "test", "sizes_and_rows", "losses"

    #: Of these, what no algorithm for clustering asks.
    OF_CLASSES = (SIZES, ROWS, LOSSES, TEST)


#: How many things may be odd about a column: the length of `flareclust.evaluation.units.ODDITIES`.
ODD_KINDS = 27

#: Keys of the meta of a refusal, of a task and of a reply, which says what it answers. A reply's numbers never travel
#: there, where sites' filters do not look.
REFUSED, ROUND, STEP, NEEDS = "refused", "round", "step", "needs"

#: What every site answers to `assess`: for the rows nearest to each of the k final centroids, how many there are and the
#: sum of their distances; over all rows, the sums of squared distances and of simplified silhouettes. The last two are
#: not sent per centroid, where those of a single row would disclose its distance to a second centroid.
ASSESSMENT = Schema(counts=counts("k"), scatter=real("k", minimum=0), sse=real("", minimum=0), silhouette=real(""))

#: What a site answers to `profile_bins`: of leaves l of a tree, rows by cluster, column and bin. (To `profile` it answers groups.)
PROFILED_BINS = Schema(bins=counts("l k d h"))

#: What a site answers to `profile_known`: groups with their rows, and of each column the number of known cells, their mean and
#: squared deviations; and to `profile_known_bins`: of leaves, rows by cluster, and known cells by cluster, column and bin.
PROFILED_KNOWN = Schema(
    may_be_empty=True,
    cluster=index("k", less_than="K"),
    rows=counts("k", minimum=1),
    counts=counts("k d"),
    centroids=real("k d"),
    m2=real("k d", minimum=0),
)
PROFILED_KNOWN_BINS = Schema(rows=counts("l k"), bins=counts("l k d h"))

#: What a late site answers to `place`: how many rows it has placed. The server chooses the centroids here, and sums by
#: cluster over clusters of its choice would disclose the rows.
PLACED = Schema(rows=counts(""))


@dataclass(frozen=True)
class Task:
    """What the server asks one site for.

    Attributes:
        step: `DESCRIBE`, `CLUSTER`, `SCORE`, `ASSESS`, or one of the algorithm's own.
        round: number of the round, from 0.
        arrays: what the server sends along; empty in round 0 unless the algorithm starts otherwise.
        site: the name of the site that is asked.
    """

    step: str
    round: int
    arrays: Message
    site: str


@dataclass(frozen=True)
class Answer:
    """What a site computed.

    Attributes:
        arrays: what leaves the site.
        labels: the final cluster (n,) of each row, which stay; None unless the step was `ASSESS` or `PLACE`.
        unplaced: why there are no labels, at a site whose policy lets nobody know that.
        details: what the file of labels says of each row beside its label (n,), by name.
    """

    arrays: Message
    labels: IntArray | None = None
    unplaced: Exception | None = None
    details: Mapping[str, FloatArray] = field(default_factory=dict)


#: Names of the arrays about groups of rows: which group, how many rows, their mean, the squared deviations from it.
GROUP, ROWS, MEAN, SPREAD = "cluster", "counts", "centroids", "m2"

#: A reply that describes groups with their spread.
GROUPS = Schema(
    may_be_empty=True,
    **{
        GROUP: index("k", less_than="K"),
        ROWS: counts("k", minimum=1),
        MEAN: real("k d"),
        SPREAD: real("k d", minimum=0),
    },
)


def rounded_spread(groups: Message, multiple: int, floor: int) -> Message:
    """Return groups whose squared deviations go with their numbers of rows, or of cells, as multiples of a site's policy."""
    scale = factor(groups[ROWS], multiple, floor)
    return {**groups, SPREAD: groups[SPREAD] * (scale if scale.ndim == 2 else scale[:, None])}
