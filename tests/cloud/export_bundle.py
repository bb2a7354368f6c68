"""Export the bundle that the tests of the cloud serve: that takes torch, which their own environment has not.

python tests/cloud/export_bundle.py FOLDER
"""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent))  # for `zoo`

from helpers.zoo import export_three_stages

if __name__ == "__main__":
    export_three_stages(Path(sys.argv[1]))
