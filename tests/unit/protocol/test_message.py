"""The wire: what is packed is what arrives, and everything else is refused in words without values."""

import subprocess
import sys

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from flareclust._foundation.errors import BadMessage
from flareclust.protocol.schema import SECONDS, Field, Schema, counts, nbytes, real, whole
from tests.patience import PATIENCE

SCHEMA = Schema(centroids="k d", radii=real("k", minimum=0), counts=counts("k"))


def message(k: int = 3, d: int = 2) -> dict[str, np.ndarray]:
    return {"centroids": np.ones((k, d)), "radii": np.ones(k), "counts": np.full(k, 5)}


def test_a_good_message_passes_and_gives_the_sizes():
    assert SCHEMA.check(message(k=4, d=7)) == {"k": 4, "d": 7}


def test_rows_have_no_axis():
    with pytest.raises(ValueError, match="axis n"):
        Schema(rows="n d")


def test_a_field_cannot_be_an_object_or_complex():
    with pytest.raises(ValueError, match="dtype"):
        Field(("k",), "object")


@pytest.mark.parametrize("bound", [{"minimum": 0}, {"maximum": 1}, {"less_than": "k"}])
def test_bounds_of_truth_values_are_refused_and_not_ignored(bound):
    with pytest.raises(ValueError, match="a field of bool has no minimum"):
        Field(("k",), "bool", **bound)


def test_numbers_that_count_nothing_may_be_0_and_not_below():
    schema = Schema(codes=whole("k"))
    assert schema.check({"codes": np.array([0, 3])}) == {"k": 2}
    with pytest.raises(BadMessage, match="below 0"):
        schema.check({"codes": np.array([-1, 3])})


def test_seconds_is_reserved():
    with pytest.raises(ValueError, match=SECONDS):
        Schema(**{SECONDS: "k"})


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"radii": np.ones(2)}, "radii: axis k has 2 entries where 3"),
        ({"radii": -np.ones(3)}, "radii: holds values below 0"),
        ({"radii": np.array([1.0, np.nan, 1.0])}, "radii: holds NaN"),
        ({"centroids": np.full((3, 2), np.inf)}, "centroids: holds NaN or infinite"),
        ({"centroids": np.ones(3)}, r"centroids: expected the axes \(k, d\), got shape \(3,\)"),
        ({"centroids": np.ones((3, 2), np.float32)}, "centroids: expected float64, got float32"),
        ({"counts": np.array([-1, 2, 3])}, "counts: holds values below 0"),
        ({"counts": [1, 2, 3]}, "counts: expected an array, got list"),
        ({"rows": np.ones(3)}, r"not expected \['rows'\]"),
    ],
)
def test_a_bad_message_is_refused_in_words(change, words):
    with pytest.raises(BadMessage, match=words):
        SCHEMA.check(message() | change)


def test_counts_of_what_is_sent_may_have_to_be_of_rows():
    schema = Schema(counts=counts("k", minimum=1))
    schema.check({"counts": np.array([1, 5])})
    schema.check({"counts": np.array([], np.int64)})
    with pytest.raises(BadMessage, match="counts: holds values below 1"):
        schema.check({"counts": np.array([5, 0])})


def test_a_missing_array_is_named():
    partial = message()
    del partial["radii"]
    with pytest.raises(BadMessage, match=r"missing \['radii'\]"):
        SCHEMA.check(partial)


def test_known_sizes_are_enforced():
    with pytest.raises(BadMessage, match="axis d has 2 entries where 5"):
        SCHEMA.check(message(), {"d": 5})


def test_refusals_hold_no_values():
    with pytest.raises(BadMessage) as caught:
        SCHEMA.check(message() | {"radii": np.array([-123.456, 1, 1])})
    assert "123" not in str(caught.value)


def test_pack_makes_exact_contiguous_types_without_changing_values():
    loose = {
        "counts": np.array([1, 2], np.int32),
        "centroids": np.asfortranarray([[1, 2, 3], [4, 5, 6]]),
        "radii": np.array([0.5, 1.5], np.float32),
    }
    packed = SCHEMA.pack(loose)
    assert list(packed) == ["centroids", "radii", "counts"]
    assert packed["centroids"].flags.c_contiguous
    assert [a.dtype for a in packed.values()] == [np.float64, np.float64, np.int64]
    np.testing.assert_array_equal(packed["centroids"], [[1, 2, 3], [4, 5, 6]])


def test_pack_refuses_to_round_real_numbers_to_counts():
    with pytest.raises(BadMessage, match="counts: expected int64, got float64"):
        SCHEMA.pack(message() | {"counts": np.array([1.5, 2.0, 3.0])})


def test_nbytes_counts_arrays_only():
    assert nbytes(message(k=3, d=2)) == 8 * (6 + 3 + 3)


@given(
    arrays(np.float64, st.tuples(st.integers(0, 5), st.integers(1, 4)), elements=st.floats(-1e140, 1e140)),
)
def test_whatever_is_finite_survives_packing_and_checking(centroids):
    schema = Schema(centroids="k d")
    packed = schema.pack({"centroids": centroids})
    schema.check(packed)
    np.testing.assert_array_equal(packed["centroids"], centroids)


@given(st.dictionaries(st.text(max_size=5), st.one_of(st.integers(), st.floats(), st.text(), st.none(), st.binary())))
def test_arbitrary_dicts_are_refused_and_never_crash(junk):
    with pytest.raises(BadMessage):
        SCHEMA.check(junk)


@pytest.mark.parametrize("k", [3, 0])
def test_messages_cross_to_a_process_that_knows_nvflare_only(tmp_path, k):
    """Types that only load where flareclust is imported would pass a test within one process."""
    from nvflare.app_common.decomposers import common_decomposers
    from nvflare.fuel.utils import fobs

    common_decomposers.register()
    (tmp_path / "message.bin").write_bytes(fobs.dumps(SCHEMA.pack(message(k))))
    code = (
        "import sys; from nvflare.fuel.utils import fobs\n"
        "from nvflare.app_common.decomposers import common_decomposers; common_decomposers.register()\n"
        "m = fobs.loads(open(sys.argv[1], 'rb').read())\n"
        "print(sorted((k, str(v.dtype), v.shape) for k, v in m.items()), 'flareclust' in sys.modules)"
    )
    command = [sys.executable, "-c", code, str(tmp_path / "message.bin")]
    done = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE, check=False)
    assert done.stdout.strip() == (
        f"[('centroids', 'float64', ({k}, 2)), ('counts', 'int64', ({k},)), ('radii', 'float64', ({k},))] False"
    ), done.stderr
