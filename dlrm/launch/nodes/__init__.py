"""The launch processes of an attempt that runs on several machines: they meet, agree, and notice which have gone."""
