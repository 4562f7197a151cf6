"""Copies: what was there already, how long it lives, whether anything needed its own memory."""
