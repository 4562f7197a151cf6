"""Copies by intent, and how live tensors are tied."""
