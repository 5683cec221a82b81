"""Files that runs leave: artifacts and logs, listed, searched and sent."""
