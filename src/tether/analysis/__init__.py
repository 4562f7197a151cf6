"""Questions over the facts that several verdicts and reports ask."""
