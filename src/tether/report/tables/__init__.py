"""The tables of a report: what is listed whatever was judged."""
