"""Control of jobs in the background: starting, watching and ending them."""
