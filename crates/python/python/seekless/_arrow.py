"""Requests as a table of Apache Arrow, by pyarrow."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any, Union

if TYPE_CHECKING:
    import pyarrow

Column = Union[bytes, tuple[bytes, bytes, list[str]]]


def table(columns: dict[str, Column]) -> pyarrow.Table:
    """A table over the columns, of which numbers are not copied.

    A column is a buffer of numbers of 64 bits, or a buffer of indices, one with a bit for each that
    is there, and the words.
    """
    import pyarrow as pa

    def column(data: Column) -> Any:
        if isinstance(data, bytes):
            return pa.Array.from_buffers(pa.uint64(), len(data) // 8, [None, pa.py_buffer(data)])
        numbers, are_there, words = data
        buffers = [pa.py_buffer(are_there), pa.py_buffer(numbers)]
        indices = pa.Array.from_buffers(pa.int32(), len(numbers) // 4, buffers)
        # Arrow's texts are UTF-8.
        texts = [os.fsencode(word).decode("utf-8", "backslashreplace") for word in words]
        if len(set(texts)) == len(texts):
            return pa.DictionaryArray.from_arrays(indices, pa.array(texts, pa.string()))
        # Two names that have become alike: pandas takes no word twice.
        column = pa.DictionaryArray.from_arrays(indices, pa.array(texts, pa.string()))
        return column.cast(pa.string()).dictionary_encode()

    return pa.table({name: column(data) for name, data in columns.items()})
