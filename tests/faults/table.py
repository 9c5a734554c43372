"""All seeded faults, by name."""

import of_cpu
import of_loops_and_plan
import of_operators
import of_passes
import of_rules
import of_text
import of_training
from fault import Fault

FAULTS: dict[str, Fault] = {}
for _module in (of_operators, of_training, of_text, of_rules, of_passes, of_loops_and_plan, of_cpu):
    for _fault in _module.FAULTS:
        if _fault.name in FAULTS:
            raise ValueError(f"two faults are named {_fault.name}")
        FAULTS[_fault.name] = _fault
