"""The staff's half."""
