# ruff: noqa: INP001  (a script, not part of a package)
"""Makes the reports of the gallery while the site is built: each is the page of a program run now.

A hook of MkDocs. `gallery.md` links to `gallery/NAME.html`, the report of `examples/NAME.py`.
"""

import re
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).parents[1]
LINK = re.compile(r"\]\(gallery/(\w+)\.html\)")


def names():
    """Return the names of the examples that the page shows."""
    return dict.fromkeys(LINK.findall((ROOT / "docs" / "gallery.md").read_text("utf-8")))


def report(name, folder):
    """Run an example and return its report as a page."""
    file = Path(folder) / f"{name}.html"
    command = [sys.executable, "-m", "tether", "run", "--quiet", "--html", str(file), f"{name}.py"]
    subprocess.run(command, cwd=ROOT / "examples", capture_output=True, check=False)  # noqa: S603
    return file.read_text("utf-8")


def on_files(files, config):
    """Add the reports to the files of the site."""
    from mkdocs.structure.files import File

    with tempfile.TemporaryDirectory() as folder:
        for name in names():
            content = report(name, folder)
            files.append(File.generated(config, f"gallery/{name}.html", content=content))
    return files
