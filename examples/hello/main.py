"""The smallest project: print a greeting from the node, and write it to a file that `hostler fetch` downloads."""

import os
import platform
from pathlib import Path

greeting = f"Hello from {platform.node()}, as job {os.environ.get('HOSTLER_JOB_ID', '(none)')}."
print(greeting)
Path("result.txt").write_text(greeting + "\n", encoding="utf-8")
