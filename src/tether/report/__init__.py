"""What was found, made readable: text, HTML, JSON, SARIF."""
