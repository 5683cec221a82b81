"""`python -m service.command`: the same as `dlrm`."""

from service.command.entry import main

main()
