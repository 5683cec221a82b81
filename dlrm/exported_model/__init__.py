"""Trained models outside of training: on disk, in plain torch, and what they say of rows. Needs no fbgemm."""
