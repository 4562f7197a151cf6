"""How the laws of needless copies draw their programs, and how many."""

import os
import textwrap

from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st

from lengths import programs

law = settings(
    max_examples=programs(short=15, long=400),
    deadline=None,
    phases=[one for one in Phase if one is not Phase.shrink or "TETHER_SHRINK" in os.environ],
    derandomize="TETHER_PROGRAMS" not in os.environ,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much],
)
"""`lengths` says how many programs are tried."""


def statement(draw, number, names, kinds, makes):
    """Draw one statement; what one of the kinds in `makes` gives gets a name of its own."""
    kind = draw(st.sampled_from(kinds))
    text = draw(st.sampled_from(kind)).format(
        a=draw(st.sampled_from(names)), b=draw(st.sampled_from(names))
    )
    if kind in makes:
        names.append(f"v{number}")
        text = f"v{number} = {text}"
    return text


def body_of(lines):
    """Return the body of a function of some statements."""
    return textwrap.indent("\n".join(lines), "    ")
