"""Measurements of the real product on the scripted model, each next to a baseline of the same run:
`make bench`.
"""
