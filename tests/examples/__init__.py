"""Records that tests read: reports, bandwidth figures and timelines of a made-up machine."""
