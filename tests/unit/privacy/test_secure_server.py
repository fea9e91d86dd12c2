"""A malicious server and secure sums: tables of accomplices, jobs that forget their masks, keys of other sites.

Ten sites with kits that NVFlare's provisioning could have made. The server sends tasks of its choice, and knows everything that
its accomplices know. They add zeros, so that the total of a table of one honest site and accomplices is that site's numbers.
"""

from collections.abc import Sequence
from itertools import combinations
from pathlib import Path

import numpy as np
import pytest

from flareclust._foundation.errors import FlareclustError, Refusal, UserError
from flareclust._foundation.typing import Message, never_abort
from flareclust.data.tables import Table
from flareclust.engines.options import JobOptions
from flareclust.executors.lloyd import LloydExecutor
from flareclust.federation.refinement import SPREAD, UPDATE
from flareclust.platform.job import build_job, export_job
from flareclust.privacy.job_sums import SecureSums
from flareclust.privacy.policy import Policy
from flareclust.privacy.secure_aggregation import fixed_point
from flareclust.privacy.secure_aggregation.client import _KEY_FILE
from flareclust.privacy.secure_aggregation.fixed_point import Words
from flareclust.privacy.secure_aggregation.identity import Identity
from flareclust.privacy.secure_aggregation.masking import KeyTable, SiteMasks, key_of, total
from flareclust.privacy.secure_aggregation.totals import Layout
from flareclust.privacy.session import SiteSession
from flareclust.protocol.registry import get
from flareclust.protocol.sizes import total_sizes
from flareclust.protocol.steps import counts_of
from flareclust.protocol.task import StepName, Task
from tests.computed import replied
from tests.kits import Kits

SITES = [f"clinic-{letter}" for letter in "abcdefghij"]
M = len(SITES)
VICTIM = "clinic-e"
OTHERS = [site for site in SITES if site != VICTIM]
JOB = "a job"

ROWS = np.random.default_rng(5).normal(size=(40, 2))
TASK = {"centroids": np.array([[0.0, 0.0], [1.0, 1.0]])}


@pytest.fixture(scope="module")
def kit(tmp_path_factory: pytest.TempPathFactory) -> Kits:
    """Make kits."""
    return Kits(tmp_path_factory.mktemp("kits"))


@pytest.fixture(scope="module")
def startups(kit: Kits) -> dict[str, Path]:
    """Of all sites, and of one more of the same federation."""
    return {site: kit(site) for site in [*SITES, "stranger"]}


class Server:
    """A malicious one: it has its accomplices' keys, and asks the victim what it likes.

    Args:
        startups: of the sites.
        folder: of the job at the victim.
        job: what the job holds the victim to.
        policy: the victim's.
    """

    def __init__(
        self, startups: dict[str, Path], folder: Path, job: SecureSums | None, policy: Policy | None = None
    ) -> None:
        self.masks = {site: SiteMasks(site, Identity.of(startups[site]), JOB) for site in startups if site != VICTIM}
        self.victim = LloydExecutor(k=2)
        self.victim.hold_to(job)
        self.victim.sums.is_at(startups[VICTIM], JOB, folder)
        self.terms = None if policy is None else SiteSession(policy, JOB)
        self.refusals: list[str] = []
        self.key = key_of(self.ask(StepName.KEYS, {})["key"])
        self._round = 0

    def ask(self, step: str, arrays: Message, round_: int = 0) -> Message:
        """Return what the victim answers."""
        return self.victim.answer(Task(step, round_, dict(arrays), VICTIM), ROWS, never_abort, self.terms).arrays

    def table(self, others: Sequence[str]) -> KeyTable:
        """Return the keys of the victim and of these sites."""
        keys = {VICTIM: self.key, **{site: self.masks[site].public for site in others}}
        return KeyTable(dict(sorted(keys.items())))

    def total(self, others: Sequence[str], honest: dict[str, Words] | None = None) -> list[int] | None:
        """Return the total over the victim and others, who add zeros unless they are honest; None if the victim refuses."""
        table = self.table(others)
        self._round += 1
        try:
            message = self.ask(UPDATE, TASK | table.sent(), self._round)["masked"]
        except FlareclustError as reason:
            self.refusals.append(str(reason))
            return None
        asked = dict(TASK)
        added = [
            self.masks[site].hide(
                (honest or {}).get(site, np.zeros_like(message).view(np.uint64)), UPDATE, self._round, asked, table
            )
            for site in others
        ]
        return total([message, *(words.view(np.int64) for words in added)])


def secret(terms: SiteSession | None = None) -> Words:
    """Return the victim's numbers, which no server should have."""
    executor, rows = LloydExecutor(k=2), Table(ROWS)
    seen = rows if terms is None else terms.microaggregated(rows)
    reply = replied(executor, Task(UPDATE, 1, dict(TASK), VICTIM), seen)
    schema = executor.step(UPDATE).schema
    return Layout(schema, total_sizes(TASK, 2)).words(schema.pack(reply))


