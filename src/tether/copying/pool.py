"""Mapped host memory that is kept and used again: `tether.pool`.

The cost of a big copy is not the copy but the fresh memory under it: every page is faulted in and
zeroed by the kernel before its first byte arrives. This pool keeps memory that is already mapped,
on huge pages where the kernel grants them, and lends it out for the results of `tether.copy`. A
block comes back when the last tensor (or array) on it dies, whichever thread that happens in.

What a program can see and set::

    tether.pool.enabled = False     # nothing is lent from here on (environment: TETHER_POOL=0)
    tether.pool.limit = 2 << 30     # at most so many idle bytes are kept
    tether.pool.trim()              # give all idle memory back to the system
    tether.pool.stats()             # what it holds

A pooled tensor is an ordinary tensor whose storage has exactly its own bytes. In one thing it
differs, as every tensor made by `torch.from_numpy` does: its storage cannot grow, so `resize_` to
more bytes raises PyTorch's "not resizable".
"""

from __future__ import annotations

import collections
import contextlib
import ctypes
import mmap
import os
import pathlib
import threading
import weakref
from typing import NamedTuple

HUGE_PAGE = 2 << 20
"""Bytes of one huge page on x86-64 and on most arm64 kernels; a larger one only loses alignment."""

THRESHOLD = 32 << 20
"""Tensors and trees of fewer bytes in all are left to PyTorch's own allocator.

glibc keeps freed memory below 32 MB (its largest mmap threshold) and hands it out again while it
is still in the cache; from there on it unmaps, and every copy faults its pages in anew.
"""

SMALLEST = 2 << 20
"""In a larger tree, tensors of at least so many bytes (one huge page) get blocks of their own."""


