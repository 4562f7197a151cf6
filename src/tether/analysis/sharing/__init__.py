"""Memory that several tensors show: since when, who has it, who wrote it, who reads it later."""
