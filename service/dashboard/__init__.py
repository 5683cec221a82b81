"""The pages for a browser: shells that fetch the REST API themselves, with the session's cookie."""
