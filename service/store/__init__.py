"""Ground of the rooms about jobs: database tables, SQL statements, and facts that runs leave on disk."""
