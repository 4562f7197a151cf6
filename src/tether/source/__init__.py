"""Program text: the expression and names at a site, and the way of a value through the source."""
