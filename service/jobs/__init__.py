"""Jobs: their documents, states, attempts and events."""
