"""``python -m course_lib.watch``."""

import sys

from course_lib.watch.cli import main

if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
