"""A Messages API on loopback that plays scripts carried in the prompt; see
docs/scripted-model.md.
"""
