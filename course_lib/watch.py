"""The door that people type: ``torchrun … -m course_lib.watch train.py``."""

import sys

from course_lib.versions import not_installed

try:
    from course_tools.watch.watch_command import main
except ModuleNotFoundError as error:
    sys.exit(f"course_lib.watch: {not_installed(str(error.name))}")

if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
