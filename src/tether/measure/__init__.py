"""What copies cost, whether rules and findings hold: by running code."""
