"""`python -m service.cli`: the same as `dlrm`."""

from service.cli.entry import main

main()
