import sys

from hostinfo.fast_exit import skip_last_collection
from hostinfo.stop_signals import block_stop_signals

# Before the slow imports: a signal that arrives from here on stays pending until the program handles it.
block_stop_signals()

from dlrm.launch.program import main  # noqa: E402

skip_last_collection()
sys.exit(main())
