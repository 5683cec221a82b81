import sys

from hostinfo.stop_signals import hold_stop_signals

# Before the slow imports: a signal that comes from here on stays pending until the program takes it.
hold_stop_signals()

from dlrm.launch.program import main  # noqa: E402

sys.exit(main())
