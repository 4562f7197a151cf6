"""One document made of findings and tables, and its text."""
