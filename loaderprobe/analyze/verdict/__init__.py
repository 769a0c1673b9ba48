"""The verdict on one measurement: experiments, what each removal gains, and the rule."""
