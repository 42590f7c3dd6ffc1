"""The smallest project: greet from wherever this runs and leave a file to be brought home."""

import os
import platform
from pathlib import Path

greeting = f"Hello from {platform.node()}, as job {os.environ.get('HOSTLER_JOB_ID', '(none)')}."
print(greeting)
Path("result.txt").write_text(greeting + "\n", encoding="utf-8")
