"""Pages for a browser, without data of their own: their scripts use the REST API with the session cookie."""
