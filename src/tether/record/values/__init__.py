"""What the elements of tensors say: results that were there already, writes that lost values."""
