"""Launcher that runs each attempt as a Job of Kubernetes."""
