"""Secure sums at a site: its key, its numbers under masks, and the stage that masks them."""

import os
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import MappingProxyType

import numpy as np

from flareclust._foundation.errors import BadMessage, Refusal
from flareclust._foundation.typing import BoolArray, Message
from flareclust.evaluation.scores import check_candidates
from flareclust.privacy.job_sums import SecureSums, check_members
from flareclust.privacy.policy import Policy
from flareclust.privacy.secure_aggregation.fixed_point import Words
from flareclust.privacy.secure_aggregation.identity import Identity
from flareclust.privacy.secure_aggregation.masking import KEY, KEYS_ARRAY, MASKED, KeyTable, SiteMasks, key_reply
from flareclust.privacy.secure_aggregation.totals import LARGEST_SENT, Layout, check_range, sizes_in
from flareclust.privacy.session import SiteSession
from flareclust.protocol.rows import SiteRows
from flareclust.protocol.sizes import total_sizes
from flareclust.protocol.stages import Phase, SiteExchange, Stage
from flareclust.protocol.steps import COUNTED, REPORTED, Step
from flareclust.protocol.task import StepName, Task

#: Says in a job's folder that the site has given its key. The key itself is nowhere but in memory.
_KEY_FILE = "flareclust_key_given.txt"


class SiteSums:
    """What sites remember of a job with secure sums, by their names: several in one process, in the in-process engine."""

    def __init__(self) -> None:
        self._masks: dict[str, SiteMasks] = {}
        self._identity: Identity | None = None
        self._job_id = ""
        self._folder: Path | None = None
        self.job: SecureSums | None = None
        self._ended: set[str] = set()

    def hold_to(self, job: SecureSums | None) -> None:
        """Mask sums in this job as its configuration says, whatever the server requests; None for a job without secure sums."""
        self.job = job

    def is_at(self, startup: Path, job_id: str, folder: Path, session: SiteSession | None = None) -> None:
        """Take identity, job and folder of a process at a real site.

        Args:
            startup: the folder of its kit; where it is one, keys are signed, and others' checked.
            job_id: of the job; keys are signed for it.
            folder: of the job at this site, where it is noted that the key was given.
            session: the job at a site with a policy, which can pin the identities of others.
        """
        pins = None if session is None else session.policy.secure_identities
        self._identity, self._job_id, self._folder = Identity.of(startup, pins), job_id, folder

    def secure(self, site: str) -> bool:
        """Return whether the site's sums leave it masked in this job: the job says so, or the site has given a key."""
        return self.job is not None or site in self._masks

    def key(self, site: str, columns: int) -> Message:
        """Return a new public key of a site, and its number of columns; raise Refusal where it has given a key in this job."""
        if site in self._masks:
            raise Refusal("has given its key before; a job asks for it once")
        masks = SiteMasks(site, self._identity, self._job_id)
        reply = {"key": key_reply(masks.public), "columns": np.array(columns)}
        self._note()
        self._masks[site] = masks
        return reply

    def _note(self) -> None:
        """Note in the job's folder that the key was given: with a second one, of a process that was started anew, the server
        could ask for sums over other sites in the same job.
        """
        if self._folder is None:
            return
        try:
            os.close(os.open(self._folder / _KEY_FILE, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600))
        except FileExistsError:
            raise Refusal(
                "has given its key before, in a process that is gone; a job asks for it once, so submit the job again"
            ) from None
        except OSError as error:
            raise Refusal(f"cannot write to the folder of the job ({error.strerror}), as secure sums need") from None

    def check_asked(self, site: str, arrays: Message) -> None:
        """Raise Refusal where a site has no key for masked sums, or is asked about values beyond a public bound, and for all sums after these.

        Sums about such values leave the range of fixed point, by an amount that depends on how many rows there are. A
        server that tries one after the other would find that number.
        """
        if site not in self._masks:
            raise Refusal(
                "has no key for this job's secure sums: its process was started anew since it gave one, and the key is "
                "kept nowhere else; submit the job again"
            )
        floats = [value for value in arrays.values() if value.dtype == np.float64 and value.size]
        # NaN stands for what is unknown where columns differ, and compares as not larger.
        if any((np.abs(value) > LARGEST_SENT).any() for value in floats):
            self._ended.add(site)
        if site in self._ended:
            raise Refusal(
                f"was sent values beyond {LARGEST_SENT:g} with secure sums, which no federation needs, and adds up nothing more "
                "in this job; give the columns in a larger unit"
            )

    def hide(self, site: str, words: Words, step: str, round_: int, asked: Message, table: KeyTable) -> Words:
        """Return a site's numbers (4, w) under its masks; see `SiteMasks.hide`."""
        return self._masks[site].hide(words, step, round_, asked, table)


