import sys
from pathlib import Path

# The nests written by hand are shared with the tests of the Loop IR.
sys.path.insert(0, str(Path(__file__).parent.parent / "loops"))
