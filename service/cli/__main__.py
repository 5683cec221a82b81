"""Entry point of `python -m service.cli`, which is the same as `dlrm`."""

from service.cli.entry import main

main()
