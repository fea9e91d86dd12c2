"""Secure sums at a site: its key, and its numbers under masks."""

from pathlib import Path

import numpy as np

from flareclust.errors import BadMessage, Refusal
from flareclust.message import Schema
from flareclust.privacy.identity import Identity
from flareclust.privacy.masking import KEYS_ARRAY, MASKED, KeyTable, SiteMasks, key_reply
from flareclust.privacy.totals import Layout, check_range, sizes_of
from flareclust.typing import FloatArray, Message


class SiteSums:
    """What sites remember of a job with secure sums, by their names: several in one process, in the in-process engine."""

    def __init__(self) -> None:
        self._masks: dict[str, SiteMasks] = {}
        self._identity: Identity | None = None

    def is_at(self, startup: Path) -> None:
        """Take the certificate of the kit with this folder `startup`, if there is one, to sign keys and check others'."""
        self._identity = Identity.of(startup)

    def has_key(self, site: str) -> bool:
        """Return whether the site has given a key in this job."""
        return site in self._masks

    def key(self, site: str, data: FloatArray, *, private: bool = False) -> Message:
        """Return a new public key and the number of columns.

        Args:
            site: whose it is.
            data: rows (n, d).
            private: whether what leaves is differentially private. Its sums are bounded whatever the rows are, and to
                refuse large values would tell that there is one.

        Raises:
            Refusal: the rows have values that do not fit, or the site has given a key in this job.
        """
        if site in self._masks:
            raise Refusal("has given its key before; a job asks for it once")
        if not private:
            check_range(data)
        self._masks[site] = SiteMasks(site, self._identity)
        return {"key": key_reply(self._masks[site].public), "columns": np.array(data.shape[1])}

    def taken(
        self, site: str, step: str, arrays: Message, *, sums: bool, always: bool
    ) -> tuple[Message, KeyTable | None]:
        """Return a task's arrays without the keys of the sites, and the keys; None where none came.

        Args:
            site: whose task it is.
            step: what it asks for.
            arrays: what came.
            sums: whether the step asks for sums.
            always: whether sums leave this site in no other way.

        Raises:
            Refusal: sums are to leave without a mask.
            BadMessage: the keys are none, or came with a step that is no sum, or the site has no key.
        """
        table = KeyTable.of(arrays)
        arrays = {name: value for name, value in arrays.items() if name != KEYS_ARRAY}
        if table is None:
            if sums and (always or self.has_key(site)):
                why = "lets out sums only masked" if always else "has begun this job with secure sums"
                raise Refusal(f"{why}, and was asked for those of the step {step} without; submit with secure_sums")
            return arrays, None
        if not sums:
            raise BadMessage(f"was sent keys with the step {step}, whose numbers do not add up")
        if not self.has_key(site):
            raise Refusal(
                "has no key for this job's secure sums: its process was started anew since it gave one, and the key is "
                "kept nowhere else; submit the job again"
            )
        return arrays, table

    def hidden(
        self, site: str, question: tuple[str, int, Message], table: KeyTable, schema: Schema, reply: Message
    ) -> Message:
        """Return a checked reply's sums under masks, in place of the reply.

        Args:
            site: whose it is.
            question: step, round and arrays of the task, without the keys.
            table: the keys that came with it.
            schema: of the reply.
            reply: what would leave the site without secure sums.
        """
        step, round_, arrays = question
        d = reply["centroids"].shape[1] if "centroids" in reply else 0
        words = Layout(schema, sizes_of(arrays, d)).words(reply)
        masked = self._masks[site].hide(words, step, round_, arrays, table)
        return MASKED.pack({"masked": masked.view(np.int64)})