def test_a_table_of_three_is_what_a_server_needs(startups: dict[str, Path], tmp_path: Path) -> None:
    """Where a job asks for three sites only, two accomplices are enough: what the tests below must not find."""
    server = Server(startups, tmp_path, SecureSums(3))
    assert server.total(OTHERS[:2]) == fixed_point.decode(secret())


@pytest.mark.parametrize("accomplices", [0, 1, 2, M - 2])
@pytest.mark.parametrize("by", ["job", "policy"])
def test_a_server_with_accomplices_gets_no_sum_of_fewer_sites_than_the_job_has(
    startups: dict[str, Path], tmp_path: Path, accomplices: int, by: str
) -> None:
    """Tables of three, and of all sizes below ten where accomplices are enough."""
    asked = (SecureSums(M), None) if by == "job" else (None, Policy(min_count=2, secure_sums=True, secure_min_sites=M))
    server = Server(startups, tmp_path, *asked)
    plain = fixed_point.decode(secret(server.terms))
    friends, strangers = OTHERS[:accomplices], OTHERS[accomplices:]
    tables = [list(pair) for pair in combinations(friends or OTHERS, 2)] if accomplices != 1 else []
    tables += [[*friends[:1], stranger] for stranger in strangers] + [friends[:n] for n in range(3, accomplices + 1)]
    found = [server.total(others) for others in tables if len(others) >= 2]
    assert len(found) >= 8
    assert [one for one in found if one is not None] == [], "the victim adds up with nine others, or not at all"
    assert not any(one == plain for one in found)
    setting = "the job: min_sites" if by == "job" else "its policy: secure_min_sites"
    assert all("of at least 9 other sites, and was asked to with" in why and setting in why for why in server.refusals)

    honest = {site: fixed_point.encode(np.arange(1.0, 1 + secret().shape[1])) for site in strangers}
    of_all = server.total(OTHERS, honest)
    assert of_all is not None
    expected = [own + len(strangers) * int(i) * (1 << 128) for i, own in enumerate(plain, start=1)]
    assert of_all == expected, "with all ten it learns the sum of those that are honest"
    assert of_all != plain


def test_least_sites_less_accomplices_are_in_a_sum(startups: dict[str, Path], tmp_path: Path) -> None:
    """With a least size s below m, and a accomplices, the sum is over s - a honest sites: with a = s - 1, over the victim."""
    server = Server(startups, tmp_path, SecureSums(5))
    assert server.total(OTHERS[:3]) is None
    assert server.total(OTHERS[:4]) == fixed_point.decode(secret())


@pytest.mark.parametrize("by", ["job", "policy"])
def test_sites_that_are_not_named_are_no_part_of_a_sum(startups: dict[str, Path], tmp_path: Path, by: str) -> None:
    asked = (
        (SecureSums(3, SITES), None) if by == "job" else (SecureSums(3), Policy(min_count=2, secure_sites=tuple(SITES)))
    )
    server = Server(startups, tmp_path, *asked)
    assert server.total([*OTHERS[:2], "stranger"]) is None
    setting = "the job: secure_sites" if by == "job" else "its policy: secure_sites"
    assert server.refusals == [f"does not add up its numbers with those of 'stranger' ({setting})"]
    assert server.total(OTHERS) is not None


def test_the_key_of_another_site_in_other_bytes_cancels_no_mask(startups: dict[str, Path], tmp_path: Path) -> None:
    """An accomplice that signs an honest site's key, written otherwise, shares its secrets: they must not cancel.

    RFC 7748 has the last bit of a key ignored, and there are further keys with the same secrets.
    """
    server = Server(startups, tmp_path, SecureSums(3))
    identity = Identity.of(startups["clinic-a"])
    assert identity is not None
    honest = server.masks["clinic-j"].public.key
    copied = identity.signed("clinic-a", JOB, honest[:-1] + bytes([honest[-1] ^ 0x80]))
    keys = {"clinic-a": copied, VICTIM: server.key, "clinic-j": server.masks["clinic-j"].public}
    message = server.ask(UPDATE, TASK | KeyTable(keys).sent(), 1)["masked"]
    assert (message != secret().view(np.int64)).all(), "the mask of clinic-j would be gone"


def test_a_site_with_masked_sums_adds_up_over_one_table_and_answers_a_round_once(
    startups: dict[str, Path], tmp_path: Path
) -> None:
    server = Server(startups, tmp_path, SecureSums(9))
    assert server.total(OTHERS) is not None
    assert server.total(OTHERS[:-1]) is None
    assert server.refusals == ["was asked for a sum over other sites than before; one job has one set of sites"]
    server._round = 0
    assert server.total(OTHERS) is None
    assert "masks no sum twice" in server.refusals[-1]


