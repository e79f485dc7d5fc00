"""``python -m llmsim_kernels COMMAND``: what ``llmsim calibrate | validate | netlab | demo`` hand over to."""

import sys

from llmsim_kernels.cli import app

from llmsim.cli import run

if __name__ == "__main__":
    sys.exit(run(app, sys.argv[1:]))
