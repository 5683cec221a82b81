"""One attempt on this machine without a service: documents, run directories, child programs, run stores."""
