"""Run Python as a user does, in forks of a process that has imported torch and tether already.

``python("-m", "tether", "run", "train.py", folder=here)`` is `subprocess.run` of those arguments,
and takes its options; it costs a tenth of a second where a fresh interpreter needs seconds to
import torch. The child ends as any interpreter does, by its own exit, exception or signal.
What depends on how an interpreter starts (its options, an environment that is read once, what is
imported) is tested in a fresh one: `fresh`, with the same arguments.
"""

from __future__ import annotations

import atexit
import contextlib
import gc
import json
import os
import runpy
import select
import signal
import socket
import subprocess
import sys
import threading
import types
from pathlib import Path
from typing import IO, Any

HERE = Path(__file__)


class Server:
    """The warm process, and the address at which it is asked for children."""

    def __init__(self) -> None:
        self.address = f"tether-warm-{os.getpid()}-{id(self)}"
        self._listening = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._listening.bind(f"\0{self.address}")
        self._listening.listen(64)
        number = self._listening.fileno()
        self.process = subprocess.Popen(
            [sys.executable, str(HERE), str(number), self.address],
            pass_fds=[number],
            env={**os.environ, "OMP_NUM_THREADS": "1", "TETHER_STRICT": "1"},
            stdin=subprocess.PIPE,  # which closes when the tests are over
        )
        self._listening.close()  # here: nobody waits for a server that is gone


_server: Server | None = None
_address = ""  # of the server, in a child of it


def _warm() -> str:
    """Return the address of the server, which is started when it is first asked for."""
    global _server  # noqa: PLW0603 -- one for all tests of a process
    if _address:
        return _address
    if _server is None or _server.process.poll() is not None:
        _server = Server()
    return _server.address


def _started(job: dict[str, Any], streams: list[int]) -> tuple[int, socket.socket]:
    """Have a child forked; return its number, and the connection that will say how it ended."""
    connection = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    connection.connect(f"\0{_warm()}")
    socket.send_fds(connection, [json.dumps(job).encode()], streams)
    return int(connection.recv(32)), connection


class Child:
    """A forked program: what `subprocess.Popen` is of a fresh one."""

    def __init__(
        self,
        *arguments: str,
        folder: str | Path,
        env: dict[str, str] | None = None,
        stdin: Any = subprocess.DEVNULL,
        stdout: Any = None,
        stderr: Any = None,
        alone: bool = False,  # in a session of its own
    ) -> None:
        self.args = [sys.executable, *arguments]
        self.returncode: int | None = None
        opened: list[int] = []
        self.stdin = self.stdout = self.stderr = None
        with contextlib.ExitStack() as stack:

            def end(stream: Any, default: int, mode: str) -> tuple[int, IO[bytes] | None]:
                if stream == subprocess.PIPE:
                    read, write = os.pipe()
                    theirs, ours = (read, write) if mode == "wb" else (write, read)
                    stack.callback(os.close, theirs)
                    return theirs, open(ours, mode)
                if stream == subprocess.DEVNULL:
                    return stack.enter_context(open(os.devnull, "r+b")).fileno(), None
                if stream is None:
                    return default, None
                return stream if isinstance(stream, int) else stream.fileno(), None

            for stream, default, mode in ((stdin, 0, "wb"), (stdout, 1, "rb"), (stderr, 2, "rb")):
                number, ours = end(stream, default, mode)
                opened.append(number)
                setattr(self, ("stdin", "stdout", "stderr")[default], ours)
            job = {
                "arguments": arguments,
                "folder": str(folder),
                "env": dict(os.environ if env is None else env),
                "alone": alone,
            }
            self.pid, self._status = _started(job, opened)

    def wait(self, timeout: float | None = None) -> int:
        """Wait for the end of the program, and return its exit code as `Popen` does."""
        if self.returncode is None:
            self._status.settimeout(timeout)
            try:
                answer = self._status.recv(32)
            except TimeoutError:
                raise subprocess.TimeoutExpired(self.args, timeout or 0) from None
            self._status.close()
            self.returncode = os.waitstatus_to_exitcode(int(answer))
        return self.returncode

    def send_signal(self, number: int) -> None:
        """Send a signal to the program, if it has not ended."""
        if self.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.pid, number)

    def kill(self) -> None:
        """End the program at once."""
        self.send_signal(signal.SIGKILL)

    def communicate(
        self, given: bytes | None = None, timeout: float | None = None
    ) -> tuple[bytes | None, bytes | None]:
        """Write to the program, read all that it says, and wait for its end."""
        said: dict[str, bytes | None] = {"stdout": None, "stderr": None}

        def read(name: str) -> None:
            with getattr(self, name) as stream:
                said[name] = stream.read()

        readers = [
            threading.Thread(target=read, args=(name,), daemon=True)
            for name in said
            if getattr(self, name) is not None
        ]
        for reader in readers:
            reader.start()
        if self.stdin is not None:
            with contextlib.suppress(BrokenPipeError), self.stdin as stream:
                stream.write(given or b"")
        try:
            self.wait(timeout)
        except subprocess.TimeoutExpired:
            self.kill()
            raise
        for reader in readers:
            reader.join(timeout)
        return said["stdout"], said["stderr"]


