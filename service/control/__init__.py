"""What happens without being asked for: starting jobs, watching them, ending them."""
