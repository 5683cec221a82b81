"""Reports of sweeps: one page of content, as HTML and as Markdown."""
