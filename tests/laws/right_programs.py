"""Programs that are right: those of other tests, the examples, the corpus's, and `right/`."""

import json
from pathlib import Path

import test_good_programs
import test_kept_values
import test_memory_programs
import test_memory_programs_more
from programs import expected_in
from tether.verdicts import VERDICTS

HERE = Path(__file__).parent
CASES = HERE.parent / "corpus" / "cases"
EXAMPLES = HERE.parents[1] / "examples"


def right_programs():
    """Return name -> the files of a program, `main.py` the one that is run."""
    found = {}
    for file in sorted((HERE / "right").glob("*.py")):
        found[f"right/{file.stem}"] = {"main.py": file.read_text()}
    for file in sorted(EXAMPLES.glob("*.py")):
        found[f"examples/{file.stem}"] = {"main.py": file.read_text()}
    for verdict in VERDICTS:
        for example in verdict.examples:
            if not example.expected and not example.needs:
                found[f"{verdict.slug}/{example.title}"] = {"main.py": example.program}
    for name, text in test_good_programs.GOOD.items():
        found[f"good/{name}"] = {"main.py": text}
    for name, text in test_kept_values.RIGHT.items():
        found[f"kept/{name}"] = {"main.py": test_kept_values.HEAD + text}
    for module in (test_memory_programs, test_memory_programs_more):
        for name, text in module.QUIET.items():
            found[f"memory/{name}"] = {"main.py": module.HEAD + text}
    for folder in sorted(CASES.iterdir()):
        found |= _of_case(folder)
    return {name: files for name, files in found.items() if not expected_in(files["main.py"])}


def _of_case(folder):
    key = json.loads((folder / "key.json").read_text())
    texts = {name: (folder / name).read_text() for name in key["files"]}
    if key["category"] == "clean":
        return {f"corpus/{folder.name}": texts}
    if (folder / "fixed.py").exists():
        return {f"corpus/{folder.name}": {**texts, "main.py": (folder / "fixed.py").read_text()}}
    if (folder / "fixed").is_dir():
        texts |= {one.name: one.read_text() for one in (folder / "fixed").glob("*.py")}
        return {f"corpus/{folder.name}": texts}
    return {}
