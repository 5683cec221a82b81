"""Reports of a running rank: into spool files, and from these to a service that receives them."""