class Keys(Phase):
    """Asks each site for a public key, before anything else; the key that it belongs to is kept in memory only."""

    steps = MappingProxyType({StepName.KEYS: Step(KEY, "key", as_is=True)})
    trusted = True

    def key(self, task: Task, rows: SiteRows) -> Message:
        """Return a new public key; raise Refusal where rows have values that do not fit, or a key was given before."""
        X = rows.table.X
        # Sums under differential privacy are bounded anyway, and to refuse large values would disclose that there is one.
        if not rows.private:
            rows.check_sums()
            check_range(X, cells=len(rows) * X.shape[1])
        return self.executor.sums.key(task.site, X.shape[1])


def _reported_groups(step: Step, arrays: Message) -> BoolArray | None:
    """Return which groups (K,) a site reports masked: all where numbers of rows are asked for, else those that the task names.

    None where no total decides; BadMessage where the task does not say it for each group, or has no groups.
    """
    if not (step.counted or step.schema is COUNTED):
        return None
    if "candidates" in arrays:
        check_candidates(arrays)
    elif "centroids" in arrays and arrays["centroids"].ndim != 2:
        raise BadMessage(f"centroids: expected two axes, got {arrays['centroids'].ndim}")
    k = total_sizes(arrays, 0)["K"]
    if step.schema is COUNTED:
        return np.ones(k, dtype=np.bool_)
    reported = arrays.get(REPORTED)
    if reported is None:
        return None
    if reported.dtype != np.int64 or reported.shape != (k,) or not np.isin(reported, (0, 1)).all():
        raise BadMessage(f"{REPORTED}: expected 0 or 1 for each of {k} groups")
    return reported.astype(np.bool_)


@dataclass(frozen=True)
class MaskingStage(Stage):
    """Takes the sites' keys out of the task, and masks the reply with them.

    Attributes:
        sums: what the site remembers of the job's secure sums.
        policy: the site's, if it has one.
        alike: settings of the job that must be the same at all sites for their masks to cancel.
    """

    sums: SiteSums
    policy: Policy | None
    alike: Message = field(default_factory=dict)

    def before(self, exchange: SiteExchange) -> SiteExchange:
        """Split the task into arrays and keys.

        Raises:
            Refusal: sums are to leave without a mask, or to be added up with those of too few or of other sites, or
                about values beyond `LARGEST_SENT`; or the step is not one of jobs with secure sums.
            BadMessage: the keys are none, or came with a step that is no sum, or the site has no key.
        """
        task, step, sums = exchange.task, exchange.step, self.sums
        secure = sums.secure(task.site)
        if secure and step.jobs == "plain":
            raise Refusal(f"takes part in a job with secure sums, which does without the step {task.step}")
        keys = KeyTable.of(task.arrays)
        if keys is None:
            always = step.jobs == "secure" or (self.policy is not None and self.policy.secure_sums)
            if step.maskable and (always or secure):
                why = "lets out sums only masked" if always else "takes part in a job with secure sums"
                raise Refusal(
                    f"{why}, and was asked for those of the step {task.step} without; submit with secure_sums"
                )
            return exchange.under(secure=True) if secure else exchange
        if not step.maskable:
            raise BadMessage(f"was sent keys with the step {task.step}, whose numbers do not add up")
        exchange = exchange.without(KEYS_ARRAY)
        arrays = exchange.task.arrays
        sums.check_asked(task.site, arrays)
        check_members(keys.keys, sums.job, self.policy)
        sites = len(keys.keys) if sums.job is not None else 0
        exchange = exchange.under(secure=secure, reported=_reported_groups(step, arrays), sum_sites=sites)
        return replace(exchange, keys=keys)

    def after(self, exchange: SiteExchange, reply: Message) -> Message:
        """Return a checked reply's sums under masks, in its place, where keys came."""
        if not isinstance(exchange.keys, KeyTable):
            return reply
        task, schema = exchange.task, exchange.step.schema
        asked = {**task.arrays, **self.alike}
        d = reply["centroids"].shape[1] if "centroids" in reply else 0
        words = Layout(schema, {**total_sizes(asked, d), **sizes_in(schema, reply)}).words(reply)
        masked = self.sums.hide(task.site, words, task.step, task.round, asked, exchange.keys)
        return MASKED.pack({"masked": masked.view(np.int64)})
