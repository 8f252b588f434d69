"""Where the source is.

For:     test/it: tests that read the manual, or run other parts of test/.
Entry points: ROOT.
"""

import os

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
