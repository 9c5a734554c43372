"""A pytest plugin (``-p planted``) that plants the fault that the environment names, before anything is imported."""

from fault import named, plant
from table import FAULTS

if named():
    plant(FAULTS[named()])
