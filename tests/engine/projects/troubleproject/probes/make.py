"""Trouble needs no factories."""


class Make:
    pass
