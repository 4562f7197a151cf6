"""Facts and one file: while it grows, when it is whole, several ranks as one."""
