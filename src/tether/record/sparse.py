"""The memory of a sparse tensor, which has no storage of its own: that of its values.

``values()`` of it, what ``coalesce()`` gives of a coalesced one, and what `torch.sparse_coo_tensor`
makes of values that were there before show one memory.
"""

from __future__ import annotations

from collections.abc import Callable

import torch

_COO = torch.sparse_coo
_SPARSE = frozenset(
    (_COO, torch.sparse_csr, torch.sparse_csc, torch.sparse_bsr, torch.sparse_bsc)
)  # fmt: skip
_PLAIN = (torch.Tensor, torch.nn.Parameter)
_profiled: Callable[[], bool] = getattr(torch._C._autograd, "_profiler_enabled", lambda: False)
_dispatch_modes = torch._C._len_torch_dispatch_stack
_no_mode = torch._C.DisableTorchFunction
_no_graph = torch._C._AutoDispatchBelowAutograd


def is_sparse(tensor: torch.Tensor) -> bool:
    """Whether a tensor has values and their places in place of a storage."""
    return tensor.layout in _SPARSE


def values_of(tensor: torch.Tensor) -> torch.Tensor | None:
    """Return a view of the values of a sparse tensor, outside of any graph; None for any other.

    To ask for it is a call of PyTorch: a profiler, a dispatch mode or a class of the program's
    would hear it as one of the program's: then nothing is asked.
    """
    if not is_sparse(tensor) or type(tensor) not in _PLAIN or _profiled() or _dispatch_modes():
        return None
    try:
        with _no_mode(), _no_graph():
            return tensor._values() if tensor.layout is _COO else tensor.values()
    except Exception:  # noqa: BLE001 -- of a kind that has none
        return None
