"""Notices for people who are not there: a command, a webhook, or a conversation of
another channel.
"""
