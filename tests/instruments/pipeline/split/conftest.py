"""Jobs of several processes start as those of the other suite do."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[3] / "distributed"))
