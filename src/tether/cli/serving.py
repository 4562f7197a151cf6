"""The page of a recording, served to this machine alone, and made again as the recording grows."""

from __future__ import annotations

import json
import os
import secrets
import subprocess
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Literal

import click

from tether.cli.exits import fail
from tether.report.document.blocks import Document, Heading, Paragraph, Phrase
from tether.report.page.shell import document_page
from tether.report.recording import Recording, load
from tether.store.file import RecordingError
from tether.verdicts import VERDICTS

EVERY = 0.5
"""Seconds between two looks at the file."""

REST = 4
"""A growing recording is analysed again after so many times what the last analysis took: the
program that runs beside it keeps its processor."""

State = Literal["running", "partial", "ended"]


class Watched:
    """The file of a recording, the page of what it holds, and the program that still writes it."""

    def __init__(
        self, file: str, selection: dict[str, Any], program: subprocess.Popen[bytes] | None = None
    ) -> None:
        self.file, self.program = file, program
        self._selection = selection
        self._seen: tuple[object, bool] = (None, False)  # what the page is made of
        self._not_before = 0.0
        self.version = self.calls = self.findings = 0
        self.state: State = "running"
        self.page = _waiting()

    def look(self) -> None:
        """Make the page again, if there is more in the file and it is time."""
        over = self.program is not None and self.program.poll() is not None
        now, began = (_changed(self.file), over), time.monotonic()
        if now[0] is not None and now != self._seen and (over or began >= self._not_before):
            try:
                self._show(load(self.file, **self._selected(over=over)), over=over)
            except RecordingError:
                return  # just being put in its place: the next look has it whole
            self._seen = now
            self._not_before = time.monotonic() + REST * (time.monotonic() - began)
        elif over and self.state == "running":
            self.state = "ended"

    def _selected(self, *, over: bool) -> dict[str, Any]:
        """Return whose findings are shown: that work was in vain is certain when all is done."""
        if self.program is None or over:
            return self._selection
        costs = [one.slug for one in VERDICTS if one.damage == "cost"]
        return {**self._selection, "ignore": (*self._selection.get("ignore", ()), *costs)}

    def _show(self, recording: Recording, *, over: bool) -> None:
        page = recording.html(version=self.version + 1)
        self.calls, self.findings = recording.trace.ended, len(recording.findings)
        if self.program is not None:  # a whole recording is there before the program has gone
            self.state = "ended" if over else "running"
        else:
            self.state = "partial" if recording.trace.outcome == "unfinished" else "ended"
        self.page, self.version = page, self.version + 1

    def told(self) -> str:
        """Return what the page asks for: which page there is, and whether there will be more."""
        names = ("version", "state", "calls", "findings")
        return json.dumps({name: getattr(self, name) for name in names})


def _changed(file: str) -> tuple[int, int] | None:
    """Return what changes whenever a file does; None where there is none."""
    try:
        found = os.stat(file)
    except OSError:
        return None
    return found.st_mtime_ns, found.st_size


def _waiting() -> str:
    """Return the page that stands there until something was recorded."""
    title, text = "tether", "Nothing was recorded yet: the report comes here."
    return document_page(
        Document(title, [Heading(title, 1), Paragraph((Phrase(text),))]), version=0
    )


class _Server(ThreadingHTTPServer):
    """Serves two things below an address that nobody else on this machine can guess."""

    daemon_threads = True

    def __init__(self, port: int, watched: Watched) -> None:
        super().__init__(("127.0.0.1", port), _Handler)
        self.watched = watched
        self.root = f"/{secrets.token_urlsafe(9)}/"

    @property
    def address(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}{self.root}"


class _Handler(BaseHTTPRequestHandler):
    server: _Server
    server_version, sys_version = "tether", ""

    def do_GET(self) -> None:
        """Answer with the page, or with its state."""
        watched, root = self.server.watched, self.server.root
        if self.path == root:
            self._answer("text/html; charset=utf-8", watched.page)
        elif self.path == f"{root}state":
            self._answer("application/json", watched.told())
        else:
            self.send_error(404)

    def _answer(self, kind: str, text: str) -> None:
        body = text.encode("utf-8", "backslashreplace")
        self.send_response(200)
        for name, value in (
            ("Content-Type", kind),
            ("Content-Length", str(len(body))),
            ("Cache-Control", "no-store"),
            ("X-Content-Type-Options", "nosniff"),
            ("X-Frame-Options", "DENY"),
            ("Referrer-Policy", "no-referrer"),
        ):
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: Any) -> None:
        """Say nothing: the terminal is the program's."""


def serve(watched: Watched, port: int) -> int:
    """Serve until Ctrl-C, and return the exit code: the program's, where one was run."""
    try:
        server = _Server(port, watched)
    except OSError as error:
        _stop(watched)
        fail(f"cannot serve on port {port}: {error.strerror}")
    threading.Thread(target=server.serve_forever, daemon=True).start()
    click.echo(f"tether: the report is at {server.address} (Ctrl-C ends it)", err=True)
    while True:
        try:
            watched.look()
            if watched.state == "ended" and not watched.version:
                _tell("nothing was recorded, so there is no report")
                break
            time.sleep(EVERY)
        except KeyboardInterrupt:
            # The same Ctrl-C may have ended the program already, which no look has seen yet.
            if watched.state == "ended" or watched.program is None:
                _tell("the report is no longer served")
                break
            _tell("the program was interrupted; its report is served until the next Ctrl-C")
    server.shutdown()
    server.server_close()
    status = watched.program.wait() if watched.program is not None else 0
    return status if status >= 0 else 128 - status


def _stop(watched: Watched) -> None:
    if watched.program is not None:
        watched.program.terminate()
        watched.program.wait()


def _tell(line: str) -> None:
    click.echo(f"tether: {line}", err=True)
