"""Renderers: a report in, text out, in the form that a terminal, a browser, a spreadsheet or a program reads."""
