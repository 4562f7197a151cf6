"""The reports that the command line hands to other tools."""

import pytest

from test_cli import CUT, tether


@pytest.fixture(scope="module")
def recorded(tmp_path_factory):
    """A folder with a program and its recording, made once."""
    folder = tmp_path_factory.mktemp("recorded")
    (folder / "train.py").write_text(CUT)
    done = tether("run", "-q", "-o", "run.tether", "train.py", folder=folder)
    assert done.returncode == 0, done.stderr
    return folder


def test_github_annotations_name_files_from_the_checkout(tmp_path):
    (tmp_path / "app").mkdir()
    (tmp_path / "app" / "train.py").write_text(CUT)
    arguments = ("run", "-q", "--github", "app/train.py")
    done = tether(*arguments, folder=tmp_path, GITHUB_WORKSPACE="")
    assert done.stdout == "args []\n"
    assert done.stderr.startswith(
        "::warning file=app/train.py,line=7,col=13,title=gradient-cut%3A w"
    )
    assert len(done.stderr.splitlines()) == 1
    elsewhere = tether(*arguments, folder=tmp_path, GITHUB_WORKSPACE=str(tmp_path / "app"))
    assert elsewhere.stderr.startswith("::warning file=train.py,line=7,")


def test_no_annotations_unless_asked_for(recorded):
    done = tether("report", "run.tether", folder=recorded, GITHUB_ACTIONS="true")
    assert "::" not in done.stdout + done.stderr
    assert "::warning " in tether("report", "--github", "run.tether", folder=recorded).stdout