def _default_limit() -> int:
    """Return an eighth of the memory this process may use, in bytes: the machine's or its cgroup's.

    1 GB where neither can be read.
    """
    sizes = []
    with contextlib.suppress(AttributeError, OSError, ValueError):
        sizes.append(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"))
    with contextlib.suppress(OSError, ValueError):  # no cgroup, or the word "max"
        text = pathlib.Path("/sys/fs/cgroup/memory.max").read_text(encoding="ascii")
        sizes.append(int(text))
    return min(sizes) // 8 if sizes else 1 << 30


enabled: bool = hasattr(mmap, "MAP_ANONYMOUS") and os.environ.get("TETHER_POOL", "1") != "0"
"""The switch: when false, `tether.copy` takes all its memory from PyTorch.

Off where the system has no private anonymous mappings (Windows).
"""

limit: int = _default_limit()
"""Idle bytes that are kept at most; what comes back beyond it goes back to the system."""


class Stats(NamedTuple):
    """What the pool holds, in blocks and bytes, and how often it could help."""

    leased_blocks: int
    leased_bytes: int  # capacity of the blocks that tensors live on
    idle_blocks: int
    idle_bytes: int  # mapped and waiting
    hits: int  # leases served from idle memory
    misses: int  # leases that had to map new memory

    def __str__(self) -> str:
        return (
            f"{self.leased_bytes / 2**20:.1f} MB leased in {self.leased_blocks} blocks, "
            f"{self.idle_bytes / 2**20:.1f} MB idle in {self.idle_blocks}; "
            f"{self.hits} leases reused memory, {self.misses} mapped new"
        )


class Lease(NamedTuple):
    """Memory lent out."""

    view: memoryview  # its death gives the memory back
    mapped: bool  # its pages are there: a copy into it runs at the memory's own speed


class _Block:
    """One private anonymous mapping, used from its first huge-page boundary on."""

    __slots__ = ("capacity", "mapping", "offset", "stamp")

    def __init__(self, capacity: int) -> None:
        flags = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS
        self.capacity = capacity
        # The spare huge page is for alignment: address space, never touched, never resident.
        self.mapping = mmap.mmap(-1, capacity + HUGE_PAGE, flags=flags)
        if hasattr(mmap, "MADV_HUGEPAGE"):
            with contextlib.suppress(OSError):  # a kernel without huge pages: small ones do too
                self.mapping.madvise(mmap.MADV_HUGEPAGE)
        self.offset = -_address(self.mapping) % HUGE_PAGE
        self.stamp = 0

    def lend(self, nbytes: int) -> memoryview:
        return memoryview(self.mapping)[self.offset : self.offset + nbytes]


def _address(mapping: mmap.mmap) -> int:
    return ctypes.addressof(ctypes.c_char.from_buffer(mapping))


def capacity_for(nbytes: int) -> int:
    """Return the bytes of the block that serves `nbytes`: whole huge pages, in eighths of a power.

    So at most an eighth is address space unused, and nearby sizes share their blocks.
    """
    step = max(HUGE_PAGE, (1 << (max(nbytes, 1) - 1).bit_length()) // 16)
    return -(-nbytes // step) * step


class _Pool:
    """Blocks lent out and blocks idle.

    A block comes back through a weak reference to the lease, which can fire in any thread and at
    any instruction, also while this very thread holds the lock (from the garbage collector). So
    the callback only appends to a deque, which is atomic, and whoever can take the lock sorts in.
    """

    def __init__(self) -> None:
        self._reset()

    def _reset(self) -> None:
        self._lock = threading.Lock()
        self._out: dict[int, tuple[weakref.ref[memoryview], _Block]] = {}
        self._back: collections.deque[int] = collections.deque()
        self._idle: dict[int, collections.deque[_Block]] = {}
        self._idle_bytes = 0
        self._clock = 0
        self._hits = 0
        self._misses = 0

    def lease(self, nbytes: int) -> Lease:
        """Return writable memory of `nbytes`, contents undefined; it returns when the view dies."""
        capacity = capacity_for(nbytes)
        with self._lock:
            self._sort_in()
            waiting = self._idle.get(capacity)
            block = waiting.pop() if waiting else None
            self._clock += 1
            serial = self._clock
            if block is None:
                self._misses += 1
            else:
                self._hits += 1
                self._idle_bytes -= capacity
        mapped = block is not None
        if block is None:
            block = _Block(capacity)
        view = block.lend(nbytes)
        pool = self

        def returned(_: object, serial: int = serial) -> None:
            pool._back.append(serial)
            pool._sort_in_if_free()

        self._out[serial] = (weakref.ref(view, returned), block)
        return Lease(view, mapped)

    def _sort_in_if_free(self) -> None:
        while self._back and self._lock.acquire(blocking=False):
            try:
                self._sort_in()
            finally:
                self._lock.release()

    def _sort_in(self) -> None:
        """Move blocks that came back to the idle ones, oldest out first beyond the limit."""
        while self._back:
            _, block = self._out.pop(self._back.popleft())
            block.stamp = self._clock = self._clock + 1
            self._idle.setdefault(block.capacity, collections.deque()).append(block)
            self._idle_bytes += block.capacity
        if self._idle_bytes > limit:
            self._drop_down_to(limit)

    def _drop_down_to(self, nbytes: int) -> None:
        while self._idle_bytes > nbytes:
            oldest = min((line for line in self._idle.values() if line), key=lambda q: q[0].stamp)
            # Unmapped when its last memoryview is gone: dropping the reference is enough.
            self._idle_bytes -= oldest.popleft().capacity

    def trim(self, to: int = 0) -> int:
        with self._lock:
            self._sort_in()
            before = self._idle_bytes
            self._drop_down_to(max(to, 0))
            freed = before - self._idle_bytes
        self._sort_in_if_free()
        return freed

    def stats(self) -> Stats:
        with self._lock:
            self._sort_in()
            leased = [block.capacity for _, block in list(self._out.values())]
            idle = sum(len(line) for line in self._idle.values())
            found = Stats(
                len(leased), sum(leased), idle, self._idle_bytes, self._hits, self._misses
            )
        self._sort_in_if_free()
        return found

    def after_fork_in_child(self) -> None:
        """Start anew: another thread of the parent may have held the lock at the fork.

        Tensors on leased blocks live on in the child, on pages it shares with the parent until one
        of them writes; their blocks come back to the child's pool. The idle ones are dropped:
        writing to them would first copy the parent's page for nothing.
        """
        out, back = self._out, self._back
        self._reset()
        self._out.update(out)
        self._back.extend(back)


_pool = _Pool()
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_pool.after_fork_in_child)


def lease(nbytes: int) -> Lease:
    """Return writable, mapped memory of exactly `nbytes` bytes (at least 1), contents undefined.

    It returns to the pool when the lease's view dies; `torch.frombuffer` keeps it alive.
    Raises `OSError` when the system has no such memory.
    """
    return _pool.lease(nbytes)


def trim(to: int = 0) -> int:
    """Give idle memory back to the system until `to` bytes are left; return the bytes freed."""
    return _pool.trim(to)


def stats() -> Stats:
    """Return what the pool holds now."""
    return _pool.stats()
