"""Renderers: a report in, text out, in the form that a terminal, a browser, a spreadsheet or a program reads.

A page is a `Document`, which terminal, Markdown, HTML and notebook each write in their way; its charts are exhibits, by
the name of their section, in HTML alone. Of a sweep, `sweep.py` puts both together: `panels.py` makes the charts, which
`charts.py` draws, and `figures.py` is the table of columns.
"""
