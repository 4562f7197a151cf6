"""NumPy's calls that tether asks about: which copy an array, and which write into one."""

from __future__ import annotations

from typing import Final

COPYING_METHODS: Final = ("copy", "astype", "flatten", "tobytes", "__copy__", "__deepcopy__")
COPYING_FUNCTIONS: Final = ("array", "copy")
WRITING_METHODS: Final = (
    "sort", "partition", "fill", "put", "resize", "byteswap", "setfield", "itemset",
)  # fmt: skip
"""Methods that write the array that they are called on."""
WRITING_FUNCTIONS: Final = ("copyto", "put", "place", "putmask", "put_along_axis")
"""Functions that write the array that they are given first."""
LISTING_METHOD: Final = "tolist"
