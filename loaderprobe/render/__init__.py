"""Documents: every result becomes one, which terminal, Markdown and HTML each write in their way.

Nothing is judged, planned or opened here. Each result has one function that makes its document. Of a report `first.py`
makes the first screen, and `sweep.py` the whole. `charts.py` draws: a chart is rows of marks on one axis. `figures.py`
is the table of columns. `messages.py` is the catalogue of words, which `words.py` fills with the facts of one record,
as `format.py` shows them.
"""
