"""Where a call comes from: code objects and instructions while recording, lines afterwards.

While the program runs, a place is an instruction of a code object and nothing else; turning it
into a file, a line and columns (40 us with `traceback`) waits until the recording has ended.

The recorder also calls the program's functions *from* such a place: `Place.call` wears the file,
the name and the line of the caller, so that warnings point at the user's line and the "once per
line" filter counts as it would have.
"""

from __future__ import annotations

import functools
import importlib.util
import inspect
import itertools
import linecache
import os
import site as site_packages
import sys
import sysconfig
import types
from collections.abc import Callable, Iterator
from typing import Any

from tether.facts import UNKNOWN, Site

_getline = linecache.getline  # as it is now: the program may replace it
_PACKAGE = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))


_INSTALLED = ("site-packages", "dist-packages")


def _library_folders() -> tuple[str, ...]:
    paths = sysconfig.get_paths()
    folders = {paths[name] for name in ("stdlib", "platstdlib", "purelib", "platlib")}
    folders.update(site_packages.getsitepackages())
    folders.add(site_packages.getusersitepackages())
    # Those that PYTHONPATH, or a .pth file of another environment, adds; PyTorch is never the
    # user's own, from wherever it was imported.
    folders.update(one for one in sys.path if os.path.basename(one) in _INSTALLED)
    found = importlib.util.find_spec("torch")
    folders.update(found.submodule_search_locations or () if found is not None else ())
    return tuple(sorted(os.path.realpath(folder) + os.sep for folder in folders))


_LIBRARY = _library_folders()
# Called at each optimizer step for each parameter; the step as a whole is one event.
_SKIPPED = (os.sep + os.path.join("torch", "optim") + os.sep,)
_launchers: set[str] = set()


def launched_by(file: str) -> None:
    """Take a file for what starts programs, such as the installed `tether` command: not theirs."""
    _launchers.add(os.path.realpath(file))


def is_user_file(file: str) -> bool:
    """Whether a code object's file is the user's own: neither installed, nor frozen, nor ours."""
    if file.startswith("<"):
        # Code typed at a prompt or made by exec is the user's, frozen modules are Python's.
        return not file.startswith("<frozen") and not file.startswith("<attrs generated")
    # A debugger steps into whatever is written in Python, and so into `isabs`.
    whole = file.startswith("/") or os.path.isabs(file)
    return _is_user_path(file) if whole else _is_user_path.__wrapped__(file)


@functools.lru_cache(maxsize=4096)
def _is_user_path(file: str) -> bool:
    path = os.path.realpath(file)
    return path not in _launchers and not path.startswith((_PACKAGE + os.sep, *_LIBRARY))


_WRAPPERS = 8  # decorators around one function


def code_of(function: Any) -> types.CodeType | None:
    """Return the code that a function, a method, a part of one or an object runs when it is called.

    No code of the program's is run to ask for it.
    """
    while isinstance(function, functools.partial):
        function = function.func
    function = getattr(function, "__func__", function)
    for _ in range(_WRAPPERS):
        function = getattr(function, "__dict__", {}).get("__wrapped__", function)
    if not isinstance(function, types.FunctionType):
        function = inspect.getattr_static(type(function), "__call__", None)
    code = getattr(function, "__code__", None)
    return code if isinstance(code, types.CodeType) else None


_Position = tuple[int | None, int | None, int | None, int | None]
_call: Callable[..., Any] = lambda func, args, kwargs: func(*args, **kwargs)  # noqa: E731
_caller = _call.__code__


class Place:
    """One instruction of one code object: its number, and how to call from there."""

    __slots__ = ("called", "code", "number", "offset")

    def __init__(
        self, number: int, code: types.CodeType, offset: int, *, called: bool = False
    ) -> None:
        self.number = number
        self.offset = offset
        self.called = called  # by a function of the user's: by which way is looked at
        self.code = wearing(code, offset)


def wearing(code: types.CodeType, offset: int) -> types.CodeType:
    """Return the code that calls a function and has the file, name and line of an instruction."""
    return _caller.replace(
        co_filename=code.co_filename,
        co_name=code.co_name,
        co_qualname=code.co_qualname,
        co_firstlineno=_line_of(code, offset),
    )


