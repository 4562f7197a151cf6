"""Run the tests of this folder where torch cannot be imported: ``python without_torch.py``.

A few tests of each file by default; all of them with ``--long``.
"""

import sys
from collections import Counter
from pathlib import Path

import pytest

FEW = 3


class Few:
    """Keeps the first tests of each file."""

    @staticmethod
    def pytest_collection_modifyitems(items):
        counted = Counter()
        kept = []
        for item in items:
            counted[item.path] += 1
            if counted[item.path] <= FEW:
                kept.append(item)
        items[:] = kept


if __name__ == "__main__":
    sys.modules["torch"] = None  # from here on `import torch` raises ImportError
    options = ["-q", "-n", "0", "-p", "no:cacheprovider", "-r", "f"]
    long = "--long" in sys.argv
    sys.exit(pytest.main([*options, str(Path(__file__).parent)], plugins=[] if long else [Few()]))
