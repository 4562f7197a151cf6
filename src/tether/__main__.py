"""``python -m tether`` is ``tether``."""

import sys
from pathlib import Path

if __name__ == "__main__":
    # Python has put the working folder first: a `rich.py` there is the program's, not tether's.
    if not getattr(sys.flags, "safe_path", False):
        sys.path[0] = str(Path(__file__).parents[1])
    from tether.cli.main import main

    main(prog_name="tether")
