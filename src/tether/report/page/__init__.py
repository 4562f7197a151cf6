"""HTML: the page of a recording, other pages, their drawings, and what a notebook shows."""
