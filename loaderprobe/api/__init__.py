"""The verbs, one module each: the only place that joins measuring and analysing. `loaderprobe` itself exports them.

Nothing is measured, judged or worded here, and nothing is printed.
"""
