import sys

from hostinfo.stop_signals import hold_stop_signals

# Before anything that takes its time: a signal from here on waits for the program.
hold_stop_signals()

from dlrm.launch.program import main  # noqa: E402

sys.exit(main())
