"""`python -m service.command`: the same as `dlrm`."""

from service.command.main import main

main()
