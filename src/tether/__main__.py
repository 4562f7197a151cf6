"""``python -m tether`` is ``tether``."""

from tether.cli.main import main

if __name__ == "__main__":
    main(prog_name="tether")
