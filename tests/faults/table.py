"""All seeded faults, by name and by part."""

import of_cpu
import of_cuda
import of_emulator
import of_flash_attention
import of_loops_and_plan
import of_operators
import of_passes
import of_rules
import of_simt_attention
import of_text
import of_training
from fault import Fault

PARTS: dict[str, tuple[Fault, ...]] = {
    module.__name__.removeprefix("of_"): module.FAULTS
    for module in (
        *(of_operators, of_training, of_text, of_rules, of_passes, of_loops_and_plan),
        *(of_cpu, of_cuda, of_flash_attention, of_simt_attention, of_emulator),
    )
}
FAULTS: dict[str, Fault] = {}
for _faults in PARTS.values():
    for _fault in _faults:
        if _fault.name in FAULTS:
            raise ValueError(f"two faults are named {_fault.name}")
        FAULTS[_fault.name] = _fault
