import sys
from pathlib import Path

# Nests written by hand and cases of operators are shared with the tests of the Loop IR and of the operators.
for folder in ("loops", "ops"):
    sys.path.insert(0, str(Path(__file__).parent.parent / folder))
