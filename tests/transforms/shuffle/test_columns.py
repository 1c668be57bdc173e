"""Records as columns: what is set aside before bounding."""

from __future__ import annotations

import pyarrow as pa

from hushgram.transforms.shuffle.columns import columns_of


def test_a_null_among_the_values_of_a_dictionary_is_set_aside() -> None:
    users = pa.DictionaryArray.from_arrays(pa.array([0, 1, None, 0]), pa.array(["a", None]))
    found = columns_of(pa.table({"user": users, "key": ["k", "l", "m", "n"]}), "user", "key")
    assert found.users is not None
    assert (found.users.to_pylist(), found.keys.to_pylist(), found.bad) == (["a", "a"], ["k", "n"], 2)
