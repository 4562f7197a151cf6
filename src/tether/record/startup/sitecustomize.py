"""Runs when a Python starts that a recorded program started: see `tether.record.processes.children`.

Python imports the first ``sitecustomize`` on its path. This one arranges that recording begins when
torch has been imported, takes its folder off the path, and gives way to the ``sitecustomize`` that
Python would have imported. It imports nothing that Python has not imported by now.
"""

import os
import sys


class _Torch:
    """Finds torch as Python would, and is told when it has been imported."""

    loader: object = None

    def find_spec(self, name: str, path: object = None, target: object = None) -> object:
        """Return the spec that the finders after this one have for torch; for the rest nothing."""
        if name != "torch":
            return None
        del target
        sys.meta_path.remove(self)  # type: ignore[arg-type]
        for finder in sys.meta_path:
            spec = finder.find_spec(name, path)  # type: ignore[arg-type]
            if spec is not None:
                if hasattr(spec.loader, "exec_module"):
                    self.loader, spec.loader = spec.loader, self  # type: ignore[assignment]
                return spec
        return None

    def create_module(self, spec: object) -> object:
        """Return what torch's own loader makes."""
        return self.loader.create_module(spec)  # type: ignore[attr-defined]

    def exec_module(self, module: object) -> None:
        """Let torch's own loader run it, and begin to record."""
        module.__spec__.loader = module.__loader__ = self.loader  # type: ignore[attr-defined]
        self.loader.exec_module(module)  # type: ignore[attr-defined]
        try:
            from tether.record.processes import children
        except ImportError:  # another environment, where there is no tether
            return
        children.begin()


def _arrange() -> None:
    which, _, inbox = os.environ.get("TETHER_CHILDREN", "").partition(":")
    rank = "RANK" in os.environ and "WORLD_SIZE" in os.environ
    if which == "all" or (which == "ranks" and rank):
        try:
            with open(os.path.join(inbox, str(os.getpid())), "x"):
                pass  # it says that this process is heard, though it may never import torch
        except OSError:
            return  # the program that started it has ended
        sys.meta_path.insert(0, _Torch())  # type: ignore[arg-type]


def _give_way() -> None:
    """Leave the path, and import what comes after this file, as if it were not there."""
    here = os.path.dirname(os.path.abspath(__file__))
    sys.path[:] = [one for one in sys.path if os.path.abspath(one) != here]
    sys.path_importer_cache.pop(here, None)
    del sys.modules["sitecustomize"]
    try:
        import sitecustomize  # type: ignore[import-not-found]
    except ImportError as error:
        if error.name == "sitecustomize":
            raise ImportError(error.msg, name=error.name) from None
        raise


_arrange()
_give_way()
