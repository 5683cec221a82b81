"""Entry point of `python -m cli`, which is the same as `dlrm`."""

from cli.entry import main

main()