class CodePlaces:
    """What is known of one code object: whose it is, and its places met so far."""

    __slots__ = ("_passed", "code", "file", "numbers", "ours", "places", "skip", "user")

    def __init__(self, code: types.CodeType) -> None:
        self.code = code  # held, so that its id stays its own
        name = code.co_filename
        self.file = name if name.startswith("<") else os.path.abspath(name)
        self.user = is_user_file(name)
        self.ours = is_ours(code)
        self.skip = any(part in name for part in _SKIPPED)
        self.places: dict[int, Place] = {}
        self.numbers: dict[_Position, int] = {}  # of the places whose columns are known
        self._passed: dict[int, types.CodeType] = {}

    def passing(self, offset: int) -> types.CodeType:
        """Return what to call from where nothing is recorded: a warning names the line above it."""
        known = self._passed.get(offset)
        if known is None:
            known = self._passed[offset] = wearing(self.code, offset)
        return known

    def position(self, offset: int) -> _Position:
        """Return the first line, last line, first and last column (in bytes) of an instruction."""
        following = itertools.islice(self.code.co_positions(), max(offset, 0) // 2, None)
        return next(following, (None,) * 4)


MOST_CALLERS = 6
"""Lines of the user's that are noted above a new one."""

Stack = tuple[tuple[types.CodeType | None, int], ...]
"""The frames above one, the nearest first: of those of the user's the instruction, else -1."""

ROOT: Stack = ((None, -1),)
"""What a stack ends with that goes down to where its thread began."""


class Places:
    """All code objects and places of one recording."""

    def __init__(self) -> None:
        self.codes: dict[int, CodePlaces] = {}
        self.libraries: set[int] = set()  # ids of the code objects among them not of the user's
        self._all: list[tuple[CodePlaces, int] | Site] = []
        self._known: dict[Site, int] = {}  # of those that came as lines
        self.callers: dict[int, tuple[int, ...]] = {}  # place of the user's -> those it came from
        self.on_way: Callable[[Place, types.FrameType], None] = lambda *_: None  # of one called
        self.on_new: Callable[[types.FrameType], None] = lambda _: None  # at a new one's frame

    def of_code(self, code: types.CodeType) -> CodePlaces:
        """Look up, or learn, a code object."""
        known = self.codes.get(id(code))
        if known is None:
            known = self.codes[id(code)] = CodePlaces(code)
            if not known.user:
                self.libraries.add(id(code))
        return known

    def add(self, known: CodePlaces, offset: int, frame: types.FrameType | None = None) -> Place:
        """Learn a place that was not met before; with its `frame`, where it was called from, too.

        Python rewrites instructions as it goes, so that one call may come from two of them: those
        of one position in the text are one place.
        """
        place = known.places.get(offset)
        if place is None:
            position = known.position(offset)
            number = known.numbers.get(position, -1)
            if number < 0:
                self._all.append((known, offset))
                number = len(self._all) - 1
                if position[2] is not None:
                    known.numbers[position] = number
                if known.user and frame is not None:
                    self.callers[number] = self.above(frame)[0]
                    self.on_new(frame)
            called = known.user and known.code.co_name != "<module>"
            place = known.places[offset] = Place(number, known.code, offset, called=called)
        return place

    def above(self, frame: types.FrameType) -> tuple[tuple[int, ...], Stack]:
        """Return the user's places above a frame, the nearest first, up to the program's own file.

        What lies below that started the program: tether's command is such a file as well. The
        frames that were gone through come with them, a library's whatever its line.
        """
        found: list[int] = []
        stack: list[tuple[types.CodeType | None, int]] = []
        codes = self.codes
        above = None if _is_program(frame) else frame.f_back
        while above is not None:
            code = above.f_code
            known = codes.get(id(code)) or self.of_code(code)
            offset = above.f_lasti if known.user else -1
            stack.append((code, offset))
            if known.user:
                found.append((known.places.get(offset) or self.add(known, offset)).number)
                if len(found) == MOST_CALLERS or _is_program(above):
                    break
            above = above.f_back
        return tuple(found), (*stack, *(ROOT if above is None else ()))

    def add_definition(self, code: types.CodeType) -> int:
        """Learn the first line of a function, where its decorators stand."""
        known = self.of_code(code)
        place = known.places.get(-1)
        if place is None:
            self._all.append(
                Site(
                    known.file,
                    code.co_firstlineno,
                    function=code.co_qualname,
                    first_line=code.co_firstlineno,
                    user=known.user,
                )
            )
            place = Place(len(self._all) - 1, code, 0)
            known.places[-1] = place
        return place.number

    def add_beginning(self, code: types.CodeType | None) -> int:
        """Learn where a function of the user's begins; `UNKNOWN` for any other."""
        known = None if code is None else self.of_code(code)
        return self.add(known, 0).number if known is not None and known.user else UNKNOWN

    def add_site(self, site: Site) -> int:
        """Learn a place that is known by its line, and of no code object that is at hand."""
        number = self._known.get(site)
        if number is None:
            self._all.append(site)
            number = self._known[site] = len(self._all) - 1
        return number

    def user_place(self, frame: types.FrameType | None) -> tuple[int, int]:
        """Numbers of the user's place that led to `frame`, and of `frame`'s own place.

        Without any frame of the user's on the stack both are the frame's own.
        """
        if frame is None:
            return -1, -1
        codes, libraries = self.codes, self.libraries
        own = codes.get(id(frame.f_code)) or self.of_code(frame.f_code)
        if own.ours:
            frame = behind_us(frame)
            own = self.of_code(frame.f_code)
        inner = own.places.get(frame.f_lasti) or self.add(own, frame.f_lasti, frame)
        while frame is not None:
            code = frame.f_code
            known = None if id(code) in libraries else codes.get(id(code)) or self.of_code(code)
            if known is not None and known.user:
                place = known.places.get(frame.f_lasti) or self.add(known, frame.f_lasti, frame)
                if place.called:
                    self.on_way(place, frame)
                return place.number, inner.number
            frame = frame.f_back
        return inner.number, inner.number

    def called_from(self, frame: types.FrameType | None) -> Callable[..., Any]:
        """Return what calls a function, given with its arguments, as if `frame` called it."""
        if frame is None:
            return _call
        known = self.of_code(frame.f_code)
        place = known.places.get(frame.f_lasti) or self.add(known, frame.f_lasti, frame)
        return types.FunctionType(place.code, frame.f_globals)

    def release(self) -> None:
        """Let go of the program's code once its places have been resolved."""
        self.codes.clear()
        self.libraries.clear()
        self._all.clear()

    def resolve(self, first: int = 0) -> list[Site]:
        """Turn every place from number `first` on into its file, line and columns."""
        sites = []
        for place in self._all[first:]:
            if isinstance(place, Site):
                sites.append(place)
                continue
            sites.append(site_at(*place))
        return sites


def user_frames(frame: types.FrameType | None) -> Iterator[types.FrameType]:
    """Yield the user's running functions from `frame` outwards, the program's own file the last.

    What lies below that started the program: what it holds is no variable of the program.
    """
    while frame is not None:
        if is_user_file(frame.f_code.co_filename):
            yield frame
            if _is_program(frame):
                return
        frame = frame.f_back


def _is_program(frame: types.FrameType) -> bool:
    """Whether a frame is that of the program's own file, or of a notebook's cell."""
    return frame.f_code.co_name == "<module>" and frame.f_globals.get("__name__") == "__main__"


def _line_of(code: types.CodeType, offset: int) -> int:
    for start, end, line in code.co_lines():
        if start <= offset < end:
            return line or code.co_firstlineno
    return code.co_firstlineno


def site_at(known: CodePlaces, offset: int) -> Site:
    """Return where an instruction of a code object stands in the program's text."""
    code = known.code
    line, end_line, column, end_column = known.position(offset)
    line = line or code.co_firstlineno
    end_line = end_line or line
    first, last = 0, 0
    if column is not None and end_column is not None:
        first = _characters(code.co_filename, line, column) + 1
        last = _characters(code.co_filename, end_line, end_column) + 1
    return Site(
        known.file,
        line,
        first,
        end_line,
        last,
        code.co_qualname,
        code.co_firstlineno,
        known.user,
    )


def _characters(file: str, line: int, column: int) -> int:
    """Turn a UTF-8 byte offset within a line into a count of characters."""
    text = _getline(file, line)
    if not text or text.isascii():
        return column
    return len(text.encode("utf-8")[:column].decode("utf-8", errors="replace"))


def without_our_frames(
    traceback: types.TracebackType | None, worn: Callable[[types.CodeType], bool]
) -> types.TracebackType | None:
    """Drop tether's own frames, and those that wear a user's line, from a traceback."""
    kept: list[types.TracebackType] = []
    while traceback is not None:
        code = traceback.tb_frame.f_code
        ours = code.co_filename.startswith(_OURS)
        if ours and kept and kept[-1].tb_frame.f_code.co_name == "handle_torch_function":
            del kept[-2:]  # a function written in Python, on its way to the recorder
        if not ours and not worn(code):
            kept.append(traceback)
        traceback = traceback.tb_next
    result = None
    for entry in reversed(kept):
        result = types.TracebackType(result, entry.tb_frame, entry.tb_lasti, entry.tb_lineno)
    return result


_OURS = _PACKAGE + os.sep


def is_ours(code: types.CodeType) -> bool:
    """Whether `code` is tether's own, or a caller made by `Place`."""
    return code.co_filename.startswith(_OURS) or is_worn(code)


def is_worn(code: types.CodeType) -> bool:
    """Whether `code` is a caller made by `Place`, in a user's clothes."""
    return code.co_code == _caller.co_code and code.co_varnames == _caller.co_varnames


def behind_us(frame: types.FrameType) -> types.FrameType:
    """Return the first frame, from one on outwards, that is not tether's own."""
    while is_ours(frame.f_code) and frame.f_back is not None:
        frame = frame.f_back
    return frame


def here(depth: int = 1) -> types.FrameType | None:
    """Return the frame `depth` callers above the one that asks, None beyond the last.

    With 1 it is the caller of the function that calls this one.
    """
    try:
        return sys._getframe(depth)
    except ValueError:
        return None
