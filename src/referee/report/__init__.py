"""How is it shown? Records → document → text, Markdown, HTML. Reads records and units only."""
