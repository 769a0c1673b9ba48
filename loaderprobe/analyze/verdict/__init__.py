"""The verdict on one measurement: experiments, what each removal gains, and the rule.

Figures of several configurations do not belong here.
"""
