import sys
from pathlib import Path

# The nests written by hand are shared with the tests of the Loop IR, random graphs with those of graphs.
for folder in ("loops", "graph"):
    sys.path.insert(0, str(Path(__file__).parent.parent / folder))