def python(
    *arguments: str,
    folder: str | Path,
    env: dict[str, str] | None = None,
    input: str | bytes | None = None,  # as `subprocess.run` calls it
    text: bool = True,
    timeout: float | None = 120,
    stdout: Any = subprocess.PIPE,
    stderr: Any = subprocess.PIPE,
) -> subprocess.CompletedProcess[Any]:
    """Run Python with these arguments in a fork; the outputs are captured unless it says where."""
    stdin = subprocess.DEVNULL if input is None else subprocess.PIPE
    child = Child(*arguments, folder=folder, env=env, stdin=stdin, stdout=stdout, stderr=stderr)
    given = input.encode() if isinstance(input, str) else input
    said = child.communicate(given, timeout)
    shown = [
        one.decode().replace("\r\n", "\n") if text and one is not None else one for one in said
    ]
    assert child.returncode is not None
    return subprocess.CompletedProcess(child.args, child.returncode, *shown)


def tether(*arguments: str, folder: str | Path, **options: Any) -> subprocess.CompletedProcess[Any]:
    """Run ``tether`` with these arguments in a fork."""
    return python("-m", "tether", *arguments, folder=folder, **options)


def fresh(
    *arguments: str, folder: str | Path, timeout: float = 300, text: bool = True, **options: Any
) -> subprocess.CompletedProcess[Any]:
    """Run Python with these arguments in an interpreter of its own."""
    return subprocess.run(
        [sys.executable, *arguments],
        cwd=folder,
        capture_output=True,
        text=text,
        timeout=timeout,
        check=False,
        **options,
    )


# -- the warm process ------------------------------------------------------------------------------


def _imported() -> None:
    """Import what the programs and the commands need, on one thread."""
    import importlib
    import pkgutil

    import torch
    import torch._dynamo  # which the first step of an optimizer imports
    import torch.utils.data

    import tether

    torch.set_num_threads(1)  # a pool of threads does not live on in a fork
    for module in pkgutil.walk_packages(tether.__path__, "tether."):
        if not module.name.endswith(("__main__", "pytest_plugin", "rerun")):
            with contextlib.suppress(ImportError):
                importlib.import_module(module.name)


def _serve(number: int) -> list[str]:
    """Fork a child for each job; return only in a child, with the arguments that it is to run."""
    listening = socket.socket(fileno=number)
    running: dict[int, socket.socket] = {}
    signal.signal(signal.SIGCHLD, lambda *_: _ended(running))
    gc.collect()
    gc.freeze()
    while True:
        ready, _, _ = select.select([listening, sys.stdin], [], [])
        if sys.stdin in ready:
            os._exit(0)  # it is closed: the tests are over
        connection, _ = listening.accept()
        message, streams, _, _ = socket.recv_fds(connection, 1 << 20, 3)
        signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGCHLD])
        child = os.fork()
        if child == 0:
            job = json.loads(message)
            _become(job, streams, [listening, connection, *running.values()])
            return list(job["arguments"])
        for one in streams:
            os.close(one)
        running[child] = connection
        connection.send(str(child).encode())
        signal.pthread_sigmask(signal.SIG_UNBLOCK, [signal.SIGCHLD])


