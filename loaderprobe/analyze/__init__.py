"""From a measurement to a verdict, forecasts, plans and the answer: pure functions on records.

What measures, reads a file or words a sentence does not belong here, nor torch.
"""
