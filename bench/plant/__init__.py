"""The simulated board: a sysfs tree kept alive by a discrete-event model.

It imports nothing from ``estimators`` or ``policies``: what is tested must not share a formula with
what it is tested on.
"""
