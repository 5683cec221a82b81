"""Who may ask for what: API keys, sign-in links, browser sessions."""
