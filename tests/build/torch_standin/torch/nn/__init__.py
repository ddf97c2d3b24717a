"""Modules that hold nothing."""


class Module:
    pass
