"""The bandwidth probe: what storage delivers to a loader, as whole files in random order at rising concurrency.

What a loader itself reads is counted in `samplers/`.
"""
