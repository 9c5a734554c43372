import sys
from pathlib import Path

# Nests written by hand, cases of operators and models in training are shared with the tests of these.
for folder in ("loops", "ops", "models"):
    sys.path.insert(0, str(Path(__file__).parent.parent / folder))