def test_a_process_that_was_started_anew_gives_no_second_key_in_a_job(
    startups: dict[str, Path], tmp_path: Path
) -> None:
    server = Server(startups, tmp_path, SecureSums(9))
    assert server.total(OTHERS) is not None
    assert (tmp_path / _KEY_FILE).exists()
    with pytest.raises(Refusal, match="has given its key before, in a process that is gone"):
        Server(startups, tmp_path, SecureSums(9))
    (tmp_path / "next").mkdir()
    Server(startups, tmp_path / "next", SecureSums(9))


@pytest.mark.parametrize("step", [UPDATE, StepName.ASSESS, SPREAD, counts_of(UPDATE), StepName.CLUSTER])
def test_a_job_that_says_secure_sums_gets_none_without_keys(step: str) -> None:
    """Nor seeds, which such a job does not need."""
    executor = LloydExecutor(k=2)
    arrays = {} if step in (SPREAD, StepName.CLUSTER) else TASK
    executor.hold_to(SecureSums(3))
    with pytest.raises(Refusal, match=f"secure sums, .*the step {step}|only masked, .*the step {step}"):
        executor.answer(Task(step, 0, dict(arrays), VICTIM), ROWS, never_abort)
    executor.hold_to(None)
    if step != counts_of(UPDATE):
        assert executor.answer(Task(step, 0, dict(arrays), VICTIM), ROWS, never_abort).arrays


def test_the_columns_of_a_job_that_says_secure_sums_are_described_without_sums() -> None:
    rows = Table(ROWS, columns=("a", "b"))
    for job, message in ((None, 2), (SecureSums(3), 0)):
        executor, _ = get("masked").build(2, 0, {"scale": "standard"})
        executor.hold_to(job)
        assert executor.answer(Task(StepName.DESCRIBE, 0, {}, VICTIM), rows, never_abort).arrays["mean"].size == message


@pytest.mark.parametrize("name", ["lloyd", "masked", "portfolio", "kfed", "dp-lloyd", "dp-gmm"])
def test_the_job_that_is_exported_has_what_its_sites_hold_the_server_to(name: str, tmp_path: Path) -> None:
    import json

    names = ["a", "b", "c", "d", "e"]  # a list, as from a file or a call
    options = JobOptions(k=3, min_sites=4, secure_sums=True, secure_sites=names)  # type: ignore[arg-type]
    folder = export_job(build_job(get(name), {}, options), tmp_path / "job")
    client = json.loads((folder / "app/config/config_fed_client.json").read_text())
    path = "flareclust.privacy.job_sums.SecureSums"
    args = {"min_sites": 4, "sites": names}
    assert client["components"] == [{"id": "secure_sums", "path": path, "args": args}]
    held = SecureSums(**client["components"][0]["args"])
    assert (held.min_sites, held.sites) == (4, args["sites"])
    assert json.loads((folder / "meta.json").read_text())["min_clients"] == 4
    plain = export_job(build_job(get(name), {}, JobOptions(k=3)), tmp_path / "plain")
    assert json.loads((plain / "app/config/config_fed_client.json").read_text())["components"] == []


def test_a_job_for_sites_that_are_not_known_says_of_how_many_its_sums_are() -> None:
    with pytest.raises(UserError, match="secure_sums needs min_sites for sites that are not known here"):
        build_job(get("lloyd"), {}, JobOptions(k=3, secure_sums=True))
    for options, message in (
        ({"secure_sites": ("a", "b", "c")}, "secure_sites are settings of secure_sums, which is off"),
        ({"secure_sums": True, "min_sites": 4, "secure_sites": ("a", "b", "c")}, "3 names where min_sites asks for 4"),
        ({"secure_sums": True, "min_sites": 3, "secure_sites": ("a", "b", "b")}, "list of different names of sites"),
    ):
        with pytest.raises(UserError, match=message):
            build_job(get("lloyd"), {}, JobOptions(k=3, **options))  # type: ignore[arg-type]


def test_a_job_of_known_sites_is_of_all_of_them_unless_it_says_fewer() -> None:
    for options, minimum in (({}, 5), ({"min_sites": 4}, 4), ({"min_sites": 1}, 3), ({"secure_min_sites": 5}, 5)):
        sums = JobOptions(k=3, secure_sums=True, **options).among(SITES[:5]).sums()  # type: ignore[arg-type]
        assert sums is not None
        assert (sums.min_sites, sums.sites) == (minimum, SITES[:5])
    assert JobOptions(k=3).among(SITES).sums() is None


def test_the_assessment_is_masked_even_where_an_algorithm_does_not_say_that_it_adds_up() -> None:
    class Forgetful(LloydExecutor):
        summed = frozenset({UPDATE})

    executor = Forgetful(k=2)
    executor.hold_to(SecureSums(3))
    with pytest.raises(Refusal, match="secure sums, and was asked for those of the step assess without"):
        executor.answer(Task(StepName.ASSESS, 1, dict(TASK), VICTIM), ROWS, never_abort)
