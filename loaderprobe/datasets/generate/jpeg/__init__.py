"""Baseline JPEG (ITU-T T.81): an encoder that also returns which bits of the scan are free to change."""
