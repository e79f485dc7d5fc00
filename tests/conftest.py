"""Settings of the whole suite."""

import os

from hypothesis import settings

# No deadlines: how fast a machine is is not what a test is about. The same examples every time where nobody watches.
settings.register_profile("llmsim", deadline=None, derandomize="CI" in os.environ)
settings.load_profile("llmsim")
