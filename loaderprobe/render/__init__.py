"""Documents: every result becomes one, which terminal, Markdown and HTML each write in their way.

Nothing is judged and no file is opened here. Of a sweep, `sweep.py` makes the document, `panels.py` its charts, which
`charts.py` draws; `figures.py` is the table of columns, and `messages.py` the catalogue of words, which
`words.py` fills with the facts of a record, as `format.py` shows them.
"""
