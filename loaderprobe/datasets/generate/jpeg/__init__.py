"""Baseline JPEG (ITU-T T.81): our own encoder, which also tells which bits of the scan are free to change."""
