"""What other programs read: JSON, SARIF, annotations for GitHub."""
