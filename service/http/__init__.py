"""HTTP layer shared by all endpoints: problem documents, request bodies, pagination, request timing, health."""
