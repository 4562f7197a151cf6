"""``python -m tether`` is ``tether``."""

from tether.cli import main

if __name__ == "__main__":
    main(prog_name="tether")
