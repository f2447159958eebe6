"""Workspace trust: what a directory holds that acts, and whether the user has said that it may."""