def _ended(running: dict[int, socket.socket]) -> None:
    """Say of each child that has ended how it did; another signal may come meanwhile."""
    with contextlib.suppress(ChildProcessError):  # none is left
        while (ended := os.waitpid(-1, os.WNOHANG))[0]:
            child, status = ended
            with running.pop(child) as said, contextlib.suppress(OSError):
                said.send(str(status).encode())


def _become(job: dict[str, Any], streams: list[int], others: list[socket.socket]) -> None:
    """Make the forked process what a fresh one of these arguments would be."""
    import numpy as np

    from tether.measure import proving
    from tether.record.sites import launched_by

    launched_by(__file__)  # its frames lie below the program's
    proving.subprocess = _Subprocess  # the runs that prove are forks as well
    for number, stream in enumerate(streams[:3]):
        os.dup2(stream, number)
    for stream in streams:
        os.close(stream)
    for other in others:
        other.close()
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, [signal.SIGCHLD])
    if job["alone"]:
        os.setsid()
    os.environ.clear()
    os.environ.update(job["env"])
    os.chdir(job["folder"])
    np.random.seed()  # from the system, as when it is imported


class _Subprocess:
    """What `tether.measure.proving` uses of `subprocess`, in forks."""

    DEVNULL = subprocess.DEVNULL
    TimeoutExpired = subprocess.TimeoutExpired

    @staticmethod
    def run(command: list[str], *, cwd: str, env: dict[str, str], timeout: float | None, **_: Any):
        return python(*command[1:], folder=cwd, env=env, timeout=timeout, text=False)


def _run(arguments: list[str]) -> None:
    """Run what Python would run for these arguments, as ``__main__``."""
    first, *rest = arguments
    if first == "-m":
        sys.argv = rest
        sys.path[0] = os.getcwd()
        sys.modules.pop(rest[0], None)
        runpy.run_module(rest[0], run_name="__main__", alter_sys=True)
        return
    if not first.endswith((".py", "-c")):  # an archive with a `__main__`
        sys.argv = arguments
        runpy.run_path(first, run_name="__main__")
        return
    main = types.ModuleType("__main__")
    sys.modules["__main__"] = main
    if first == "-c":
        text, path, sys.argv, sys.path[0] = rest[0], "<string>", ["-c", *rest[1:]], ""
    else:
        text, path, sys.argv = Path(first).read_bytes(), os.path.abspath(first), arguments
        sys.path[0] = os.path.dirname(path)
        main.__file__ = path
    sys.excepthook = _without_these_frames
    exec(compile(text, path, "exec"), main.__dict__)


def _run_to_the_end(arguments: list[str]) -> None:
    """Run a program and end the process as an interpreter does, save that libraries stay as they are.

    To take all of torch down again costs thirty times what the fork did. Whatever is out of the
    ordinary (an exception, threads that run on, a stream that takes nothing) ends as it always does.
    """
    loaded, leave = set(sys.modules) - {"__main__"}, os._exit
    code = 0
    try:
        _run(arguments)
    except SystemExit as stop:
        if not isinstance(stop.code, (int, type(None))):
            raise
        code = int(stop.code or 0)
    if all(one.daemon or one is threading.main_thread() for one in threading.enumerate()):
        atexit._run_exitfuncs()
        theirs = [vars(one) for name, one in sys.modules.items() if name not in loaded]
        for names in theirs:
            if names is not globals():
                names.update(dict.fromkeys(names.keys() - {"__builtins__"}))
        gc.collect()
        with contextlib.suppress(OSError):
            for stream in (sys.stdout, sys.stderr, sys.__stdout__, sys.__stderr__):
                if stream is not None and not stream.closed:
                    stream.flush()
            leave(code & 0xFF)
    sys.exit(code)


def _without_these_frames(kind: Any, error: Any, trace: Any) -> None:
    while trace is not None and trace.tb_frame.f_code.co_filename == __file__:
        trace = trace.tb_next
    sys.__excepthook__(kind, error.with_traceback(trace), trace)


if __name__ == "__main__":
    sys.path.remove(str(HERE.parent))
    sys.path.insert(0, "")
    _address = sys.argv[2]
    _imported()
    _run_to_the_end(_serve(int(sys.argv[1])))
