"""The door that people type: ``python -m course_lib.rehearse --ranks 8 train.py``."""

import sys

from course_lib.versions import not_installed

try:
    from course_tools.rehearse.rehearse_command import main
except ModuleNotFoundError as error:
    sys.exit(f"course_lib.rehearse: {not_installed(str(error.name))}")

if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
